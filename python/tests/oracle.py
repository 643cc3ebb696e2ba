"""Rows of rowdex's outputs as plain values, and the same rows as pyarrow has them.

*Plain* means: numbers, text, bytes, lists and dicts; times as integers in their unit; NaN as a text, so that it equals
itself.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import rowdex

NAN = "NaN"
NAT = -(2**63)


class _Anything:
    """What a null of a dictionary is filled with: the code 0, whatever that means."""

    def __eq__(self, other: object) -> bool:
        return True

    def __repr__(self) -> str:
        return "anything"


ANYTHING = _Anything()


def is_array(kind: pa.DataType) -> bool:
    """Whether a column of this type becomes one array of a fixed shape."""
    types = pa.types
    if types.is_fixed_size_list(kind):
        return is_array(kind.value_type)
    return types.is_primitive(kind) or types.is_boolean(kind) or types.is_fixed_size_binary(kind)


def is_text(kind: pa.DataType) -> bool:
    """Whether values are strings or binary of any length."""
    return str(kind) in ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")


def is_list(kind: pa.DataType) -> bool:
    """Whether values are lists of any length."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind)


def rows(value: Any, kind: pa.DataType, strings: str = "list") -> list[Any]:
    """The rows of a column that came as numpy arrays or as torch tensors."""
    if isinstance(value, rowdex.Masked):
        there = _array(value.valid).tolist()
        return [row if valid else None for row, valid in zip(rows(value.values, kind, strings), there, strict=True)]
    if isinstance(value, rowdex.Codes):
        categories = rows(value.categories, kind.value_type, strings)
        codes = _array(value.codes).tolist()
        # A column of nulls has no categories, and its codes mean nothing.
        return [categories[code] for code in codes] if categories else [None] * len(codes)
    if isinstance(value, rowdex.Ragged):
        ends = _array(value.offsets).tolist()
        if is_text(kind):
            data = _array(value.values).tobytes()
            assert ends[0] == 0 and ends[-1] == len(data)
            return [data[a:b] for a, b in zip(ends, ends[1:])]
        items = rows(value.values, kind.value_type, strings)
        assert ends[0] == 0 and ends[-1] == len(items)
        return [items[a:b] for a, b in zip(ends, ends[1:])]
    if isinstance(value, dict):
        parts = [rows(value[field.name], field.type, strings) for field in kind]
        return [dict(zip(value, row)) for row in zip(*parts, strict=True)]
    if isinstance(value, list):
        return [plain(row) for row in value]
    found = _array(value)
    if pa.types.is_fixed_size_binary(kind):
        return [row.tobytes() for row in found]
    if found.dtype.kind in "mM":
        found = found.view("int64")
    if pa.types.is_fixed_size_list(kind):
        assert found.shape[1] == kind.list_size
        items = rows(found.reshape(-1, *found.shape[2:]), kind.value_type, strings)
        return _pieces(items, kind.list_size, len(found))
    assert found.ndim == 1
    return [plain(row) for row in found.tolist()]


def expected(array: pa.Array, nulls: str, strings: str = "list") -> list[Any]:
    """What :func:`rows` are to be, with ``nulls`` as "fill" or "mask"."""
    kind = array.type
    fill = None if nulls == "mask" else filling(kind, strings)
    there = array.is_valid().to_pylist()
    return [row if valid else fill for row, valid in zip(_present(array, nulls, strings), there, strict=True)]


def _present(array: pa.Array, nulls: str, strings: str) -> list[Any]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        categories = expected(array.dictionary, "fill", strings)
        return [None if code is None else categories[code] for code in array.indices.to_pylist()]
    if is_list(kind):
        ends = array.offsets.to_pylist()
        items = expected(array.values.slice(ends[0], ends[-1] - ends[0]), "fill", strings)
        return [items[a - ends[0] : b - ends[0]] for a, b in zip(ends, ends[1:])]
    if pa.types.is_fixed_size_list(kind) and is_array(kind):
        return _pieces(expected(_items(array), "fill", strings), kind.list_size, len(array))
    if pa.types.is_struct(kind):
        parts = [expected(array.field(i), nulls, strings) for i in range(kind.num_fields)]
        return [dict(zip((field.name for field in kind), row)) for row in zip(*parts, strict=True)]
    if is_text(kind) and strings == "offsets":
        return [row.encode() if isinstance(row, str) else row for row in array.to_pylist()]
    if pa.types.is_temporal(kind):
        wide = kind.bit_width == 64
        return array.view(pa.int64() if wide else pa.int32()).to_pylist()
    return python(array)


