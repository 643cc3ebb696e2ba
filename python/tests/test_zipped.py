"""Columns side by side, compared with the same columns that pyarrow joined into one file."""

from __future__ import annotations

import json
import pathlib
import pickle
import signal
import uuid
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex import Dataset, Loader, MixedDataset, Zipped, order
from rowdex.errors import TransformError, ZipError

from .conftest import run_python
from .random_tables import random_array, random_type

ROWS = 503
BATCHES = [("global", "wrap"), ("torch", "drop"), ("blocks(3)", "uneven"), ("sequential", "wrap")]


class Case(NamedTuple):
    first: Dataset
    other: Dataset
    joined: Dataset

    def zipped(self, **options: Any) -> Zipped:
        return Zipped([self.first, self.other], on="id", **options)


def opened(folder: pathlib.Path, name: str, table: pa.Table, size: int) -> Dataset:
    pq.write_table(table, folder / f"{name}.parquet", row_group_size=size)
    rowdex.build(folder / f"{name}.parquet", folder / f"{name}.rdx")
    return Dataset(folder / f"{name}.rdx", cache="16MiB", threads=1)


def case(folder: pathlib.Path, first: pa.Table, other: pa.Table, sizes: tuple[int, int]) -> Case:
    joined = first
    for field in other.schema:
        joined = joined if field.name == "id" else joined.append_column(field, other[field.name])
    # Orders by row groups go by those of the first.
    tables = {"first": (first, sizes[0]), "other": (other, sizes[1]), "joined": (joined, sizes[0])}
    return Case(*(opened(folder, name, *table) for name, table in tables.items()))


def tables(rows: int) -> tuple[pa.Table, pa.Table]:
    ids, texts = ([f"{name}{row}" for row in range(rows)] for name in ("key ", ""))
    vectors = pa.array([[row, row + 0.5] for row in range(rows)], pa.list_(pa.float32(), 2))
    first = pa.table({"id": ids, "x": range(rows), "label": [row % 3 for row in range(rows)]})
    tokens = [list(range(row % 5)) for row in range(rows)]
    return first, pa.table({"tokens": tokens, "id": ids, "vector": vectors, "text": texts})


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return case(tmp_path_factory.mktemp("zipped"), *tables(ROWS), (64, 37))


def check_equal(served: Any, expected: Any) -> None:
    """Two iterables of batches of ``output="arrow"``."""
    for one, two in zip(served, expected, strict=True):
        told = [(batch.row_ids, batch.num_pads, batch.epoch, batch.step, len(batch)) for batch in (one, two)]
        assert told[0] == told[1]
        # As text NaN is itself.
        assert pa.record_batch(one).equals(pa.record_batch(two)) or repr(one.to_pydict()) == repr(two.to_pydict())


def test_300_random_cases_equal_the_joined_file(tmp_path: pathlib.Path) -> None:
    for number in range(15):
        rng = np.random.default_rng(number)
        rows, folder = int(rng.integers(1, 120)), tmp_path / str(number)
        folder.mkdir()
        keys = random_array(rng, pa.int64() if rng.random() < 0.5 else pa.string(), rows, 0.1)
        columns = {name: random_array(rng, random_type(rng, 2, False), rows, 0.2) for name in "abcd"}
        first, other = ({"id": keys, **{name: columns[name] for name in names}} for names in ("ab", "cd"))
        of = case(folder, pa.table(first), pa.table(other), (int(rng.integers(1, 50)), int(rng.integers(1, 50))))
        zipped, ids = of.zipped(memory_weights=[1, int(rng.integers(1, 9))]), rng.integers(rows, size=20)
        assert repr(zipped[ids].to_pydict()) == repr(of.joined[ids].to_pydict())
        for _ in range(20):
            check_run(rng, of, zipped)


