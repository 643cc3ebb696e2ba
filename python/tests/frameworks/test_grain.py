"""Grain: a source of rows, and batches with Grain's state."""

from __future__ import annotations

import json
import pathlib
import pickle
from typing import Any

import numpy as np
import pytest
import rowdex

from .need import need
from .page import script

grain = need("grain")

from rowdex import grain as rowdex_grain  # noqa: E402

@pytest.fixture()
def rows(unequal: pathlib.Path) -> Any:
    with rowdex.Dataset(unequal / "train.rdx") as dataset:
        yield dataset


def plain(rows: Any, epochs: int = 2, **sampling: Any) -> list[list[int]]:
    """The ids of the batches of a plain loader."""
    with rowdex.Loader(rows, output="numpy", **sampling) as loader:
        return [batch["id"].tolist() for _ in range(epochs) for batch in loader]


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def test_a_source_gives_rows_that_grain_shuffles_and_batches(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "x", "vector", "name"])
    source = rowdex_grain.Source(dataset)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    batch = grain.MapDataset.source(source).shuffle(seed=1).batch(64)[0]
    order = batch["id"].tolist()
    assert len(set(order)) == 64 and order != sorted(order)
    assert batch["vector"].shape == (64, 3) and batch["x"].dtype == np.float32
    assert batch["vector"].tolist() == [[i, i + 1, i + 2] for i in order]
    assert batch["name"].tolist() == [f"row {i}" for i in order]
    with pytest.raises(TypeError, match="give it a rowdex.Dataset"):
        rowdex_grain.Source(index)


def test_a_source_is_pickled_and_known_by_its_rows(unequal: pathlib.Path, tmp_path: pathlib.Path) -> None:
    source = rowdex_grain.Source(rowdex.Dataset(unequal / "train.rdx", columns=["id", "x"]))
    again = pickle.loads(pickle.dumps(source))
    assert repr(again) == repr(source) and "fingerprint=0x" in repr(source)
    assert again[10_006]["id"] == 10_006 and len(again) == 10_007
    with pytest.raises(IndexError):
        again[10_007]
    rowdex.build(unequal / "part-0.parquet", tmp_path / "other.rdx")
    assert repr(rowdex_grain.Source(rowdex.Dataset(tmp_path / "other.rdx", columns=["id", "x"]))) != repr(source)


def test_batches_are_those_of_the_plain_loader_and_each_rank_has_as_many(rows: Any) -> None:
    found = []
    for rank in range(2):
        sampling: dict[str, Any] = {"seed": 3, "num_replicas": 2, "rank": rank}
        batches = rowdex_grain.IterDataset(rows, 64, epochs=2, row_ids="row", repeated="pad", **sampling)
        found.append(list(batches))
        assert ids(found[rank]) == plain(rows, batch_size=64, **sampling)
        assert all(batch["x"].shape == (len(batch["id"]), 3) for batch in found[rank])
        assert all((batch["row"] == batch["id"]).all() for batch in found[rank])
    assert [len(batches) for batches in found] == [158, 158]
    for epoch in range(2):
        own = [batch for rank in found for batch in rank[79 * epoch : 79 * (epoch + 1)]]
        assert sorted(row for batch in own for row in batch["id"][~batch["pad"]].tolist()) == list(range(10_007))
        assert sum(int(batch["pad"].sum()) for batch in own) == 1


@pytest.mark.parametrize("served", [0, 10, 79, 100])
def test_a_state_goes_on_exactly_and_with_another_number_of_ranks(rows: Any, served: int) -> None:
    sampling: dict[str, Any] = {"seed": 3, "epochs": 2}
    iterator = rowdex_grain.IterDataset(rows, 64, **sampling, num_replicas=2, rank=0).__iter__()
    for _ in range(served):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    rest = ids(iterator)
    assert len(rest) == 158 - served
    same = rowdex_grain.IterDataset(rows, 64, **sampling, num_replicas=2, rank=0).__iter__()
    next(same)
    same.set_state(state)
    assert same.get_state() == state
    assert ids(same) == rest
    one = rowdex_grain.IterDataset(rows, 128, **sampling, num_replicas=1, rank=0).__iter__()
    one.set_state(state)
    both = ids(one)
    assert len(both) == len(rest)
    assert all(batch[::2] == mine for batch, mine in zip(both[:-1], rest[:-1]))
    with pytest.raises(rowdex.errors.StateError):
        rowdex_grain.IterDataset(rows, 64, seed=4).__iter__().set_state(state)


def test_grains_own_steps_come_after_the_batches_and_keep_their_state(rows: Any) -> None:
    batches = rowdex_grain.IterDataset(rows, 64, seed=3, epochs=1).map(lambda batch: batch["id"] * 2)
    iterator = batches.__iter__()
    begun = [next(iterator).tolist() for _ in range(5)]
    state = iterator.get_state()
    rest = [batch.tolist() for batch in iterator]
    assert [[row // 2 for row in batch] for batch in begun + rest] == plain(rows, 1, batch_size=64, seed=3)
    again = batches.__iter__()
    again.set_state(state)
    assert [batch.tolist() for batch in again] == rest


def test_worker_processes_of_grain_are_refused(rows: Any) -> None:
    batches = rowdex_grain.IterDataset(rows, 400)
    with pytest.raises(ValueError, match="its own threads"):
        batches.set_slice(slice(0, None, 2))


def test_the_program_of_the_page_runs(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script("frameworks/grain"), names)
    assert names["rest"] == 69
