"""Values are pyarrow's, whichever way they come out."""

from __future__ import annotations

import datetime
import gc
import pathlib
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.native.arrays import joined

from .conftest import REPOSITORY, run_python

CORPUS = REPOSITORY.parent / "shared/data/parquet-testing/data"
FILES = sorted(path.name for path in CORPUS.glob("*.parquet"))


def served(table: pa.Table, folder: pathlib.Path) -> rowdex.Batch:
    """The table, through a file and an index."""
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    rowdex.build(folder / "t.parquet", folder / "t.rdx", overwrite=True)
    batch = rowdex.Dataset(folder / "t.rdx")[:]
    assert isinstance(batch, rowdex.Batch)
    return batch


def plain(array: Any) -> pa.ChunkedArray:
    """Without dictionaries, views and large offsets, of which only the layout differs."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return plain(array.cast(kind.value_type))
    for large, small in [(pa.large_string(), pa.string()), (pa.large_binary(), pa.binary())]:
        if kind == large or str(kind) == f"{small}_view":
            return array.cast(small)
    return array


@pytest.mark.skipif(not FILES, reason="shared/data/parquet-testing is not there")
@pytest.mark.parametrize("name", FILES)
def test_every_corpus_file_that_both_read_has_the_values_of_pyarrow(name: str, tmp_path: pathlib.Path) -> None:
    try:
        expected = pq.ParquetFile(CORPUS / name).read()
        expected.validate(full=True)
    except Exception as error:
        pytest.skip(f"pyarrow does not read it: {str(error)[:80]}")
    try:
        rowdex.build(CORPUS / name, tmp_path / "a.rdx")
        dataset = rowdex.Dataset(tmp_path / "a.rdx")
        batch = dataset[:]
    except (rowdex.errors.FormatError, rowdex.errors.SchemaError) as error:
        pytest.skip(f"rowdex refuses it: {str(error)[:80]}")
    found = pa.table(batch)
    assert found.column_names == expected.column_names and len(found) == len(expected)
    for column in expected.column_names:
        left, right = plain(found[column]), plain(expected[column])
        same = left.equals(right) or left.cast(right.type).equals(right)
        # NaN is not equal to itself; the texts are.
        assert same or str(left.to_pylist()) == str(right.to_pylist()), column
    try:
        values = expected.to_pylist()
    except (ValueError, OverflowError):
        return  # Not even pyarrow has Python values for these.
    nanoseconds = [field.name for field in expected.schema if "[ns" in str(field.type) or "time64" in str(field.type)]
    for ours, theirs in zip(batch.to_pylist(), values):
        for column in theirs:
            if column not in nanoseconds:
                assert repr(ours[column]) == repr(theirs[column]), column


TYPES = {
    "int8": pa.array([1, None, -3], pa.int8()),
    "uint64": pa.array([1, None, 2**64 - 1], pa.uint64()),
    "half": pa.array([np.float16(0.5), None, np.float16(2)], pa.float16()),
    "float": pa.array([0.5, None, float("inf")], pa.float32()),
    "bool": pa.array([True, None, False]),
    "date": pa.array([datetime.date(1969, 7, 20), None, datetime.date(2026, 1, 1)]),
    "time": pa.array([datetime.time(1, 2, 3, 4), None, datetime.time(0)], pa.time64("us")),
    "stamp": pa.array(
        [datetime.datetime(1969, 7, 20, 1, 2, 3), None, datetime.datetime(2026, 1, 1)], pa.timestamp("ms")
    ),
    "utc": pa.array(
        [datetime.datetime(1969, 7, 20, 1, 2, 3), None, datetime.datetime(2026, 1, 1)], pa.timestamp("us", "UTC")
    ),
    "duration": pa.array([datetime.timedelta(seconds=-5), None, datetime.timedelta(days=3)], pa.duration("us")),
    "decimal": pa.array([Decimal("-1.23"), None, Decimal("123456.78")], pa.decimal128(20, 2)),
    "string": pa.array(["a", None, "long enough for no view to hold it"]),
    "binary": pa.array([b"\0", None, b""]),
    "fixed": pa.array([b"abc", None, b"def"], pa.binary(3)),
    "list": pa.array([[1, 2], None, []], pa.list_(pa.int16())),
    "nested": pa.array([[[1], []], None, [None, [2, None]]], pa.list_(pa.list_(pa.int32()))),
    "vector": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float64(), 2)),
    "struct": pa.array([{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int32())),
    "dictionary": pa.array(["x", None, "y"]).dictionary_encode(),
    "null": pa.nulls(3),
}


@pytest.mark.parametrize("kind", TYPES)
def test_python_values_are_those_of_pyarrow(kind: str, tmp_path: pathlib.Path) -> None:
    table = pa.table({"c": TYPES[kind]})
    batch = served(table, tmp_path)
    assert batch.to_pydict() == table.to_pydict()
    assert [batch[i] for i in (0, 1, -1)] == [table.to_pylist()[i] for i in (0, 1, -1)]
    assert pa.table(batch)["c"].to_pylist() == table["c"].to_pylist()
    assert pa.RecordBatchReader.from_stream(batch).read_all().equals(pa.table(batch))


def test_python_values_need_no_numpy(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({name: array for name, array in TYPES.items() if name != "null"}), tmp_path / "t.parquet")
    rowdex.build(tmp_path / "t.parquet", tmp_path / "t.rdx")
    program = """
