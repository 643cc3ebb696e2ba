"""torchtitan: its dataloader's interface, and its state in a distributed checkpoint."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need
from .page import script

torch = need("torch")
need("torchtitan.components.dataloader")

import torch.distributed.checkpoint  # noqa: E402
from rowdex.torchtitan import TokenDataLoader  # noqa: E402

SEQUENCE, FILL = 12, 5000


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A thousand rows of 2 to 13 tokens, of which the first is the row id."""
    folder = tmp_path_factory.mktemp("tokens")
    rows = [[i, *range(1, 2 + i % SEQUENCE)] for i in range(1000)]
    fixed = [[i, i + 1, i + 2] for i in range(1000)]
    columns = {
        "tokens": pa.array(rows, pa.list_(pa.int32())),
        "three": pa.array(fixed, pa.list_(pa.int64(), 3)),
        "text": pa.array([str(i) for i in range(1000)]),
        "numbers": pa.array([[float(i)] for i in range(1000)], pa.list_(pa.float32())),
    }
    pq.write_table(pa.table(columns), folder / "rows.parquet", row_group_size=100)
    rowdex.build(folder, folder / "tokens.rdx", lengths=["tokens"])
    return str(folder / "tokens.rdx")


def built(tokens: str, rank: int = 0, world: int = 2, batch: int = 16, length: int = SEQUENCE, **options: Any) -> Any:
    # As torchtitan's trainer builds it.
    config = TokenDataLoader.Config(dataset_path=tokens, seed=3, **options)
    return config.build(
        dp_world_size=world, dp_rank=rank, tokenizer=None, seq_len=length, local_batch_size=batch,
        snapshot_every_n_steps=10,
    )  # fmt: skip


def ids(examples: Any) -> list[list[int]]:
    return [inputs["input"][:, 0].tolist() for inputs, _ in examples]


def test_batches_are_those_of_the_plain_loader_shifted_by_one_and_filled_up(tokens: str) -> None:
    for rank in range(2):
        found = list(built(tokens, rank, epochs=2))
        dataset = rowdex.Dataset(tokens)
        loader = rowdex.Loader(
            dataset, batch_size=16, seed=3, num_replicas=2, rank=rank, drop_last_batch=True, output="python"
        )
        whole = [batch["tokens"] for _ in range(2) for batch in loader]
        assert len(found) == len(whole) == 62
        for (inputs, labels), rows in zip(found, whole):
            assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (16, SEQUENCE)
            assert inputs["positions"][3].tolist() == list(range(SEQUENCE))
            for row, own, label in zip(rows, inputs["input"].tolist(), labels.tolist()):
                assert own == [*row, *[0] * SEQUENCE][:SEQUENCE]
                assert label == [*row[1:], *[-100] * SEQUENCE][:SEQUENCE]


def test_a_checkpoint_goes_on_exactly_and_with_another_number_of_ranks(tokens: str, tmp_path: pathlib.Path) -> None:
    ranks = [built(tokens, rank, epochs=2) for rank in range(2)]
    steps = [iter(rank) for rank in ranks]
    for _ in range(40):
        for step in steps:
            next(step)
    assert ranks[0].state_dict() == ranks[1].state_dict()
    torch.distributed.checkpoint.save({"dataloader": ranks[0]}, checkpoint_id=str(tmp_path / "step"))
    rest = [ids(step) for step in steps]
    same, one = built(tokens, 1, epochs=2), built(tokens, 0, world=1, batch=32, epochs=2)
    for loader in (same, one):
        torch.distributed.checkpoint.load({"dataloader": loader}, checkpoint_id=str(tmp_path / "step"))
        loader.load_state_dict({})
    assert ids(same) == rest[1]
    assert [sorted(step) for step in ids(one)] == [sorted(a + b) for a, b in zip(*rest)]


def served(ranks: Any) -> list[int]:
    """The tokens of several ranks, without what fills up."""
    examples = [example for rank in ranks for example in rank]
    for inputs, labels in examples:
        assert inputs["input"].shape == inputs["positions"].shape == labels.shape == (16, SEQUENCE)
        assert (inputs["positions"][:, 0] == 0).all()
    found = torch.cat([inputs["input"].reshape(-1) for inputs, _ in examples])
    return sorted(found[found != FILL].tolist())


