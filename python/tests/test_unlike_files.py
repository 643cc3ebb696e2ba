"""Files of one dataset whose columns differ, and what they would take when they are brought together."""

from __future__ import annotations

import itertools
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import run_python


def built(folder: pathlib.Path, *tables: pa.Table, mode: Any = "strict", **options: Any) -> str:
    """The path of an index over files with these tables."""
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", **options)
    rowdex.build(sorted(folder.glob("*.parquet")), folder / "rows.rdx", schema=mode)
    return str(folder / "rows.rdx")


def rows_of(index: str) -> pa.Table:
    with rowdex.Dataset(index) as dataset:
        return pa.table(dataset[:])


def of_one_name(first: pa.Array, second: pa.Array, nullable: bool = True) -> pa.Table:
    fields = [pa.field("a", first.type, nullable), pa.field("a", second.type)]
    return pa.table({"x": pa.StructArray.from_arrays([first, second], fields=fields)})


def test_fields_of_one_name_in_a_struct_stay_apart(tmp_path: pathlib.Path) -> None:
    numbers = [pa.array([1, 2]), pa.array([3, 4])]
    cases = {
        "dictionaries": [of_one_name(*(array.dictionary_encode() for array in numbers))],
        "required": [of_one_name(numbers[0], numbers[1], nullable=False), of_one_name(*numbers)],
    }
    for name, tables in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        found = rows_of(built(folder, *tables)).column("x").combine_chunks()
        for place, array in enumerate(numbers):
            assert found.field(place).to_pylist() == array.to_pylist() * len(tables), (name, place)


A, AB = pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64()), ("b", pa.string())])
WHOLE = pa.field("element", pa.int32(), nullable=False)
WIDE = WHOLE.with_type(pa.int64())
LISTS: dict[str, list[pa.Array]] = {
    "structs": [
        pa.array([[{"a": 1}], None, []], pa.list_(A)),
        pa.array([[{"a": 2}, None]], pa.large_list(A)),
        pa.array([[{"a": 3, "b": "x"}]], pa.large_list(AB)),
    ],
    "structs in lists of a fixed size": [
        pa.array([[{"a": 1}, None], None], pa.list_(A, 2)),
        pa.array([[{"a": 3, "b": "x"}]], pa.list_(AB)),
        pa.array([None, [{"a": 4, "b": None}] * 3], pa.list_(AB, 3)),
    ],
    "items without nulls": [
        pa.array([None, [1, 2]], pa.list_(WHOLE, 2)),
        pa.array([[3], None], pa.list_(WHOLE)),
        pa.array([None, [4, 5, 6], None], pa.list_(WIDE, 3)),
    ],
    "lists in lists": [
        pa.array([[None, [1, 2]], None], pa.large_list(pa.list_(WHOLE, 2))),
        pa.array([[[3], None]], pa.list_(pa.list_(WHOLE))),
        pa.array([[[4], None]], pa.list_(pa.large_list(WIDE))),
    ],
}


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
def test_lists_of_two_kinds_are_brought_together_whatever_their_items(
    kind: str, order: tuple[int, ...], tmp_path: pathlib.Path
) -> None:
    arrays = [LISTS[kind][number] for number in order]
    index = built(tmp_path, *(pa.table({"x": array}) for array in arrays), mode="union")

    def whole(value: Any) -> Any:
        """With null for a field that a file lacks."""
        if isinstance(value, dict):
            return {"b": None, **value}
        return [whole(item) for item in value] if isinstance(value, list) else value

    wanted = [whole(value) for array in arrays for value in array.to_pylist()]
    with rowdex.Dataset(index) as dataset:
        assert pa.table(dataset[:]).column("x").to_pylist() == wanted
        loader = rowdex.Loader(dataset, batch_size=2, shuffle=False, output="python", rank=0, num_replicas=1)
        assert [value for batch in loader for value in batch["x"]] == wanted
        assert not dataset.verify("deep").problems