def check_run(rng: np.random.Generator, of: Case, zipped: Zipped) -> None:
    """Some batches of a run, and the rest of the epoch after a resume on other ranks."""
    name, tail = BATCHES[int(rng.integers(len(BATCHES)))]
    common = {"order": name, "tail": tail, "seed": int(rng.integers(9)), "memory": 1 << 20, "output": "arrow"}

    def loaders(*datasets: Dataset) -> list[Loader]:
        world = int(rng.integers(1, 4))
        ranks = {"num_replicas": world, "rank": int(rng.integers(world)), "batch_size": int(rng.integers(1, 33))}
        how = {"threads": int(rng.integers(2)), "map": (lambda batch: batch) if rng.random() < 0.3 else None}
        return [Loader(dataset, **common, **ranks, **how) for dataset in datasets]

    runs = loaders(zipped, of.joined, of.first)
    epoch, stop = int(rng.integers(3)), int(rng.integers(len(runs[0]) + 1))
    for run in runs:
        run.set_epoch(epoch)
    served = [[next(batches) for _ in range(stop)] for batches in map(iter, runs)]
    check_equal(served[0], served[1])
    states = [run.state_dict() for run in runs]
    assert states[0] == states[1] == states[2]
    again = loaders(zipped, of.joined)
    # That of the first dataset alone continues the zip, and that of the zip the other.
    again[0].load_state_dict(states[2])
    again[1].load_state_dict(states[0])
    check_equal(*again)


def test_every_order_and_function_is_that_of_the_joined_file(side: Case) -> None:
    found: dict[Dataset, list[str]] = {side.zipped(): [], side.joined: []}
    for dataset, batches in found.items():
        orders = [order.Explicit([5, 3, 3, 400, 502, 0]), order.Resized("global", size=700)]
        orders += [order.Weighted(dataset.weights("x")), order.Balanced(dataset.labels("label"))]
        orders += [order.Subset("blocks(2)", order.IdSet.split(dataset, "train"))]
        ranks = {"batch_size": 32, "seed": 3, "num_replicas": 2, "rank": 1}
        shared = {"share": rowdex.Share(job=f"{uuid.uuid4()}", name="a", ranks=1), "order": orders[1]}
        functions = {"decode": {"x": str, "text": int}, "row_ids": "row", "pad": {"tokens": 4}}
        for options in (*({**functions, "order": one} for one in orders), shared, {}):
            loader = Loader(dataset, output="numpy", **ranks, **options)
            batches += [repr(batch) for _ in range(2) for batch in loader]
    served, expected = found.values()
    assert served == expected