def python(array: pa.Array) -> list[Any]:
    """What ``to_pylist`` of rowdex gives: Python's types, with nanoseconds as integers."""
    kind = array.type
    there = array.is_valid().to_pylist()
    if pa.types.is_dictionary(kind):
        categories = python(array.dictionary)
        return [None if code is None else categories[code] for code in array.indices.to_pylist()]
    if pa.types.is_temporal(kind) and getattr(kind, "unit", None) == "ns":
        return array.view(pa.int64()).to_pylist()
    found: list[Any]
    if is_list(kind) or pa.types.is_map(kind):
        ends = array.offsets.to_pylist()
        start, count = ends[0], ends[-1] - ends[0]
        if pa.types.is_map(kind):
            items = list(
                zip(python(array.keys.slice(start, count)), python(array.items.slice(start, count)), strict=True)
            )
        else:
            items = python(array.values.slice(start, count))
        found = [items[a - start : b - start] for a, b in zip(ends, ends[1:])]
    elif pa.types.is_fixed_size_list(kind):
        found = _pieces(python(_items(array)), kind.list_size, len(array))
    elif pa.types.is_struct(kind):
        parts = [python(array.field(i)) for i in range(kind.num_fields)]
        found = [dict(zip((field.name for field in kind), row)) for row in zip(*parts, strict=True)]
    else:
        found = [plain(row) for row in array.to_pylist()]
    return [row if valid else None for row, valid in zip(found, there, strict=True)]


def filling(kind: pa.DataType, strings: str) -> Any:
    """What takes the place of a null."""
    types = pa.types
    if types.is_dictionary(kind):
        return ANYTHING
    if types.is_floating(kind):
        return NAN
    if types.is_boolean(kind):
        return False
    if types.is_integer(kind) or types.is_time(kind):
        return 0
    if types.is_temporal(kind):
        return NAT
    if types.is_fixed_size_binary(kind):
        return bytes(kind.byte_width)
    if is_list(kind):
        return []
    if is_text(kind) and strings == "offsets":
        return b""
    if is_array(kind):
        return [filling(kind.value_type, strings)] * kind.list_size
    if types.is_struct(kind):
        return {field.name: filling(field.type, strings) for field in kind}
    return None


def has_null(array: pa.Array) -> bool:
    """Whether there is a null that an array of numpy's has no room for."""
    kind = array.type
    if array.null_count:
        return True
    if is_list(kind):
        return has_null(array.flatten())
    if pa.types.is_fixed_size_list(kind):
        return has_null(_items(array))
    if pa.types.is_struct(kind):
        return any(has_null(array.field(i)) for i in range(kind.num_fields))
    return pa.types.is_null(kind) and len(array) > 0


def plain(value: Any) -> Any:
    """A Python value of which NaN equals itself."""
    if isinstance(value, float):
        return value if value == value else NAN
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.timezone.utc)
    if value is None or isinstance(
        value, (bool, int, str, bytes, Decimal, datetime.date, datetime.time, datetime.timedelta)
    ):
        return value
    return value.item()  # numpy's float16


def _array(value: Any) -> Any:
    return value if hasattr(value, "dtype") and not hasattr(value, "numpy") else value.numpy()


def _items(array: pa.Array) -> pa.Array:
    width = array.type.list_size
    return array.values.slice(array.offset * width, len(array) * width)


def _pieces(items: list[Any], width: int, count: int) -> list[list[Any]]:
    return [items[i * width : (i + 1) * width] for i in range(count)]