def test_packs_have_every_token_once_and_go_on_with_any_number_of_ranks(tokens: str) -> None:
    options: dict[str, Any] = {"pack": True, "pad_token": FILL}
    whole = sorted(token for row in rowdex.Dataset(tokens).take(range(1000)).to_pydict()["tokens"] for token in row)
    assert served(built(tokens, rank, epochs=1, **options) for rank in range(2)) == whole
    ranks = [built(tokens, rank, epochs=1, **options) for rank in range(2)]
    steps = [iter(rank) for rank in ranks]
    begun = [[next(step) for _ in range(5)] for step in steps]
    assert ranks[0].state_dict() == ranks[1].state_dict()
    for world in (1, 2, 3):
        others = [built(tokens, rank, world=world, epochs=1, **options) for rank in range(world)]
        for other in others:
            other.load_state_dict(ranks[0].state_dict())
        rest = [list(other) for other in others]
        assert len(set(map(len, rest))) == 1
        assert served([*begun, *rest]) == whole
    for wrong, words in (({"truncate": True}, "overflow='truncate'"), ({"column": "three"}, "three")):
        with pytest.raises(ValueError, match=words):
            built(tokens, **{**options, **wrong})


def test_rows_that_are_too_long_are_refused_or_cut_and_what_is_no_token_is_refused(tokens: str) -> None:
    with pytest.raises(ValueError, match="longer than seq_len \\+ 1 = 5: raise seq_len"):
        list(built(tokens, length=4, epochs=1))
    found = list(built(tokens, length=4, epochs=1, truncate=True))
    assert all((labels[inputs["input"][:, 0] % SEQUENCE >= 3] == torch.arange(1, 5)).all() for inputs, labels in found)
    inputs, labels = next(iter(built(tokens, column="three")))
    assert labels[:, :2].tolist() == [[i + 1, i + 2] for i in inputs["input"][:, 0].tolist()]
    assert (labels[:, 2:] == -100).all()
    for packing in ({"overflow": "truncate"}, {"algorithm": "concat"}):
        with pytest.raises(ValueError, match="overflow and algorithm are of packs"):
            built(tokens, **packing)
    with pytest.raises(ValueError, match="fewer than one batch"):
        built(tokens, batch=600)
    with pytest.raises(ValueError, match="dataset_path"):
        TokenDataLoader.Config().build(dp_world_size=1, dp_rank=0, seq_len=4, local_batch_size=4)
    for column in ("text", "numbers"):
        with pytest.raises(rowdex.SchemaError, match="has no lists of integers"):
            next(iter(built(tokens, column=column)))


def test_the_validator_has_one_epoch_or_as_many_as_it_takes_steps(tokens: str) -> None:
    from torchtitan.components.validate import Validator

    def validated(steps: int, **options: Any) -> list[list[int]]:
        config = TokenDataLoader.Config(dataset_path=tokens, seed=3, **options)
        others: dict[str, Any] = dict.fromkeys(
            "parallelism tokenizer parallel_dims loss_fn validation_context metrics_processor".split()
        )
        validator = Validator(
            Validator.Config(enable=True, steps=steps, dataloader=config),
            dp_world_size=2, dp_rank=1, seq_len=SEQUENCE, local_batch_size=16, **others,
        )  # fmt: skip
        loader = validator.dl_config.build(
            dp_world_size=2, dp_rank=1, tokenizer=None, seq_len=SEQUENCE, local_batch_size=16
        )
        return ids(itertools.islice(loader, 100))

    epoch = ids(built(tokens, 1, epochs=1))
    assert len(epoch) == 1000 // 32
    assert validated(-1) == epoch
    more = validated(100)
    assert len(more) == 100 and more[: len(epoch)] == epoch
    assert len(validated(100, epochs=2)) == 2 * len(epoch)


def test_the_program_of_the_page_runs(tokens: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").symlink_to(pathlib.Path(tokens).parent)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script("torchtitan"), names)
    assert (names["steps"], tuple(names["shape"])) == (31, (16, 12))