def test_whole_datasets_are_equal_in_every_form(side: Case) -> None:
    zipped = side.zipped()
    assert zipped.to_arrow().equals(side.joined.to_arrow())
    assert pa.schema(zipped) == pa.schema(side.joined.schema)
    assert list(zipped) == list(side.joined)
    assert pickle.loads(pickle.dumps(zipped))[7] == zipped[7] == side.joined[7]
    assert zipped.counts("label") == side.joined.counts("label")
    assert [place.row_group for place in zipped.locate(-1)] == [502 // 64, 502 // 37]
    assert zipped.verify().problems == [] and zipped.verify().files == 2
    assert list(zipped.select(["vector", "x"])[9].items()) == [("vector", [9, 9.5]), ("x", 9)]
    named = Zipped({"a": side.first, "b": side.other.select(["id", "text"])})
    assert named[2] == {"a.id": "key 2", "a.x": 2, "a.label": 2, "b.id": "key 2", "b.text": "2"}
    assert Zipped([side.first, side.other.select(["text"])], ["text"])[3] == {"text": "3"}
    loader, groups = Loader(zipped, batch_size=64, output="numpy", memory="64MiB"), -(-ROWS // 64) + -(-ROWS // 37)
    assert sum(len(batch["x"]) for batch in loader) == ROWS
    assert loader.stats.decodes == loader.estimate().first_decodes == groups
    assert loader.stats.passes == loader.estimate().first_passes == 1.0
    weighed = (side.zipped(memory_weights=weights) for weights in ([1, 99], [1, 1], [99, 1]))
    assert len({Loader(of, batch_size=8, memory="32KiB").estimate().decodes for of in weighed}) == 3
    with pytest.raises(TransformError, match="other.parquet, row group 13, row 9, column 'text'"):
        decode = {"text": lambda text: 1 / (490 - int(text))}
        list(Loader(zipped, batch_size=9, output="numpy", shuffle=False, decode=decode))
    mixed, shares = [MixedDataset([dataset, dataset]) for dataset in side], order.Mixed([0.3, 0.7], size=900)
    found = (Loader(of, batch_size=50, order=shares, output="arrow") for of in (Zipped(mixed[:2], on="id"), mixed[2]))
    check_equal(*found)


def test_rows_that_do_not_belong_together_are_found(tmp_path: pathlib.Path) -> None:
    first, other = tables(5000)
    places = np.arange(5000)
    places[[1700, 4100]] = [4100, 1700]
    of = case(tmp_path, first, other.take(pa.array(places)), (500, 300))
    zipped, where = of.zipped(), "row id 1700 .* first.parquet, row group 3, .* other.parquet, row group 5, row 200"
    (found,) = zipped.verify().problems
    assert (type(found), found.file, found.row_group) == (ZipError, "first.parquet", 3)
    for options in ({"output": "numpy"}, {"output": "arrow"}, {"output": "python", "map": lambda batch: batch}):
        steps, loader = 0, Loader(zipped, batch_size=16, shuffle=False, **options)
        with pytest.raises(ZipError, match=where):
            for _ in loader:
                steps += 1
        # At its own step, and again.
        assert steps == 1700 // 16
        with pytest.raises(ZipError, match=where):
            next(iter(loader))
    with pytest.raises(ZipError, match=where):
        zipped[[3, 1700]]
    moved = opened(tmp_path, "moved", pa.concat_tables([other.slice(1), other.slice(0, 1)]), 300)
    with pytest.raises(ZipError, match="the rows do not belong together"):
        Zipped([of.first, moved], on="id")
    assert Zipped([of.first, moved.select(["text"])])[0]["text"] == "1"


def test_what_cannot_be_is_refused_with_what_to_write(side: Case, tmp_path: pathlib.Path) -> None:
    zipped, first, shorter = side.zipped(), side.first, opened(tmp_path, "shorter", tables(9)[1], 4)
    for view, where in (("odd", "x % 2 = 1"), ("even", "x % 2 = 0 and x > 0"), ("same", "x % 2 = 1")):
        rowdex.select(side.joined.index.path, tmp_path / f"{view}.rdx", where=where)
    odd, even, same = (Dataset(tmp_path / f"{view}.rdx") for view in ("odd", "even", "same"))
    assert Zipped({"a": odd, "b": same})[9]["b.x"] == 19
    refused: list[tuple[Any, str]] = [
        (lambda: Loader(zipped, batch_size=8, on_error="substitute"), "use 'raise'"),
        (lambda: Loader(zipped, batch_size=8, pack=rowdex.Pack("tokens", capacity=8)), "pad lists with pad="),
        (lambda: zipped.take([1]).sequences(), "use pad= of the Loader"),
        (lambda: Zipped({"a": odd, "b": even}), "Subset"),
        (lambda: Zipped([first, shorter], on="id"), r"\[503\] and \[9\] rows"),
        (lambda: MixedDataset([zipped]), r"Zipped\(\[MixedDataset"),
        (lambda: Zipped([zipped, first]), "all datasets to one Zipped"),
        (lambda: Zipped([first, side.joined.select(["x"])]), "'first.x' and 'second.x'"),
        (lambda: Zipped([first, side.other], memory_weights=[1]), "each of the 2"),
        (lambda: zipped.select(["nowhere"]), "there are id, x, label"),
        (lambda: rowdex.rows_digest(zipped), "one of its datasets"),
    ]
    for wrong, hint in refused:
        with pytest.raises((TypeError, ValueError), match=hint):
            wrong()


KILLED = """
import json, os, signal, sys, rowdex
dataset = rowdex.Zipped([rowdex.Dataset(sys.argv[1]), rowdex.Dataset(sys.argv[2])], on="id")
ranks = {"num_replicas": 3, "rank": int(sys.argv[3]), "tail": "uneven"}
loader = rowdex.Loader(dataset, batch_size=7, seed=8, output="numpy", **ranks)
for step, batch in enumerate(loader):
    print(json.dumps([batch["x"].tolist(), loader.state_dict()]), flush=True)
    if step == 11:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_killed_ranks_are_resumed_by_others_and_every_row_comes_once(side: Case) -> None:
    served, state = list[int](), {}
    for rank in range(3):
        ended = run_python(KILLED, side.first.index.path, side.other.index.path, str(rank))
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        for line in ended.stdout.splitlines():
            rows, state = json.loads(line)
            served += rows
    for rank in range(2):
        ranks = {"num_replicas": 2, "rank": rank, "tail": "uneven"}
        loader = Loader(side.zipped(), batch_size=5, seed=8, output="numpy", **ranks)
        loader.load_state_dict(state)
        served += [row for batch in loader for row in batch["x"].tolist()]
    assert sorted(served) == list(range(ROWS))
