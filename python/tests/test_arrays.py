"""Arrow arrays of every type as numpy arrays, torch tensors and Python values: slices of arrays, and parts of what was
converted at once."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rowdex
from rowdex import native
from rowdex.native import arrays as _arrays
from rowdex.native import values as _values
from rowdex.schema import _field

from . import oracle
from .random_tables import DECIMALS, LEAVES, random_array, random_type

ROWS = 24
DICTIONARY = pa.dictionary(pa.int8(), pa.string())
PARTS = [pa.int32(), pa.float32(), pa.timestamp("us"), pa.string(), pa.binary(3), DECIMALS[2], DICTIONARY, pa.null()]
STRUCT = pa.struct([("x", pa.int8()), ("y", pa.string()), ("z", pa.list_(pa.int16()))])
NESTED = [
    shape(part)
    for part in [*PARTS, STRUCT, pa.list_(pa.int64()), pa.list_(pa.bool_(), 2)]
    for shape in (
        pa.list_,
        pa.large_list,
        lambda part: pa.list_(part, 3),
        lambda part: pa.list_(part, 1),
        lambda part: pa.struct([("a", part), ("b", pa.int8())]),
    )
]
MAPS = [
    pa.map_(pa.string(), pa.int32()),
    pa.map_(pa.int64(), pa.list_(DICTIONARY)),
    pa.list_(pa.map_(pa.string(), pa.float64())),
]
EMPTY = [pa.list_(pa.int32(), 0), pa.list_(pa.string(), 0)]
TYPES = [*LEAVES, DICTIONARY, *NESTED, *MAPS, *EMPTY]
RANDOM = [random_type(np.random.default_rng(seed), 3) for seed in range(24)]


class Exported:
    """An array that pyarrow handed over by the C data interface."""

    def __init__(self, array: pa.Array) -> None:
        self.array, self.schema = native.ArrowArray(), native.ArrowSchema()
        array._export_to_c(ctypes.addressof(self.array), ctypes.addressof(self.schema))
        self.field = _field(self.schema)
        self.schema.release(ctypes.addressof(self.schema))

    def __del__(self) -> None:
        self.array.release(ctypes.addressof(self.array))


def arrays(kind: pa.DataType, nulls: float) -> list[pa.Array]:
    """An array, slices of it, and the cases at the edge."""
    whole = random_array(np.random.default_rng(11), kind, ROWS, nulls)
    return [
        whole,
        whole.slice(7, 20),
        whole.slice(3, 30).slice(9, 13),
        whole.slice(ROWS - 1),
        whole.slice(5, 0),
        pa.array([], kind),
    ]


@pytest.mark.parametrize("kind", [*TYPES, *RANDOM], ids=str)
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_values_of_every_type_are_pyarrows(kind: pa.DataType, nulls: float) -> None:
    for array in arrays(kind, nulls):
        exported = Exported(array)
        # A part of it, as a batch of rows that lies within a larger array.
        for start, count in [(0, len(array)), (len(array) // 3, len(array) // 2)]:
            part = array.slice(start, count)
            found = _values.values(exported.field, exported.array, start, count)
            assert [oracle.plain(row) for row in found] == oracle.python(part)
            for strings in ("list", "offsets"):
                check(exported, part, start, count, strings)


def check(exported: Exported, part: pa.Array, start: int, count: int, strings: str) -> None:
    kind = part.type
    for nulls in ("fill", "mask", "error"):
        read = _arrays.reader(exported.field, nulls, strings)  # type: ignore[arg-type]
        if nulls == "error" and oracle.has_null(part):
            with pytest.raises(rowdex.errors.SchemaError, match="null"):
                read(exported.array, exported, start, count)
            continue
        value = read(exported.array, exported, start, count)
        expected = oracle.expected(part, nulls, strings)
        assert oracle.rows(value, kind, strings) == expected
        for size in (1, 3, count + 1):
            pieces = _arrays.split(value, size, count)
            assert len(pieces) == -(-count // size)
            joined = [row for piece in pieces for row in oracle.rows(piece, kind, strings)]
            assert joined == expected, (nulls, size)


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("part", [*PARTS, STRUCT, pa.list_(pa.int64()), pa.list_(pa.bool_(), 2), MAPS[0]], ids=str)
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_list_views_in_any_order_are_the_lists(part: pa.DataType, nulls: float, large: bool) -> None:
    rng = np.random.default_rng(13)
    lists = random_array(rng, pa.large_list(part) if large else pa.list_(part), ROWS, nulls)
    # In another order, some twice, and with items that nobody has.
    order = rng.integers(ROWS, size=2 * ROWS)
    starts, sizes = lists.offsets.to_numpy(), np.diff(lists.offsets.to_numpy())
    mask = lists.is_null().to_numpy(zero_copy_only=False)[order]
    # What is under a null may be any list.
    sizes = np.where(mask, 10**6, sizes[order])
    made = pa.LargeListViewArray if large else pa.ListViewArray
    width = pa.int64() if large else pa.int32()
    views = made.from_arrays(
        pa.array(starts[:-1][order], width), pa.array(sizes, width), lists.values, mask=pa.array(mask)
    )
    wanted = lists.take(pa.array(order))
    for start, count in [(0, len(order)), (7, 20), (len(order) - 1, 1), (5, 0)]:
        exported = Exported(views.slice(start, count))
        same = wanted.slice(start, count)
        found = _values.values(exported.field, exported.array, 0, count)
        assert [oracle.plain(row) for row in found] == oracle.python(same)
        if not oracle.has_null(lists) or oracle.has_null(same):
            check(exported, same, 0, count, "list")


@pytest.mark.parametrize("kind", [*TYPES, *RANDOM], ids=str)
def test_tensors_of_every_type_are_the_arrays(kind: pa.DataType) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    array = random_array(np.random.default_rng(12), kind, ROWS, 0.2).slice(2, 30)
    exported = Exported(array)
    for strings in ("list", "offsets"):
        for nulls in ("fill", "mask"):
            value = _arrays.to_torch(
                _arrays.reader(exported.field, nulls, strings)(exported.array, exported, 0, len(array))
            )  # type: ignore[arg-type]
            expected = oracle.expected(array, nulls, strings)
            assert oracle.rows(value, kind, strings) == expected
            for size in (1, 4, len(array)):
                pieces = _arrays.split(value, size, len(array))
                assert [row for piece in pieces for row in oracle.rows(piece, kind, strings)] == expected, (nulls, size)


def test_parts_of_numbers_share_their_memory() -> None:
    array = random_array(np.random.default_rng(1), pa.list_(pa.int64()), 20, 0.0)
    exported = Exported(array)
    value: Any = _arrays.reader(exported.field, "error", "list")(exported.array, exported, 0, 20)
    pieces = _arrays.split(value, 6, 20)
    assert all(np.shares_memory(piece.values, value.values) for piece in pieces if len(piece.values))
    assert np.shares_memory(value.values, np.frombuffer(array.values.buffers()[1], dtype="int64"))


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_lists_are_padded_to_one_length(output: str) -> None:
    if output == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed")

    def ragged(array: pa.Array) -> Any:
        exported = Exported(array)
        value = _arrays.reader(exported.field, "error", "list")(exported.array, exported, 0, len(array))
        return _arrays.to_torch(value) if output == "torch" else value

    lists = ragged(pa.array([[9], [], [1, 2, 3], [4, 5]], pa.list_(pa.int32())).slice(1))
    assert lists.padded().tolist() == [[0, 0, 0], [1, 2, 3], [4, 5, 0]]
    assert lists.padded(-1, length=4).tolist() == [[-1, -1, -1, -1], [1, 2, 3, -1], [4, 5, -1, -1]]
    assert str(lists.padded().dtype).endswith("int32")
    with pytest.raises(ValueError, match="3 items is longer than 2"):
        lists.padded(length=2)
    pairs = ragged(pa.array([[[1, 2]], [], [[3, 4], [5, 6]]], pa.list_(pa.list_(pa.int8(), 2))))
    assert pairs.padded().tolist() == [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 4], [5, 6]]]
    empty = ragged(pa.array([], pa.list_(pa.float32())))
    assert tuple(empty.padded().shape) == (0, 0) and tuple(empty.padded(length=3).shape) == (0, 3)
    with pytest.raises(ValueError, match="numbers"):
        ragged(pa.array([["a"]], pa.list_(pa.string()))).padded()
