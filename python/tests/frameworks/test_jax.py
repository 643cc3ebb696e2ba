"""JAX: batches of one shape, and global arrays of two processes."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need
from .page import script

jax = need("jax")

from rowdex import jax as rowdex_jax  # noqa: E402

JOB = pathlib.Path(__file__).with_name("jax_job.py")


@pytest.fixture()
def rows(unequal: pathlib.Path) -> Any:
    with rowdex.Dataset(unequal / "train.rdx") as dataset:
        yield dataset


def plain(rows: Any, **sampling: Any) -> list[list[int]]:
    with rowdex.Loader(rows, output="numpy", **sampling) as loader:
        return [batch["id"].tolist() for _ in range(2) for batch in loader]


def test_two_processes_make_global_arrays_of_one_shape_and_compile_once(rows: Any, unequal: pathlib.Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen(
            [sys.executable, str(JOB), str(unequal / "train.rdx"), str(rank), "2", str(port)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"},
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait(10)
    assert all(rank.returncode == 0 for rank in ranks), [errors[-2000:] for _, errors in outputs]
    # Gloo writes lines of its own.
    found = [json.loads(text.splitlines()[-1]) for text, _ in outputs]
    assert [rank["launch"] for rank in found] == [[0, 2], [1, 2]]
    assert [rank["steps"] for rank in found] == [79, 79]
    assert all(rank["shapes"] == [[128, 3]] and rank["compiled"] == [[128]] for rank in found)
    assert found[0]["sums"] == found[1]["sums"]
    for rank in range(2):
        want = plain(rows, batch_size=64, seed=3, num_replicas=2, rank=rank)
        # The pad, a row that another rank has, does not count.
        assert [row[: len(own)] for row, own in zip(want, found[rank]["own"])] == found[rank]["own"]
    for epoch in range(2):
        both = [found[rank]["own"][79 * epoch : 79 * (epoch + 1)] for rank in range(2)]
        assert sorted(row for rank in both for step in rank for row in step) == list(range(10_007))
        sums = [sum(a) + sum(b) for a, b in zip(*both)]
        assert found[0]["sums"][79 * epoch : 79 * (epoch + 1)] == sums


@pytest.mark.parametrize("last, steps, rows_of_last", [("fill", 79, 64), ("drop", 78, 64), ("short", 79, 12)])
def test_a_short_last_batch_is_filled_dropped_or_served(rows: Any, last: Any, steps: int, rows_of_last: int) -> None:
    sampling: dict[str, Any] = {"batch_size": 64, "seed": 3, "num_replicas": 2, "rank": 0}
    loader = rowdex_jax.Loader(rows, last=last, valid="valid", **sampling)
    found = list(loader)
    assert len(found) == len(loader) == steps
    assert all(isinstance(value, jax.Array) for batch in found for value in batch.values())
    assert [batch["x"].shape for batch in found] == [(64, 3)] * (steps - 1) + [(rows_of_last, 3)]
    valid = [batch["id"][np.asarray(batch["valid"])].tolist() for batch in found]
    assert valid == plain(rows, **sampling)[:steps]


def test_a_function_of_a_batch_may_return_other_columns_and_sees_none_that_nobody_asked_for(rows: Any) -> None:
    def doubled(batch: dict[str, Any]) -> dict[str, Any]:
        assert "rowdex.pads" not in batch
        return {"twice": batch["id"] * 2}

    for functions in (doubled, [doubled, dict]):
        loader = rowdex_jax.Loader(rows, batch_size=256, order="sequential", map=functions, valid="counts")
        batches = list(loader)
        assert all(set(batch) == {"twice", "counts"} for batch in batches)
        found = [int(value) for batch in batches for value in batch["twice"][batch["counts"]]]
        assert found == [2 * row for row in range(len(rows))]
    # A function that returns something else, or without a column that was asked for.
    with pytest.raises(KeyError, match="map took out the column of repeated rows 'pad'"):
        next(iter(rowdex_jax.Loader(rows, batch_size=256, map=lambda batch: {"id": batch["id"]}, repeated="pad")))
    with pytest.raises(TypeError, match="map returned list: return a dict"):
        next(iter(rowdex_jax.Loader(rows, batch_size=256, map=list)))


def test_lists_are_padded_and_what_is_no_number_is_refused_with_what_to_do(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "tokens"])
    batch = next(iter(rowdex_jax.Loader(dataset, batch_size=8, shuffle=False, pad={"tokens": 4})))
    assert batch["tokens"].tolist() == [[*range(i % 4), 0, 0, 0, 0][:4] for i in range(8)]
    with pytest.raises(rowdex.errors.SchemaError, match="lists of different lengths: give pad, or leave it out"):
        next(iter(rowdex_jax.Loader(dataset, batch_size=8)))
    with pytest.raises(rowdex.errors.SchemaError, match="'name' has no numbers: leave it out"):
        next(iter(rowdex_jax.Loader(rowdex.Dataset(index, columns=["name"]), batch_size=8)))
    with pytest.raises(ValueError, match="use 'fill', 'drop' or 'short'"):
        rowdex_jax.Loader(dataset, batch_size=8, last="pad")  # type: ignore[arg-type]
    for pad in ("longest", 4, {"tokens": "longest"}, ["tokens"]):
        with pytest.raises(TypeError, match="give a length for each column of lists"):
            rowdex_jax.Loader(dataset, batch_size=8, pad=pad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pad: there is no column 'token'"):
        rowdex_jax.Loader(dataset, batch_size=8, pad={"token": 4})
    with pytest.raises(rowdex.errors.SchemaError, match="pad: column 'id' has no lists"):
        next(iter(rowdex_jax.Loader(dataset.select(["id"]), batch_size=8, pad={"id": 4})))
    with pytest.raises(rowdex.errors.SchemaError, match="'tokens' has values and a mask: use nulls='fill'"):
        next(iter(rowdex_jax.Loader(dataset.select(["tokens"]), batch_size=8, nulls="mask", pad={"tokens": 4})))
    with pytest.raises(ValueError, match="called 'row'"):
        rowdex_jax.Loader(dataset, batch_size=8, row_ids="row", valid="row")
    four: Any = np.int64(4)
    masked = rowdex_jax.Loader(dataset, batch_size=8, nulls="mask", pad={"tokens": four})
    with pytest.raises(rowdex.errors.SchemaError, match="'id' has values and a mask: use nulls='fill'"):
        next(iter(masked))


@pytest.mark.parametrize("options", [{}, {"map": lambda batch: {name: batch[name] for name in sorted(batch)}}])
def test_packs_that_the_last_step_lacks_are_filled_with_the_pad(tmp_path: pathlib.Path, options: Any) -> None:
    tokens = [[row] * 3 for row in range(1, 6)]
    pq.write_table(pa.table({"tokens": pa.array(tokens, pa.list_(pa.int32()))}), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "i.rdx", lengths=["tokens"])
    packing = rowdex.Pack("tokens", 4, layout="rows", pad=99)
    sampling: dict[str, Any] = {"num_replicas": 1, "rank": 0, "tail": "uneven", "shuffle": False}
    made = rowdex_jax.Loader(rowdex.Dataset(tmp_path / "i.rdx"), batch_size=4, pack=packing, **sampling, **options)
    rows = [row for batch in made for row in batch["tokens"].tolist()]
    assert sorted(rows) == [[*row, 99] for row in tokens] + [[99] * 4] * 3
    last = list(made)[-1]
    assert np.asarray(last["labels"])[1:].tolist() == [[-100] * 4] * 3
    assert not np.asarray(last["segment_ids"])[1:].any() and not np.asarray(last["position_ids"])[1:].any()


@pytest.mark.parametrize("options", [{}, {"map": dict}])
def test_a_batch_that_jax_cannot_have_is_not_over(index: str, options: dict[str, Any]) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "tokens"])
    loader = rowdex_jax.Loader(dataset, batch_size=3, shuffle=False, pad={"tokens": 2}, **options)
    state = loader.sampler.state_after(0, 0)
    for _ in range(2):
        # The second batch has the first list of three tokens.
        served = []
        with pytest.raises(ValueError, match="tokens|2"):
            for batch in loader:
                served.append(batch["id"].tolist())
        assert loader.state_dict() == state
    assert served == []


def test_integers_that_jax_has_no_room_for_are_refused_and_never_cut(tmp_path: pathlib.Path) -> None:
    columns = {"low": [-(2**31), 2**31 - 1], "high": [0, 2**31], "deep": [-(2**31) - 1, 0]}
    unsigned = {"u": pa.array([0, 2**32 - 1], pa.uint64()), "v": pa.array([0, 2**32], pa.uint64())}
    pq.write_table(pa.table({**columns, **unsigned}), tmp_path / "a.parquet")
    rowdex.build(tmp_path, tmp_path / "i.rdx")
    for name, fits in {"low": True, "high": False, "deep": False, "u": True, "v": False}.items():
        loader = rowdex_jax.Loader(rowdex.Dataset(tmp_path / "i.rdx", columns=[name]), batch_size=2, shuffle=False)
        if fits:
            wanted = (columns | {"u": [0, 2**32 - 1]})[name]
            assert next(iter(loader))[name].tolist() == wanted
        else:
            with pytest.raises(rowdex.errors.SchemaError, match=f"'{name}': JAX has no room for .* jax_enable_x64"):
                next(iter(loader))
            # The same batch, once it was said where to go on.
            loader.load_state_dict(loader.state_dict())
            with jax.enable_x64(True):
                assert len(next(iter(loader))[name]) == 2


def test_the_program_of_the_page_runs(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script("frameworks/jax"), names)
    assert (names["steps"], names["traced"]) == (157, 1)
