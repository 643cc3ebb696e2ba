"""Digests of rows as ``docs/digests.md`` specifies them, over pyarrow's values: an implementation of its own."""

from __future__ import annotations

import decimal
import struct
from collections.abc import Sequence

import pyarrow as pa
import xxhash

MODULUS = 1 << 128
_THERE, _NULL = b"\x01", b"\x00"


def of_rows(table: pa.Table, columns: Sequence[str] | None = None) -> list[int]:
    """The digest of each row over these columns, or all."""
    names = sorted(columns if columns is not None else table.column_names, key=str.encode)
    text = b"rowdex rows 1"
    for name in names:
        for part in (name.encode(), kind(table.schema.field(name).type).encode()):
            text += struct.pack("<Q", len(part)) + part
    key = xxhash.xxh3_64_intdigest(text)
    values = [[one for chunk in table.column(name).chunks for one in canonical(chunk)] for name in names]
    return [xxhash.xxh3_128_intdigest(b"".join(row), key) for row in zip(*values, strict=True)]


def of_table(table: pa.Table, columns: Sequence[str] | None = None) -> int:
    """The digest of all rows, whatever their order."""
    return sum(of_rows(table, columns)) % MODULUS


def kind(type_: pa.DataType) -> str:
    """What the values of a type are, as digests are keyed by it."""
    if pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        return kind(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return kind(type_.storage_type)
    if pa.types.is_map(type_):
        return f"map<{kind(type_.key_type)},{kind(type_.item_type)}>"
    if _is_list(type_):
        return f"list<{kind(type_.value_type)}>"
    if pa.types.is_struct(type_):
        fields = sorted((type_.field(at) for at in range(type_.num_fields)), key=lambda field: field.name.encode())
        return f"struct<{','.join(f'{len(f.name.encode())}:{f.name}:{kind(f.type)}' for f in fields)}>"
    if pa.types.is_decimal(type_):
        return f"decimal[{type_.scale}]"
    for test, name in [
        (pa.types.is_null, "null"),
        (pa.types.is_boolean, "bool"),
        (pa.types.is_signed_integer, "int"),
        (pa.types.is_unsigned_integer, "uint"),
        (pa.types.is_float16, "float16"),
        (pa.types.is_float32, "float32"),
        (pa.types.is_float64, "float64"),
        (pa.types.is_date32, "date[d]"),
        (pa.types.is_date64, "date[ms]"),
        (_is_string, "string"),
        (_is_binary, "binary"),
    ]:
        if test(type_):
            return name
    for test, name in [
        (pa.types.is_time, "time"),
        (pa.types.is_timestamp, "timestamp"),
        (pa.types.is_duration, "duration"),
    ]:
        if test(type_):
            return f"{name}[{type_.unit}]"
    raise TypeError(f"values of type {type_} have no digest")


def canonical(array: pa.Array) -> list[bytes]:
    """The canonical bytes of each value."""
    type_ = array.type
    if isinstance(type_, pa.BaseExtensionType):
        return canonical(array.storage)
    if pa.types.is_dictionary(type_):
        return canonical(array.dictionary_decode())
    if pa.types.is_run_end_encoded(type_):
        return canonical(pa.compute.run_end_decode(array))
    there = array.is_valid().to_pylist()
    if pa.types.is_null(type_):
        return [_NULL] * len(array)
    if _is_list(type_) or pa.types.is_map(type_):
        return [_list(array[at].values, type_) if is_there else _NULL for at, is_there in enumerate(there)]
    if pa.types.is_struct(type_):
        places = sorted(range(type_.num_fields), key=lambda at: type_.field(at).name.encode())
        fields = [canonical(array.field(at)) for at in places]
        return [_THERE + b"".join(field[at] for field in fields) if is_there else _NULL
                for at, is_there in enumerate(there)]
    if _is_string(type_) or _is_binary(type_):
        values = array.cast(pa.large_binary()) if not pa.types.is_fixed_size_binary(type_) else array
        return [_NULL if value is None else _sized(value) for value in values.to_pylist()]
    values, width = _fixed(array)
    return [_THERE + value if is_there else bytes(1 + width)
            for value, is_there in zip(values, there, strict=True)]


def _list(elements: pa.Array, type_: pa.DataType) -> bytes:
    if pa.types.is_map(type_):
        keys, items = canonical(elements.field(0)), canonical(elements.field(1))
        values = [_THERE + key + item for key, item in zip(keys, items, strict=True)]
    else:
        values = canonical(elements)
    return _THERE + struct.pack("<Q", len(values)) + b"".join(values)


def _sized(value: bytes) -> bytes:
    return _THERE + struct.pack("<Q", len(value)) + value


def _fixed(array: pa.Array) -> tuple[list[bytes], int]:
    """Values of one length, whatever lies below nulls, and that length."""
    type_ = array.type
    if pa.types.is_boolean(type_):
        return [bytes([bool(value)]) for value in array.to_pylist()], 1
    if pa.types.is_decimal(type_):
        with decimal.localcontext(prec=100):
            scaled = [0 if value is None else int(value.scaleb(type_.scale)) for value in array.to_pylist()]
        return [value.to_bytes(32, "little", signed=True) for value in scaled], 32
    if pa.types.is_floating(type_):
        width = type_.bit_width // 8
        raw = array.buffers()[1]
        data = raw.to_pybytes()[array.offset * width:] if raw is not None else b""
        return [data[at * width:(at + 1) * width] for at in range(len(array))], width
    integer = pa.int32() if type_.bit_width == 32 and not pa.types.is_integer(type_) else None
    if not pa.types.is_integer(type_):
        array = array.view(integer or pa.int64())
    signed = not pa.types.is_unsigned_integer(type_)
    return [(value or 0).to_bytes(8, "little", signed=signed) for value in array.to_pylist()], 8


def _is_list(type_: pa.DataType) -> bool:
    return any(test(type_) for test in (
        pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_list_view,
        pa.types.is_large_list_view,
    ))  # fmt: skip


def _is_string(type_: pa.DataType) -> bool:
    return pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_)


def _is_binary(type_: pa.DataType) -> bool:
    return (
        pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_binary_view(type_)
        or pa.types.is_fixed_size_binary(type_)
    )