import sys
sys.modules["numpy"] = None
import rowdex
from rowdex.native.arrays import joined
batch = rowdex.Dataset(sys.argv[1])[:]
assert batch.to_pydict()["uint64"] == [1, None, 2**64 - 1] and len(list(batch)) == 3
assert not {"torch", "pyarrow"} & set(sys.modules)
"""
    done = run_python(program, str(tmp_path / "t.rdx"))
    assert done.returncode == 0, done.stderr


NUMBERS = ["int8", "uint64", "half", "float", "bool", "date", "stamp", "duration"]


@pytest.mark.parametrize("kind", NUMBERS)
def test_numbers_without_nulls_are_numpys(kind: str, tmp_path: pathlib.Path) -> None:
    array = TYPES[kind].drop_null()
    found = served(pa.table({"c": array}), tmp_path).to_numpy()["c"]
    expected = array.to_numpy(zero_copy_only=False)
    assert found.dtype == expected.dtype.newbyteorder("=") and (found == expected).all()


def test_arrays_share_the_memory_of_the_batch_and_outlive_it(dataset: Any) -> None:
    batch = dataset[10:20]
    first, second = batch.to_numpy(["id", "vector"]), batch.to_numpy(["id", "vector"])
    assert np.shares_memory(first["id"], second["id"]) and np.shares_memory(first["vector"], second["vector"])
    del batch, second
    gc.collect()
    assert first["id"].tolist() == list(range(10, 20)) and first["vector"].shape == (10, 3)
    assert first["vector"][4].tolist() == [14, 15, 16]


def test_arrow_that_was_handed_on_outlives_the_dataset(index: str) -> None:
    batch = rowdex.Dataset(index)[5:8]
    capsules = batch.__arrow_c_array__()
    table = pa.table(batch)
    del batch
    gc.collect()
    assert table["id"].to_pylist() == [5, 6, 7]
    assert "arrow_array" in repr(capsules[1])
    del capsules
    gc.collect()


def test_ragged_lists_are_values_and_offsets(dataset: Any, tmp_path: pathlib.Path) -> None:
    tokens = dataset[[3, 0, 2]].to_numpy(["tokens"])["tokens"]
    assert (tokens.values.tolist(), tokens.offsets.tolist()) == ([0, 1, 2, 0, 1], [0, 3, 3, 5])
    assert dataset[[]].to_numpy(["tokens"])["tokens"].offsets.tolist() == [0]
    texts = dataset[[7, 12]].to_numpy(["name"], strings="offsets")["name"]
    assert (bytes(texts.values), texts.offsets.tolist()) == (b"row 7row 12", [0, 5, 11])
    nested = served(
        pa.table({"c": pa.array([[[1], []], [[2, 3]]], pa.list_(pa.list_(pa.int32())))}), tmp_path
    ).to_numpy()["c"]
    assert nested.offsets.tolist() == [0, 2, 3] and nested.values.offsets.tolist() == [0, 1, 1, 3]
    assert nested.values.values.tolist() == [1, 2, 3]


def test_dictionaries_are_codes_and_structs_dicts(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {"d": pa.array(["x", "y", "x"]).dictionary_encode(), "s": pa.array([{"a": i, "b": str(i)} for i in range(3)])}
    )
    found = served(table, tmp_path).to_numpy()
    assert found["d"].categories == ["x", "y"] and found["d"].codes.tolist() == [0, 1, 0]
    assert found["s"]["a"].tolist() == [0, 1, 2] and found["s"]["b"] == ["0", "1", "2"]


@pytest.mark.parametrize("strings", ["list", "offsets"])
def test_a_null_of_a_dictionary_is_filled_with_no_value_of_it(strings: str, tmp_path: pathlib.Path) -> None:
    words = pa.array(["x", None, "y", None]).dictionary_encode()
    numbers = pa.array([1.5, None, 2.5, None]).dictionary_encode()
    lists = pa.array([["x", None], ["y"], None, []], pa.list_(pa.string()))
    lists = lists.cast(pa.list_(pa.dictionary(pa.int32(), pa.string())))
    below = pa.StructArray.from_arrays([words, numbers], ["w", "n"], mask=pa.array([False, False, True, False]))
    table = pa.table({"w": words, "n": numbers, "l": lists, "s": below})
    found = served(table, tmp_path).to_numpy(nulls="fill", strings=strings)
    none: list[int] | None = [] if strings == "offsets" else None

    def values(codes: rowdex.Codes) -> list[object]:
        categories = codes.categories
        if isinstance(categories, rowdex.Ragged):
            ends = categories.offsets.tolist()
            categories = [categories.values[a:b].tolist() for a, b in zip(ends, ends[1:])]
        return [categories[code] for code in codes.codes]

    x, y = ([ord("x")], [ord("y")]) if strings == "offsets" else ("x", "y")
    assert values(found["w"]) == [x, none, y, none]
    assert values(found["l"].values) == [x, none, y] and found["l"].offsets.tolist() == [0, 2, 3, 3, 3]
    assert values(found["s"]["w"]) == [x, none, none, none]
    assert [str(value) for value in values(found["n"])] == ["1.5", "nan", "2.5", "nan"]
    masked = served(table, tmp_path).to_numpy(["w", "l"], nulls="mask", strings=strings)
    assert masked["w"].valid.tolist() == [True, False, True, False]
    assert max(masked["w"].values.codes.tolist()) == 1, "a mask tells the nulls: there is no category for them"
    assert values(masked["l"].values.values) == [x, none, y]


@pytest.mark.parametrize("strings", ["list", "offsets"])
def test_joined_dictionaries_have_the_values_of_their_parts(strings: str, tmp_path: pathlib.Path) -> None:
    batch = served(pa.table({"c": pa.array(["x", "zz", "y", "x"]).dictionary_encode()}), tmp_path)
    whole = batch.to_numpy(strings=strings)["c"]
    both = joined([whole, whole])
    codes, categories = both.codes, both.categories
    if isinstance(categories, rowdex.Ragged):
        ends = categories.offsets.tolist()
        categories = [bytes(categories.values[a:b]).decode() for a, b in zip(ends, ends[1:])]
    assert [categories[code] for code in codes] == ["x", "zz", "y", "x"] * 2


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind != "null"])
def test_nulls_are_an_error_unless_filled_or_masked(kind: str, tmp_path: pathlib.Path) -> None:
    batch = served(pa.table({"c": TYPES[kind]}), tmp_path)
    with pytest.raises(rowdex.errors.SchemaError, match="column 'c'.*null") as error:
        batch.to_numpy()
    assert error.value.column == "c"
    masked = batch.to_numpy(nulls="mask")["c"]
    assert masked.valid.tolist() == [True, False, True]
    filled = batch.to_numpy(nulls="fill")["c"]
    if isinstance(filled, np.ndarray):
        assert (
            (filled[1] == np.zeros((), filled.dtype)).all()
            if filled.dtype.kind in "iub"
            else np.isnat(filled[1]).all()
            if filled.dtype.kind in "mM"
            else np.isnan(filled[1]).all()
        )
    elif isinstance(filled, list):
        assert filled[1] is None and filled[0] == TYPES[kind][0].as_py()
    elif isinstance(filled, rowdex.Ragged):
        assert filled.offsets[1] == filled.offsets[2]


def test_filling_leaves_what_others_share_alone(tmp_path: pathlib.Path) -> None:
    batch = served(pa.table({"c": pa.array([1, None, 3])}), tmp_path)
    before = pa.table(batch)
    assert batch.to_numpy(nulls="fill")["c"].tolist() == [1, 0, 3]
    assert before["c"].to_pylist() == [1, None, 3]


def test_unknown_columns_and_options_are_refused(dataset: Any) -> None:
    batch = dataset[:3]
    with pytest.raises(KeyError, match="labell.*label"):
        batch.to_numpy(["labell"])
    with pytest.raises(ValueError, match="'mask'"):
        batch.to_numpy(nulls="drop")
    with pytest.raises(ValueError, match="'offsets'"):
        batch.to_numpy(strings="bytes")
    with pytest.raises(IndexError):
        batch[3]
    assert batch["label"].tolist() == [0, 1, 2]