def test_dictionaries_without_a_value_below_nulls_are_read(tmp_path: pathlib.Path) -> None:
    coded = pa.field("d", pa.dictionary(pa.int32(), pa.string()), nullable=False)
    items = pa.struct([pa.field("a", pa.struct([coded]), nullable=False)])
    rows = [[None], [], [None, None], None]
    index = built(tmp_path, pa.table({"x": pa.array(rows, pa.list_(items))}))
    assert rows_of(index).column("x").to_pylist() == rows


def test_a_column_without_values_in_one_file_meets_words_that_repeat_in_another(tmp_path: pathlib.Path) -> None:
    words = pa.array(["a", "b", "a"]).dictionary_encode()
    none = pa.nulls(3)
    nested: Any = {
        "word": lambda array: array,
        "struct": lambda array: pa.StructArray.from_arrays([array], names=["w"]),
        "list": lambda array: pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), array),
    }
    for order in ([none, words], [words, none]):
        folder = tmp_path / str(order[0].type == pa.null())
        folder.mkdir()
        tables = [pa.table({name: of(array) for name, of in nested.items()}) for array in order]
        found = rows_of(built(folder, *tables, mode="union"))
        for name in nested:
            expected = [value for table in tables for value in table.column(name).to_pylist()]
            assert found.column(name).to_pylist() == expected, name


# A row alone may have room.
TOO_LARGE = """
import sys
import rowdex
with rowdex.Dataset(sys.argv[1]) as dataset:
    for rows in ([5], range(5, 200, 3), range(len(dataset))):
        try:
            dataset.take(rows)
        except rowdex.errors.TooLargeError as error:
            assert "parquet" in str(error), error
        else:
            assert len(rows) < len(dataset)
"""


@pytest.mark.parametrize("case", ["nulls", "nulls in a struct", "lists of nulls", "words"])
def test_what_files_would_take_together_is_measured_before_it_is_made(case: str, tmp_path: pathlib.Path) -> None:
    rows = 200_000
    ids = pa.array(range(rows))
    if case == "words":
        words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["x" * 1_000_000]))
        tables = [pa.table({"x": words}), pa.table({"x": pa.array(["b"], pa.large_string())})]
    elif case == "nulls in a struct":
        long = pa.field("b", pa.binary(2**31 - 1))
        first = pa.array([{"i": 0, "b": None}], pa.struct([pa.field("i", pa.int64()), long]))
        tables = [pa.table({"x": first}), pa.table({"x": pa.StructArray.from_arrays([ids], names=["i"])})]
    else:
        kind = pa.list_(pa.list_(pa.float64(), 10_000), 10_000) if case == "lists of nulls" else pa.binary(2**31 - 1)
        none = pa.table({"i": pa.array([], pa.int64()), "x": pa.array([], kind)})
        tables = [none, pa.table({"i": ids})]
    index = built(tmp_path, *tables, mode="union", row_group_size=rows)
    done = run_python(TOO_LARGE, index)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_file_whose_positions_of_pages_are_damaged_is_read_without_them(tmp_path: pathlib.Path) -> None:
    ids = np.random.default_rng(0).integers(0, 1 << 60, 20_000)
    plain: Any = {"write_page_index": True, "data_page_size": 1000, "use_dictionary": False, "compression": "none"}
    path = tmp_path / "0.parquet"
    pq.write_table(pa.table({"id": ids}), path, write_batch_size=100, **plain)
    found = bytearray(path.read_bytes())
    footer = len(found) - 8 - int.from_bytes(found[-8:-4], "little")
    # A list of structures, of which the length comes next.
    place = found.rfind(b"\x19\xfc", 0, footer)
    assert place > 0
    found[place : place + 7] = b"\x19\xfc\xff\xff\xff\xff\x07"
    path.write_bytes(found)
    rowdex.build(path, tmp_path / "rows.rdx")
    program = "import sys, rowdex\nprint(rowdex.Dataset(sys.argv[1])[5]['id'], end='')"
    done = run_python(program, str(tmp_path / "rows.rdx"))
    assert (done.returncode, done.stdout) == (0, str(ids[5])), done.stderr[-2000:]
