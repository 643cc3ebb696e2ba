"""Rows by their row id."""

from __future__ import annotations

import copy
import os
import pathlib
import pickle
import shutil
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import ROWS, run_python


def test_a_row_is_a_dict_of_python_values(dataset: Any, table: pa.Table) -> None:
    assert len(dataset) == ROWS
    for row in (0, 99, 100, 334, 335, ROWS - 1, -1, -ROWS, np.int64(7)):
        assert dataset[row] == table.slice(int(row) % ROWS, 1).to_pylist()[0]


@pytest.mark.parametrize(
    "rows",
    [
        [5, 1, 5, 1002],
        (3,),
        range(990, 1003),
        slice(10, 40, 7),
        slice(None, None, -1),
        [-1, 0],
        [],
        np.array([4, 900, -3]),
        np.array([], int),
    ],
    ids=repr,
)
def test_several_rows_come_in_the_order_asked(dataset: Any, table: pa.Table, rows: Any) -> None:
    ids = range(ROWS)[rows] if isinstance(rows, slice) else [range(ROWS)[int(row)] for row in rows]
    batch = dataset[rows]
    assert pa.table(batch).equals(table.take(pa.array(ids, pa.int64())))
    assert (len(batch), batch.row_ids) == (len(ids), list(ids))


def test_a_mask_chooses_rows(dataset: Any) -> None:
    mask = np.zeros(ROWS, dtype=bool)
    mask[[3, 700]] = True
    assert dataset[mask].row_ids == [3, 700]
    with pytest.raises(IndexError):
        dataset[mask[:-1]]


def test_many_rows_at_once_and_iteration_give_every_row(dataset: Any, table: pa.Table) -> None:
    ids = np.random.default_rng(0).integers(0, ROWS, 70_000)
    assert pa.table(dataset.take(ids))["id"].to_pylist() == ids.tolist()
    assert list(dataset) == table.to_pylist()
    assert dataset.__getitems__([3, 4]) == table.slice(3, 2).to_pylist()


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, 2**64, 2**63, -(2**70)])
def test_a_row_that_is_not_there_is_an_index_error(dataset: Any, row: int) -> None:
    for rows in (row, [0, row]):
        with pytest.raises(IndexError, match="row id"):
            dataset[rows]


@pytest.mark.parametrize("rows", ["a", 1.5, [1.5], None, np.array([1.5]), ["7"]])
def test_what_is_no_row_id_is_a_type_error(dataset: Any, rows: Any) -> None:
    with pytest.raises(TypeError):
        dataset[rows]


def test_columns_are_chosen_in_order(index: str, table: pa.Table) -> None:
    dataset = rowdex.Dataset(index, ["label", "id"])
    assert dataset.column_names == ["label", "id"]
    assert pa.table(dataset[:]).equals(table.select(["label", "id"]))
    assert dataset.select(["name"])[7] == {"name": "row 7"}
    with pytest.raises(ValueError, match="labell"):
        rowdex.Dataset(index, ["labell"])
    with pytest.raises(TypeError):
        rowdex.Dataset(index, "label")
    assert rowdex.Dataset(index, [])[3] == {}


def test_a_pickle_has_the_arguments_and_is_less_than_a_kilobyte(index: str) -> None:
    dataset = rowdex.Dataset(index, ["id", "name"], cache=1 << 20, threads=1)
    dataset[5]
    data = pickle.dumps(dataset)
    assert len(data) < 1000
    for other in (pickle.loads(data), copy.copy(dataset)):
        assert other[5] == {"id": 5, "name": "row 5"} and repr(other) == repr(dataset)


def test_repr_says_what_it_is(dataset: Any, index: str) -> None:
    assert (
        repr(dataset) == f"Dataset({index!r}, 1003 rows, columns id, x, label, vector, features, tokens, name, maybe)"
    )


def test_all_rows_are_a_table_or_a_frame_in_their_order(dataset: Any, table: pa.Table) -> None:
    some = dataset.select(["name", "id"])
    assert some.to_arrow().equals(table.select(["name", "id"]))
    frame = pytest.importorskip("pandas").DataFrame
    assert isinstance(some.to_pandas(), frame) and some.to_pandas().to_dict("list") == some.to_arrow().to_pydict()
    pytest.importorskip("polars")
    assert some.to_polars().to_dict(as_series=False) == some.to_arrow().to_pydict()


def test_a_closed_dataset_opens_again_when_it_is_used(index: str) -> None:
    with rowdex.Dataset(index) as dataset:
        dataset[0]
    assert dataset[1]["id"] == 1


