"""Samplers and loaders."""

from __future__ import annotations

import collections
import copy
import os
import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.native.library import size as bytes_of

from .conftest import ROWS


def loader_of(dataset: Any, **options: Any) -> rowdex.Loader:
    return rowdex.Loader(dataset, **{"batch_size": 32, "seed": 7, "output": "numpy", "nulls": "fill", **options})


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("world", [1, 2, 3, 7])
@pytest.mark.parametrize("tail", ["wrap", "drop", "uneven"])
def test_ranks_together_serve_every_row_once(dataset: Any, world: int, tail: Any) -> None:
    samplers = [rowdex.DistributedSampler(dataset, world, rank, seed=3, tail=tail) for rank in range(world)]
    served = [list(sampler) for sampler in samplers]
    assert [len(rows) for rows in served] == [len(sampler) for sampler in samplers]
    counted = collections.Counter(row for rows in served for row in rows)
    if tail != "uneven":
        assert len({len(rows) for rows in served}) == 1
    if tail != "drop":
        assert set(counted) == set(range(ROWS)) and sum(counted.values()) - ROWS < world
    else:
        assert max(counted.values()) == 1 and ROWS - len(counted) < world


def test_epochs_advance_by_themselves_and_set_epoch_goes_back(dataset: Any) -> None:
    sampler = rowdex.DistributedSampler(dataset, 2, 1, seed=3)
    first, second = list(sampler), list(sampler)
    assert first != second and sorted(first) != sorted(second)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert sampler.epoch == 1


def test_without_shuffling_rows_come_in_order(dataset: Any) -> None:
    sampler = rowdex.DistributedSampler(dataset, 4, 1, shuffle=False)
    assert list(sampler)[:3] == [1, 5, 9]
    assert list(rowdex.DistributedSampler(range(5), 1, 0, shuffle=False)) == [0, 1, 2, 3, 4]


def test_rank_and_world_come_from_the_environment(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "2")
    sampler = rowdex.DistributedSampler(dataset)
    assert (sampler.num_replicas, sampler.rank) == (4, 2)
    monkeypatch.setenv("RANK", "two")
    with pytest.raises(ValueError, match="RANK"):
        rowdex.DistributedSampler(dataset)
    monkeypatch.delenv("RANK")
    with pytest.raises(ValueError, match="WORLD_SIZE is set and RANK is not"):
        rowdex.DistributedSampler(dataset)
    assert rowdex.DistributedSampler(dataset, 1, 0).num_replicas == 1
    monkeypatch.delenv("WORLD_SIZE")
    sampler = rowdex.DistributedSampler(dataset)
    assert (sampler.num_replicas, sampler.rank) == (1, 0)
    for size, rank in [("SLURM_NTASKS", "SLURM_PROCID"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK")]:
        monkeypatch.setenv(size, "8")
        monkeypatch.setenv(rank, "5")
        sampler = rowdex.DistributedSampler(dataset)
        assert (sampler.num_replicas, sampler.rank) == (8, 5)
        monkeypatch.delenv(size)
        monkeypatch.delenv(rank)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 << 30),
        ("512 MB", 512 * 10**6),
        ("1.5kib", 1536),
        ("100", 100),
        ("7b", 7),
        ("2T", 2 << 40),
        ("4Gi", 4 << 30),
    ],
)
def test_memory_may_be_a_text(dataset: Any, text: str, size: int) -> None:
    assert bytes_of(text, "memory") == size
    assert len(next(iter(loader_of(dataset, memory=text)))["id"]) == 32


def test_mistakes_are_told_with_what_to_write_instead(dataset: Any) -> None:
    for wrong, word in [("4 pounds", "4GiB"), ("5%", "4GiB"), ("0", "from 1 on"), ("", "4GiB"), ("i", "4GiB")]:
        with pytest.raises(ValueError, match=word):
            loader_of(dataset, memory=wrong)
    with pytest.raises(TypeError, match="give it a rowdex.Dataset"):
        rowdex.Loader([1], batch_size=4)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="threads="):
        loader_of(dataset, num_workers=4)
    for rows in (1.5, "id"):
        with pytest.raises(TypeError, match="row id"):
            dataset[rows]


