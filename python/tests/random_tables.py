"""Columns of every type that pyarrow writes to Parquet, nested at random, with nulls at every level."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

Rng = np.random.Generator

NUMBERS = [
    pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.bool_(),
]  # fmt: skip
TIMES = [
    pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("us", "UTC"),
    pa.timestamp("ms", "Europe/Berlin"), pa.timestamp("s", "+05:30"), pa.timestamp("ns", "America/New_York"),
    pa.duration("s"), pa.duration("ms"), pa.duration("us"), pa.duration("ns"),
]  # fmt: skip
DECIMALS = [pa.decimal32(7, 2), pa.decimal64(15, 3), pa.decimal128(30, 4), pa.decimal128(5, 0), pa.decimal256(60, 10)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()]
LEAVES = [*NUMBERS, *TIMES, *DECIMALS, *TEXTS, pa.binary(1), pa.binary(16), pa.null()]
_SECONDS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def random_type(rng: Rng, depth: int, views: bool = True) -> pa.DataType:
    """A type with at most ``depth`` levels of lists, structs and maps, and strings in Arrow's view layout or not."""
    if depth == 0 or rng.random() < 0.3:
        if rng.random() < 0.2:
            values = [pa.string(), pa.binary(), pa.large_string()]
            return pa.dictionary(
                pick(rng, [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32()]), pick(rng, values)
            )
        leaf: pa.DataType = pick(rng, LEAVES if views else [kind for kind in LEAVES if "view" not in str(kind)])
        return leaf

    def below(name: str) -> pa.Field:
        inner = random_type(rng, depth - 1, views)
        return pa.field(name, inner, nullable=bool(rng.random() < 0.7) or pa.types.is_null(inner))

    kind = int(rng.integers(6))
    if kind <= 1:
        return pa.list_(below("element"))
    if kind == 2:
        return pa.large_list(below("element"))
    if kind == 3:
        return pa.list_(below("element"), int(rng.integers(1, 4)))
    if kind == 4:
        key = pick(rng, [pa.string(), pa.int32(), pa.date32()])
        return pa.map_(key, random_type(rng, depth - 1, views))
    return pa.struct([below(name) for name in "abc"[: int(rng.integers(1, 4))]])


def pick(rng: Rng, choices: Any) -> Any:
    """One of them."""
    return choices[int(rng.integers(len(choices)))]


