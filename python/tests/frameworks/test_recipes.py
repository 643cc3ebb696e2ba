"""The programs of docs/sequences.md for each framework, run as they are shown."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need
from .page import script

torch = need("torch")
RECIPES = ("own", "transformers", "trl", "lightning", "accelerate", "grain", "jax")
ROWS = 100


@pytest.fixture()
def names(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the first program leaves, of an index where each token is a number of its own, up to 1023."""
    lengths = [1 + row * 7 % 19 for row in range(ROWS)]
    ends = list(itertools.accumulate(lengths, initial=1))
    tokens = [list(range(first, last)) for first, last in zip(ends, ends[1:])]
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32()))}), tmp_path / "data/rows.parquet")
    rowdex.build(tmp_path / "data", tmp_path / "data/train.rdx", lengths=["tokens"], progress=False)
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    found: dict[str, Any] = {"__name__": "__main__", "all": range(1, ends[-1])}
    exec(script("sequences", "In each framework"), found)
    yield found


def run(recipe: str, names: dict[str, Any]) -> None:
    exec(compile(script("sequences", "In each framework", RECIPES.index(recipe)), recipe, "exec"), names)


def steps_of(names: dict[str, Any], epochs: int, size: int = 2) -> int:
    sampler = rowdex.DistributedSampler(names["dataset"], 1, 0, seed=42, batch_size=size, pack=names["pack"])
    return sampler.total_steps(epochs)


def test_a_loop_of_your_own(names: dict[str, Any]) -> None:
    assert names["steps"] == steps_of(names, 2) and names["state"]
    served = torch.cat([batch["tokens"] for batch in names["loader"]])
    assert sorted(served.tolist()) == list(names["all"])


def test_prompts_are_not_trained_on(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found: dict[str, Any] = {}
    for number in range(2):
        found.pop("trained", None)
        exec(compile(script("sequences", "Labels, masks and weights", number), "labels", "exec"), found)
        assert sorted(found["trained"].tolist()) == [9, 10, 11, 12, 13]


def test_buckets(names: dict[str, Any]) -> None:
    exec(compile(script("sequences", "Batches of whole rows"), "buckets", "exec"), names)
    assert names["batch"]["tokens"].shape[0] == ROWS - 64


def test_accelerate(names: dict[str, Any]) -> None:
    need("accelerate")
    run("accelerate", names)
    assert names["loader"].epoch == 2 and len(names["inputs"]) == len(names["labels"])


@pytest.mark.parametrize("recipe", ["transformers", "trl"])
def test_hugging_face(names: dict[str, Any], recipe: str) -> None:
    need("transformers", "trl", "tokenizers")
    import tokenizers
    import transformers

    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")
    run("transformers", names)
    if recipe == "trl":
        # The column has the name that TRL asks for.
        table = pq.read_table("data/rows.parquet").rename_columns(["input_ids"])
        pathlib.Path("ids").mkdir()
        pq.write_table(table, "ids/rows.parquet")
        rowdex.build("ids", "ids/train.rdx", lengths=["input_ids"], progress=False)
        names |= {
            "dataset": rowdex.Dataset("ids/train.rdx"), "pack": rowdex.Pack("input_ids", capacity=64),
            "tokenizer": tokenizer,
        }  # fmt: skip
        run("trl", names)
    assert names["steps"] == steps_of(names, 2)


def test_lightning(names: dict[str, Any]) -> None:
    need("lightning")
    run("lightning", names)
    assert names["steps"] == steps_of(names, 2)


def test_grain(names: dict[str, Any]) -> None:
    need("grain")
    run("grain", names)
    assert names["steps"] == steps_of(names, 2)


def test_jax(names: dict[str, Any]) -> None:
    need("jax")
    run("jax", names)
    assert names["shapes"] == {(2, 64)}