def test_batches_become_frames(dataset: Any) -> None:
    batch = dataset.take([5, 7])
    assert batch.to_arrow().num_rows == 2 and batch.to_arrow().schema == pa.schema(batch.schema)
    polars = pytest.importorskip("polars")
    assert isinstance(batch.to_polars(), polars.DataFrame) and batch.to_polars()["id"].to_list() == [5, 7]
    pytest.importorskip("pandas")
    assert batch.to_pandas()["id"].tolist() == [5, 7]


@pytest.mark.parametrize(
    "arguments",
    [
        {"rank": 2}, {"rank": -1}, {"num_replicas": 0, "rank": 0}, {"order": "shuffled"}, {"tail": "cut"},
        {"batch_size": 0}, {"replication": 3}, {"shuffle": False, "order": "global"},
        {"drop_last": True, "tail": "wrap"}, {"replication": (2, "x")}, {"tail": "error"},
    ],
    ids=str,
)  # fmt: skip
def test_arguments_that_can_not_be_right_are_refused(dataset: Any, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        rowdex.DistributedSampler(dataset, **{"num_replicas": 2, "rank": 0, **arguments})


def test_replicas_get_the_same_rows(dataset: Any) -> None:
    rows = [list(rowdex.DistributedSampler(dataset, 4, rank, replication=2)) for rank in range(4)]
    assert rows[0] == rows[1] and rows[2] == rows[3] and rows[0] != rows[2]
    rows = [
        list(rowdex.DistributedSampler(dataset, 4, rank, replication=(2, "strided"))) for rank in range(4)
    ]
    assert rows[0] == rows[2] and rows[1] == rows[3] and rows[0] != rows[1]


def test_a_sampler_goes_on_from_its_state_with_another_world(dataset: Any) -> None:
    before = [rowdex.DistributedSampler(dataset, 4, rank, seed=1, batch_size=10) for rank in range(4)]
    served = [row for sampler in before for _, batch in zip(range(9), sampler.batches()) for row in batch.row_ids]
    states = {sampler.state_dict()["state"] for sampler in before}
    assert len(states) == 1
    state = pickle.loads(pickle.dumps({"state": states.pop()}))
    after = [rowdex.DistributedSampler(dataset, 3, rank, seed=1, batch_size=7, tail="uneven") for rank in range(3)]
    for sampler in after:
        sampler.load_state_dict(state)
    rest = [row for sampler in after for row in sampler]
    assert sorted(served + rest) == list(range(ROWS))
    # The epochs after are whole.
    assert sorted(row for sampler in after for row in sampler) == list(range(ROWS))
    with pytest.raises(rowdex.errors.StateError):
        rowdex.DistributedSampler(dataset, 3, 0, seed=2).load_state_dict(state)
    with pytest.raises(ValueError):
        before[0].load_state_dict({"state": "x"})


def test_a_pickled_sampler_goes_on_with_the_same_epoch(dataset: Any) -> None:
    sampler = rowdex.DistributedSampler(dataset, 2, 0, seed=1, batch_size=10)
    list(sampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


def test_a_loader_serves_the_batches_of_its_sampler(dataset: Any) -> None:
    for world in (1, 3):
        for rank in range(world):
            options = {"num_replicas": world, "rank": rank}
            loader = loader_of(dataset, **options)
            sampler = rowdex.DistributedSampler(dataset, seed=7, batch_size=32, **options)
            for _ in range(3):
                expected = [batch.row_ids for batch in sampler.batches()]
                assert len(loader) == len(expected)
                assert ids(loader) == expected


@pytest.mark.parametrize("chunk", [1, 16, 64, 8192])
@pytest.mark.parametrize("tail", ["wrap", "drop", "uneven"])
def test_converting_many_batches_at_once_changes_nothing(
    index: str, monkeypatch: pytest.MonkeyPatch, chunk: int, tail: str
) -> None:
    monkeypatch.setattr("rowdex.loading.convert._ROWS", chunk)
    dataset = rowdex.Dataset(index, ["id", "vector", "tokens", "maybe", "name"])
    for world, size in [(1, 8), (3, 167), (3, 334), (7, 16), (2, 501)]:
        for rank in range(world):
            options: dict[str, Any] = {"num_replicas": world, "rank": rank, "batch_size": size, "tail": tail}
            loader = loader_of(dataset, nulls="mask", row_ids="row", repeated="pad", **options)
            sampler = rowdex.DistributedSampler(dataset, seed=7, **options)
            for _ in range(3):
                for batch, planned in zip(loader, sampler.batches(), strict=True):
                    rows = planned.row_ids
                    assert batch["id"].values.tolist() == batch["row"].tolist() == rows
                    assert batch["pad"].sum() == planned.num_pads
                    assert batch["vector"].values.tolist() == [[row, row + 1, row + 2] for row in rows]
                    assert batch["maybe"].valid.tolist() == [row % 3 > 0 for row in rows]
                    assert batch["name"].values == [f"row {row}" for row in rows]
                    tokens = batch["tokens"].values
                    assert tokens.offsets.tolist() == [0, *np.cumsum([row % 4 for row in rows])]
                    assert tokens.values.tolist() == [item for row in rows for item in range(row % 4)]


def test_batches_have_whole_rows(dataset: Any, table: pa.Table) -> None:
    for batch in loader_of(dataset, output="arrow"):
        assert pa.table(batch).equals(table.take(pa.array(batch.row_ids)))
    for columns in loader_of(dataset, output="python"):
        assert columns["name"] == [f"row {i}" for i in columns["id"]]


def test_row_ids_and_pads_can_be_asked_for(dataset: Any) -> None:
    loaders = [loader_of(dataset, num_replicas=4, rank=rank, row_ids="row", repeated="pad") for rank in range(4)]
    pads = 0
    for loader in loaders:
        for batch in loader:
            assert (batch["row"] == batch["id"]).all() and batch["pad"].dtype == bool
            pads += int(batch["pad"].sum())
    assert pads == -ROWS % 4
    with pytest.raises(ValueError, match="'id'"):
        loader_of(dataset, row_ids="id")


def test_a_loader_goes_on_from_its_state_anywhere(dataset: Any) -> None:
    loader = loader_of(dataset)
    whole = ids(loader) + ids(loader)
    for steps in (0, 1, 10, 31, 32, 40):
        loader.set_epoch(0)
        found: list[list[int]] = []
        while len(found) < steps:
            for batch in loader:
                found.append(batch["id"].tolist())
                if len(found) == steps:
                    break
        state = loader.state_dict()
        other = loader_of(dataset)
        other.load_state_dict(state)
        # Whole, because frameworks ask once and keep the answer.
        assert len(other) == 32 and other.steps_left == 32 - steps % 32
        assert found + ids(other) + (ids(other) if steps < 32 else []) == whole


@pytest.mark.parametrize("done", [0, 3, 20, 21, 25, 41])
def test_the_epochs_from_that_of_the_next_batch_are_what_is_left(dataset: Any, done: int) -> None:
    # 21 steps an epoch, and two epochs: a state before the first batch, in mid-epoch and at an epoch's ends.
    def loader() -> rowdex.Loader:
        return rowdex.Loader(dataset, batch_size=50, seed=3, num_replicas=1, rank=0, output="arrow")

    first = loader()
    states = [first.state_dict()]
    whole: list[Any] = []
    for _ in range(first.epoch, 2):
        for batch in first:
            whole.append(batch.row_ids)
            states.append(first.state_dict())
    assert len(whole) == 42
    again = loader()
    again.load_state_dict(states[done])
    assert again.epoch == done // 21
    assert [batch.row_ids for _ in range(again.epoch, 2) for batch in again] == whole[done:]


def test_leaving_an_epoch_drops_its_rest(dataset: Any) -> None:
    loader = loader_of(dataset)
    expected = [ids(loader) for _ in range(2)]
    loader.set_epoch(0)
    batches = iter(loader)
    assert next(batches)["id"].tolist() == expected[0][0]
    assert ids(loader) == expected[1]
    with pytest.raises(RuntimeError, match="another iteration"):
        next(batches)


def test_a_loader_made_with_a_sampler_takes_its_place_and_leaves_it_alone(dataset: Any) -> None:
    sampler = rowdex.DistributedSampler(dataset, 1, 0, seed=7, batch_size=100)
    sampler.load_state_dict(sampler.state_after(4, 2))
    loader = rowdex.Loader(dataset, sampler, output="numpy", nulls="fill")
    assert loader.epoch == 4 and len(loader) == sampler.steps == 11 and loader.steps_left == sampler.steps_left == 8
    assert len(sampler) == 1003 and next(iter(rowdex.Loader(dataset, sampler, output="arrow"))).step == 3
    assert ids(loader) == [batch.row_ids for batch in sampler.batches()]
    assert ids(loader) == [batch.row_ids for batch in sampler.batches()] and loader.epoch == 6
    with pytest.raises(ValueError, match="batch size"):
        rowdex.Loader(dataset, rowdex.DistributedSampler(dataset))
    with pytest.raises(TypeError, match="seed"):
        rowdex.Loader(dataset, sampler, seed=4)


def test_a_prediction_comes_true(dataset: Any) -> None:
    loader = loader_of(dataset, memory=20_000, threads=0)
    told = loader.estimate()
    ids(loader)
    # To the loader, all epochs are one run: it has begun with the next.
    assert loader.stats.decodes >= told.first_passes * 12 * 0.5
    assert told.passes >= 1 and told.peak_bytes <= 30_000 and loader.stats.rows >= ROWS


def test_a_closed_loader_goes_on_where_it_was(dataset: Any) -> None:
    loader = loader_of(dataset)
    expected = [ids(loader) for _ in range(2)]
    loader.set_epoch(0)
    batches = iter(loader)
    assert [next(batches)["id"].tolist() for _ in range(3)] == expected[0][:3]
    state = loader.state_dict()
    loader.close()
    with pytest.raises(rowdex.errors.ClosedError, match="closed"):
        next(batches)
    assert loader.state_dict() == state and loader.epoch == 0 and loader.steps_left == 29
    # As ever, the rest of an epoch that was left is dropped.
    assert ids(loader) == expected[1]
    loader.close()
    loader.close()
    loader.load_state_dict(state)
    assert ids(loader) == expected[0][3:]


def test_a_state_may_be_given_as_the_text_that_it_is(dataset: Any) -> None:
    loader, other = loader_of(dataset), loader_of(dataset)
    next(iter(loader))
    other.load_state_dict(loader.state_dict()["state"])
    assert other.steps_left == 31 and other.state_dict() == loader.state_dict()
    with pytest.raises(ValueError, match="not a state"):
        loader.load_state_dict(["x"])  # type: ignore[arg-type]


def test_an_error_comes_at_its_step_and_the_loader_says_so_again(dataset: Any) -> None:
    loader = loader_of(dataset, nulls="error")
    with pytest.raises(rowdex.errors.SchemaError, match="maybe"):
        next(iter(loader))


@pytest.mark.parametrize("options", [{}, {"map": dict}, {"map": dict, "threads": 0}])
def test_a_value_that_cannot_be_converted_is_an_error_of_its_step_and_no_row_is_passed_over(
    tmp_path: pathlib.Path, options: dict[str, Any]
) -> None:
    column = pa.array([None if row == 650 else row for row in range(1000)], pa.int64())
    pq.write_table(pa.table({"id": column}), tmp_path / "a.parquet", row_group_size=250)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx", progress=False)
    loader = loader_of(rowdex.Dataset(tmp_path / "a.rdx"), batch_size=10, shuffle=False, nulls="error", **options)
    served: list[list[int]] = []
    with pytest.raises(rowdex.errors.SchemaError, match="id"):
        for batch in loader:
            served.append(batch["id"].tolist())
    assert served == [list(range(first, first + 10)) for first in range(0, 650, 10)]
    state = loader.state_dict()
    for _ in range(2):
        with pytest.raises(rowdex.errors.SchemaError, match="id"):
            list(loader)
        assert loader.state_dict() == state
    loader.set_epoch(1)
    loader.close()
    with pytest.raises(rowdex.errors.SchemaError, match="id"):
        list(loader)
    assert loader.state_dict() == state
    loader.load_state_dict(state)
    with pytest.raises(rowdex.errors.SchemaError, match="id"):
        list(loader)
    loader.load_state_dict(loader.sampler.state_after(0, 65))
    assert ids(loader) == [list(range(first, first + 10)) for first in range(660, 1000, 10)]


@pytest.mark.parametrize("options", [{}, {"map": dict}, {"map": dict, "threads": 0}])
def test_a_state_with_nothing_left_of_its_epoch_ends_that_and_the_next_one_comes(
    dataset: Any, options: dict[str, Any]
) -> None:
    kept = rowdex.order.IdSet(ROWS, range(100))
    order: dict[str, Any] = {"order": rowdex.order.Subset("global", kept), "drop_last": "batch"}
    before = loader_of(dataset, batch_size=10, **order)
    batches = iter(before)
    for _ in range(8):
        next(batches)
    loader = loader_of(dataset, batch_size=32, **order, **options)
    loader.load_state_dict(before.state_dict())
    assert loader.steps_left == 0
    found = [ids(loader) for _ in range(3)]
    assert [len(epoch) for epoch in found] == [0, 3, 3]
    again = loader_of(dataset, batch_size=32, **order)
    assert found[1:] == [ids(again) for _ in range(3)][1:]
    steps = loader_of(dataset, batch_size=32, **order)
    steps.load_state_dict(before.state_dict())
    assert [len(list(steps.batch_sampler)) for _ in range(2)] == [0, 3]


def test_an_error_that_was_met_while_looking_ahead_is_not_one_of_the_next_epoch(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": np.arange(400)}), path, row_group_size=100, compression="none", use_dictionary=False)
    rowdex.build(path, tmp_path / "a.rdx", progress=False)
    column, times = pq.ParquetFile(path).metadata.row_group(1).column(0), path.stat()
    with path.open("r+b") as file:
        file.seek(column.data_page_offset)
        file.write(b"\xff" * 20)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    loader = loader_of(rowdex.Dataset(tmp_path / "a.rdx"), batch_size=50, shuffle=False, map=dict, threads=2)
    for epoch in range(3):
        loader.set_epoch(epoch)
        batches = iter(loader)
        assert next(batches)["id"].tolist() == list(range(50))
        if epoch == 1:
            # The one before the damage, which is met while this one is handed out.
            next(batches)
        del batches
    loader.set_epoch(3)
    served = []
    with pytest.raises(rowdex.Error, match="row group 1"):
        for batch in loader:
            served.append(batch["id"][0])
    assert served == [0, 50]


def test_copies_of_a_sampler_serve_what_it_serves(dataset: Any) -> None:
    def resumed(**options: Any) -> rowdex.DistributedSampler:
        sampler = rowdex.DistributedSampler(dataset, 4, 1, batch_size=8, **options)
        state = rowdex.DistributedSampler(dataset, 5, 0, batch_size=8, **options).state_after(5, 9)
        sampler.load_state_dict(state)
        return sampler

    def same(sampler: rowdex.DistributedSampler) -> None:
        copies = [copy.copy(sampler), pickle.loads(pickle.dumps(sampler)), rowdex.Loader(dataset, sampler).sampler]
        assert all(made.state_dict() == sampler.state_dict() for made in copies)
        expected = [list(sampler) for _ in range(2)]
        assert all([list(made) for made in copies] == [expected[0]] * len(copies) for _ in range(1))
        assert all(list(made) == expected[1] for made in copies)

    same(resumed())
    left = resumed()
    list(left)
    left.set_epoch(5)
    same(left)
    earlier = resumed()
    list(earlier)
    earlier.set_epoch(2)
    same(earlier)
    # Where an order never changes, the epoch before has a say in where the next one begins.
    in_order = resumed(shuffle=False)
    list(in_order)
    same(in_order)


def test_outputs_are_named(dataset: Any) -> None:
    with pytest.raises(ValueError, match="'numpy'"):
        loader_of(dataset, output="pandas")
    with pytest.raises(ValueError, match="memory"):
        loader_of(dataset, memory=0)
    assert isinstance(next(iter(loader_of(dataset)))["x"], np.ndarray)


@pytest.mark.parametrize("make", [pa.ListViewArray, pa.LargeListViewArray])
@pytest.mark.parametrize("item", [pa.int32(), pa.float64(), pa.string()])
def test_list_views_of_codes_and_of_items_with_other_names_are_served(
    tmp_path: pathlib.Path, make: Any, item: pa.DataType
) -> None:
    codes = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0, None], pa.int32()), pa.array([1, 2]).cast(item))
    size = pa.int32() if make is pa.ListViewArray else pa.int64()
    written = pa.table({"lists": make.from_arrays(pa.array([0, 2, 3], size), pa.array([2, 1, 1], size), codes)})
    for name, compliant in (("a", True), ("b", False)):
        # The items are called element in one file, and item in the other one.
        pq.write_table(written, tmp_path / f"{name}.parquet", use_compliant_nested_type=compliant)
    for mode in ("strict", "union"):
        rowdex.build(tmp_path, tmp_path / "lists.rdx", schema=mode, overwrite=True)
        with rowdex.Dataset(tmp_path / "lists.rdx") as dataset:
            assert pa.table(dataset)["lists"].to_pylist() == 2 * written["lists"].to_pylist()
            with rowdex.Loader(dataset, batch_size=4, order="sequential", output="arrow") as loader:
                served = [value for batch in loader for value in pa.table(batch)["lists"].to_pylist()]
            assert served == 2 * written["lists"].to_pylist()


@pytest.mark.parametrize("memory", [1, 1 << 20])
def test_list_views_are_served_as_lists_are(tmp_path: pathlib.Path, memory: int) -> None:
    lists = [None if row % 5 == 0 else list(range(row % 4)) for row in range(60)]
    written = pa.table({"row": range(60), "lists": pa.array(lists, pa.list_view(pa.int32()))})
    pq.write_table(written, tmp_path / "views.parquet", row_group_size=17)
    rowdex.build(tmp_path, tmp_path / "views.rdx")
    dataset = rowdex.Dataset(tmp_path / "views.rdx")
    assert [row["lists"] for row in dataset] == lists
    for batch in rowdex.Loader(dataset, batch_size=7, memory=memory, output="numpy", nulls="mask"):
        found = [batch["lists"][place] for place in range(len(batch["lists"]))]
        assert [row if row is None else row.tolist() for row in found] == [lists[row] for row in batch["row"].values]
    for batch in rowdex.Loader(dataset, batch_size=7, memory=memory, output="python"):
        assert batch["lists"] == [lists[row] for row in batch["row"]]