def random_array(rng: Rng, kind: pa.DataType, count: int, nulls: float, nullable: bool = True) -> pa.Array:
    """``count`` values, about a part ``nulls`` of them null."""
    types = pa.types
    nulls_here = nulls if nullable else 0.0
    mask = rng.random(count) < nulls_here
    if types.is_null(kind):
        return pa.nulls(count)
    if types.is_dictionary(kind):
        many = int(rng.integers(1, 100))
        # Not as pa.array does it: some categories are unused, and they are in no order.
        categories = pa.array(
            sorted({*_texts(rng, kind.value_type, many)}, key=lambda _: rng.random()), kind.value_type
        )
        codes = rng.integers(len(categories), size=count).astype(kind.index_type.to_pandas_dtype())
        return pa.DictionaryArray.from_arrays(pa.array(codes, kind.index_type, mask=mask), categories)
    if types.is_map(kind):
        offsets = _offsets(rng, count, np.int32)
        keys = random_array(rng, kind.key_type, int(offsets[-1]), 0.0, False)
        items = random_array(rng, kind.item_type, int(offsets[-1]), nulls)
        return pa.MapArray.from_arrays(_with_nulls(offsets, mask), keys, items, type=kind)
    if types.is_list(kind) or types.is_large_list(kind):
        large = types.is_large_list(kind)
        offsets = _offsets(rng, count, np.int64 if large else np.int32)
        items = random_array(rng, kind.value_type, int(offsets[-1]), nulls, kind.value_field.nullable)
        made = pa.LargeListArray if large else pa.ListArray
        return made.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(mask))
    if types.is_fixed_size_list(kind) and kind.list_size == 0:
        return pa.array([None if null else [] for null in mask], kind)
    if types.is_fixed_size_list(kind):
        items = random_array(rng, kind.value_type, count * kind.list_size, nulls, kind.value_field.nullable)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=pa.array(mask))
    if types.is_struct(kind):
        parts = [random_array(rng, field.type, count, nulls, field.nullable) for field in kind]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=pa.array(mask))
    if types.is_boolean(kind):
        return pa.array(rng.random(count) < 0.5, kind, mask=mask)
    if types.is_integer(kind):
        numpy = np.dtype(kind.to_pandas_dtype())
        bounds = np.iinfo(numpy)
        # Small ranges make dictionaries and runs.
        low, high = (bounds.min, bounds.max) if rng.random() < 0.5 else (0, 100)
        return pa.array(rng.integers(low, high, size=count, dtype=numpy, endpoint=True), kind, mask=mask)
    if types.is_floating(kind):
        values = rng.normal(size=count).astype(kind.to_pandas_dtype())
        special = np.array([np.nan, np.inf, -np.inf, -0.0], values.dtype)
        return pa.array(
            np.where(rng.random(count) < 0.1, special[rng.integers(4, size=count)], values),
            kind,
            mask=mask,
            from_pandas=False,
        )
    if types.is_temporal(kind):
        return _times(rng, kind, count, mask)
    pool = pa.array(_values(rng, kind, int(rng.integers(1, 200))), kind)
    chosen = pa.array(rng.integers(len(pool), size=count), pa.int64(), mask=mask)
    if "view" in str(kind):
        plain = pa.binary() if str(kind) == "binary_view" else pa.string()
        return pool.cast(plain).take(chosen).cast(kind)
    return pool.take(chosen)


def _with_nulls(offsets: Any, mask: Any) -> pa.Array:
    return pa.array(offsets, mask=np.append(mask, False))


def _offsets(rng: Rng, count: int, dtype: Any) -> Any:
    lengths = rng.integers(0, pick(rng, [2, 4, 4, 12]), size=count)
    offsets = np.zeros(count + 1, dtype=dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _times(rng: Rng, kind: pa.DataType, count: int, mask: Any) -> pa.Array:
    day = 86400
    if pa.types.is_time(kind):
        numbers = rng.integers(0, day * _SECONDS[kind.unit], size=count)
    elif pa.types.is_date32(kind):
        numbers = rng.integers(-20000, 40000, size=count)
    elif pa.types.is_date64(kind):
        numbers = rng.integers(-20000, 40000, size=count) * day * 1000
    else:
        numbers = rng.integers(-20000 * day, 40000 * day, size=count) * _SECONDS[kind.unit] + rng.integers(
            _SECONDS[kind.unit], size=count
        )
    return pa.array(numbers, pa.int64() if kind.bit_width == 64 else pa.int32(), mask=mask).view(kind)


def _values(rng: Rng, kind: pa.DataType, count: int) -> list[Any]:
    if pa.types.is_decimal(kind):
        numbers = rng.integers(-(10 ** min(kind.precision, 18)) + 1, 10 ** min(kind.precision, 18), size=count)
        return [Decimal(int(number)).scaleb(-kind.scale) for number in numbers]
    if pa.types.is_fixed_size_binary(kind):
        return [rng.bytes(kind.byte_width) for _ in range(count)]
    return _texts(rng, kind, count)


def _texts(rng: Rng, kind: pa.DataType, count: int) -> list[Any]:
    lengths = rng.integers(0, pick(rng, [3, 14, 40, 40, 2000]), size=count)
    pieces = [rng.bytes(int(length)) for length in lengths]
    if "binary" in str(kind):
        return pieces
    return ["".join("aé中😀 xyz0123456"[byte % 15] for byte in piece) for piece in pieces]