def test_another_index_at_the_path_is_not_taken_for_the_one_that_was_opened(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "train.rdx"
    rowdex.build([folder / "part-0.parquet", folder / "part-1.parquet"], path)
    data = pickle.dumps(rowdex.Dataset(path))
    rowdex.build(folder / "part-1.parquet", path, overwrite=True)
    with pytest.raises(rowdex.errors.StaleError, match="train.rdx"):
        len(pickle.loads(data))


def test_a_changed_file_is_stale_and_a_damaged_one_a_format_error(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copy(folder / "part-0.parquet", tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(rowdex.errors.StaleError) as stale:
        rowdex.Dataset(tmp_path / "a.rdx")[0]
    assert stale.value.file == "a.parquet" and stale.value.hint and isinstance(stale.value, OSError)
    data = bytearray((folder / "part-0.parquet").read_bytes())
    data[4:5000] = bytes(4996)
    (tmp_path / "b.parquet").write_bytes(data)
    rowdex.build(tmp_path / "b.parquet", tmp_path / "b.rdx")
    with pytest.raises(rowdex.errors.FormatError) as damaged:
        rowdex.Dataset(tmp_path / "b.rdx")[0]
    assert (damaged.value.file, damaged.value.row_group) == ("b.parquet", 0) and isinstance(damaged.value, ValueError)


def test_verify_reports_all_bad_files(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for name in ("a", "b", "c"):
        shutil.copy(folder / "part-0.parquet", tmp_path / f"{name}.parquet")
    rowdex.build(tmp_path, tmp_path / "all.rdx")
    dataset = rowdex.Dataset(tmp_path / "all.rdx")
    assert dataset.verify("deep") == (3, 3 * 335, [])
    os.remove(tmp_path / "b.parquet")
    report = dataset.verify()
    assert [type(problem) for problem in report.problems] == [rowdex.errors.NotFoundError] and report.problems[
        0
    ].file == "b.parquet"


def test_misuse_says_what_to_do(index: str, tmp_path: pathlib.Path, folder: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match="none.rdx"):
        rowdex.Dataset(tmp_path / "none.rdx")
    (tmp_path / "bad.rdx").write_bytes(b"not an index")
    with pytest.raises(rowdex.errors.FormatError):
        rowdex.Index(tmp_path / "bad.rdx")
    with pytest.raises(FileExistsError):
        rowdex.build(folder, index)
    with pytest.raises(ValueError, match="stat"):
        rowdex.Dataset(index, check="sometimes")  # type: ignore[arg-type]
    for arguments in ({"cache": 0}, {"cache": -1}, {"threads": -1}, {"max_decoded": 2**64}):
        with pytest.raises(ValueError):
            rowdex.Dataset(index, **arguments)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="NUL"):
        rowdex.Dataset("a\0b")
    with pytest.raises(MemoryError):
        rowdex.Dataset(index, max_decoded=1)[0]


def test_errors_survive_pickling() -> None:
    error = rowdex.errors.StaleError("it changed", file="a.parquet", row_group=3, hint="build it again")
    copied = pickle.loads(pickle.dumps(error))
    assert type(copied) is rowdex.errors.StaleError and str(copied) == "it changed"
    assert (copied.file, copied.row_group, copied.column, copied.hint) == ("a.parquet", 3, None, "build it again")


def test_an_index_knows_where_rows_are(index: str, folder: pathlib.Path) -> None:
    found = rowdex.Index(index)
    assert len(found) == ROWS and found.num_row_groups == 12
    assert found.locate(0) == ("part-0.parquet", 0, 0)
    assert found.locate(335 + 150) == ("part-1.parquet", 1, 50)
    assert found.locate(-1) == ("part-2.parquet", 3, 32)
    assert [(file.path, file.first_row, file.rows, file.row_groups) for file in found.files] == [
        ("part-0.parquet", 0, 335, 4), ("part-1.parquet", 335, 335, 4), ("part-2.parquet", 670, 333, 4),
    ]  # fmt: skip
    assert pa.schema(found.schema).names == found.schema.names
    found.verify()
    with pytest.raises(IndexError):
        found.locate(ROWS)
    assert pickle.loads(pickle.dumps(found)).fingerprint == found.fingerprint
    assert len(rowdex.Dataset(found)) == ROWS


def test_build_tells_how_far_it_is_and_passes_on_what_its_listener_raises(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    told: list[tuple[int, int, int]] = []
    report = rowdex.build(folder, tmp_path / "a.rdx", progress=lambda *done: told.append(done))
    assert told[-1] == (3, 3, ROWS) and (report.files, report.rows, report.row_groups) == (3, ROWS, 12)
    assert rowdex.build([str(folder)], tmp_path / "a.rdx", update=True).kept_files == 3

    def refuse(*_: int) -> None:
        raise KeyError("no more")

    with pytest.raises(KeyError):
        rowdex.build(folder, tmp_path / "b.rdx", progress=refuse)


def test_a_forked_child_leaves_what_it_inherited_alone_and_reads_the_same(index: str) -> None:
    program = """
import os, sys, rowdex
dataset = rowdex.Dataset(sys.argv[1])
loader = rowdex.Loader(dataset, batch_size=10, output="arrow")
rows = dataset[[1, 500]].to_pylist()
batches = iter(loader)
next(batches)
inherited = {dataset._opened.get().address, loader._loader.get()._handle.address}
pid = os.fork()
if pid == 0:
    assert dataset[[1, 500]].to_pylist() == rows
    assert dataset._opened.get().address not in inherited
    try:
        next(batches)
    except rowdex.errors.ClosedError:
        pass
    else:
        raise AssertionError("a child goes on with its parent's iteration")
    assert len(next(iter(loader)).row_ids) == 10
    assert loader._loader.get()._handle.address not in inherited
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert dataset[[1, 500]].to_pylist() == rows and len(next(batches).row_ids) == 10
"""
    done = run_python(program, index)
    assert done.returncode == 0, done.stderr


def test_rows_of_numpy_are_those_of_python(index: str, table: pa.Table) -> None:
    samples = rowdex.Dataset(index).take([5, 3, -1]).to_numpy_rows()
    for sample, row in zip(samples, [5, 3, ROWS - 1]):
        assert list(sample) == table.column_names
        for name, value in sample.items():
            expected = table[name][row].as_py()
            assert (value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value) == expected, name
        assert type(sample["x"]) is np.float32 and sample["vector"].dtype == np.int32
    assert (samples[1]["maybe"], samples[0]["maybe"]) == (None, 5)


def test_numpy_samples_of_dictionaries_structs_and_nulls_are_those_of_python(tmp_path: pathlib.Path) -> None:
    kind = pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))])
    table = pa.table(
        {
            "city": pa.array(["x", None, "y", "x"]).dictionary_encode(),
            "part": pa.array([{"a": 1, "b": ["p"]}, None, {"a": None, "b": None}, {"a": 4, "b": []}], kind),
            "day": pa.array([0, 1, None, 3], pa.date32()),
            "deep": pa.array([[[1], [2, 3]], [], None, [[]]], pa.list_(pa.list_(pa.int32()))),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    samples = rowdex.Dataset(tmp_path / "a.rdx").take(range(4)).to_numpy_rows()

    def plain(value: object) -> object:
        if isinstance(value, rowdex.Ragged):
            ends = value.offsets.tolist()
            return [plain(value.values[start:end]) for start, end in zip(ends, ends[1:])]
        if isinstance(value, dict):
            return {name: plain(part) for name, part in value.items()}
        return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value

    assert [plain(sample) for sample in samples] == table.to_pylist()


def test_numpy_samples_have_none_for_a_null_wherever_it_is_and_are_alike_in_any_batch(tmp_path: pathlib.Path) -> None:
    lists, pairs = pa.list_(pa.int64()), pa.list_(pa.float32(), 2)
    table = pa.table(
        {
            "ids": pa.array([[1, None, 3], [4, 5], None, []], lists),
            "pair": pa.array([[1, 2], [None, 4], None, [5, 6]], pairs),
            "deep": pa.array([[[1], [2, None]], [[3]], None, []], pa.list_(lists)),
            "part": pa.array([{"a": [None]}, {"a": [1]}, {"a": None}, None], pa.struct([("a", lists)])),
            "flags": pa.array([[True, None], [False], [], None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    dataset = rowdex.Dataset(tmp_path / "a.rdx")
    samples = dataset.take(range(4)).to_numpy_rows()
    assert [[str(value) for value in sample.values()] for sample in samples] == [
        [str(value) for value in dataset.take([row]).to_numpy_rows()[0].values()] for row in range(4)
    ]
    for sample, row in zip(samples, table.to_pylist()):
        for name in ("ids", "pair", "flags"):
            value = sample[name]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == row[name]
            assert isinstance(value, np.ndarray) == (row[name] is not None and None not in row[name])
    assert samples[0]["deep"] == [[1], [2, None]] and samples[1]["deep"][0].tolist() == [3]
    assert samples[0]["part"] == {"a": [None]} and samples[1]["part"]["a"].tolist() == [1]
