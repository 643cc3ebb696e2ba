"""Arrow arrays as Python values, without any other package."""

from __future__ import annotations

import ctypes
import datetime
import decimal
import struct
from collections.abc import Callable
from typing import Any

from ..errors import SchemaError
from ..schema import Field
from .imports import loaded

_NUMBERS = {"c": "b", "C": "B", "s": "h", "S": "H", "i": "i", "I": "I", "l": "q", "L": "Q", "f": "f", "g": "d"}
_WIDTHS = {"b": 1, "B": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "Q": 8, "f": 4, "d": 8}
_EPOCH = datetime.datetime(1970, 1, 1)
_PER_SECOND = {"s": 1, "m": 10**3, "u": 10**6}


def raw(array: Any, buffer: int, start: int, end: int) -> memoryview:
    """The bytes ``start`` to ``end`` of a buffer, without copying."""
    address = array.buffers[buffer] if array.n_buffers > buffer else None
    return raw_at(address + start, end - start) if address else memoryview(b"")


def raw_at(address: int, length: int) -> memoryview:
    """So many bytes from an address on, without copying."""
    if length <= 0:
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * length).from_address(address)).cast("B")


def _typed(array: Any, buffer: int, code: Any, start: int, count: int) -> list[Any]:
    width = _WIDTHS[code]
    numbers: list[Any] = raw(array, buffer, start * width, (start + count) * width).cast(code).tolist()
    return numbers


def _bits(array: Any, buffer: int, start: int, count: int) -> list[bool]:
    data = raw(array, buffer, start // 8, (start + count + 7) // 8)
    return [bool(data[i >> 3] >> (i & 7) & 1) for i in range(start % 8, start % 8 + count)]


def validity(array: Any, start: int, count: int) -> list[bool] | None:
    """Which of the rows from ``start`` on have a value; ``None`` if all have."""
    if array.null_count == 0 or array.n_buffers == 0 or not array.buffers[0]:
        return None
    return _bits(array, 0, array.offset + start, count)


def values(field: Field, array: Any, start: int, count: int) -> list[Any]:
    """``count`` values from ``start`` on, ``None`` for each null."""
    if field.format == "n":
        return [None] * count
    found = _present(field, array, start, count)
    valid = validity(array, start, count)
    return found if valid is None else [value if there else None for value, there in zip(found, valid)]


def _present(field: Field, array: Any, start: int, count: int) -> list[Any]:
    kind = field.format
    at = array.offset + start
    if field.dictionary is not None:
        categories = array.dictionary.contents
        names = values(field.dictionary, categories, 0, categories.length)
        codes = _typed(array, 1, _NUMBERS[kind], at, count)
        # What is under a null may be any number.
        return [names[code] if 0 <= code < len(names) else None for code in codes]
    if kind in _NUMBERS:
        return _typed(array, 1, _NUMBERS[kind], at, count)
    if kind == "b":
        return _bits(array, 1, at, count)
    if kind == "e":
        return list(struct.unpack(f"{count}e", raw(array, 1, 2 * at, 2 * (at + count))))
    if kind in ("u", "U", "z", "Z"):
        offsets = _typed(array, 1, "i" if kind in "uz" else "q", at, count + 1)
        data = raw(array, 2, offsets[0], offsets[-1]) if offsets else memoryview(b"")
        pieces = (bytes(data[a - offsets[0] : b - offsets[0]]) for a, b in zip(offsets, offsets[1:]))
        return [_text(piece) for piece in pieces] if kind in "uU" else list(pieces)
    if kind in ("vu", "vz"):
        found = views(array, start, count)
        return [_text(piece) for piece in found] if kind == "vu" else list(found)
    if kind.startswith("w:"):
        width = int(kind[2:])
        data = raw(array, 1, at * width, (at + count) * width)
        return [bytes(data[i * width : (i + 1) * width]) for i in range(count)]
    if kind.startswith("d:"):
        return _decimals(kind, array, at, count)
    if kind.startswith("t"):
        return _times(field, array, at, count)
    if kind.startswith("+w:"):
        width = int(kind[3:])
        items = values(field.children[0], array.children[0].contents, at * width, count * width)
        return [items[i * width : (i + 1) * width] for i in range(count)]
    if kind in ("+l", "+L", "+m"):
        offsets = _typed(array, 1, "q" if kind == "+L" else "i", at, count + 1)
        first, last = (offsets[0], offsets[-1]) if offsets else (0, 0)
        items = (_pairs if kind == "+m" else values)(field.children[0], array.children[0].contents, first, last - first)
        return [items[a - first : b - first] for a, b in zip(offsets, offsets[1:])]
    if kind in ("+vl", "+vL"):
        code = "q" if kind == "+vL" else "i"
        starts, lengths = _typed(array, 1, code, at, count), _typed(array, 2, code, at, count)
        valid = validity(array, start, count)
        if valid is not None:
            # What is under a null may be any list.
            lengths = [length if there else 0 for length, there in zip(lengths, valid)]
        last = max((first + length for first, length in zip(starts, lengths) if length), default=0)
        items = values(field.children[0], array.children[0].contents, 0, last)
        return [items[first : first + length] for first, length in zip(starts, lengths)]
    if kind == "+s":
        parts = [values(child, array.children[i].contents, at, count) for i, child in enumerate(field.children)]
        names = [child.name for child in field.children]
        return [dict(zip(names, row)) for row in zip(*parts)] if parts else [{} for _ in range(count)]
    raise SchemaError(f"values of Arrow type {kind!r} have no Python type; take them as Arrow", column=field.name)


def _pairs(entries: Field, array: Any, start: int, count: int) -> list[Any]:
    at = array.offset + start
    parts = [values(child, array.children[i].contents, at, count) for i, child in enumerate(entries.children)]
    return list(zip(*parts))


def _text(piece: bytes) -> str:
    return piece.decode()


def views(array: Any, start: int, count: int) -> list[bytes]:
    """The bytes of strings or binary in Arrow's view layout, empty at each null."""
    at = array.offset + start
    # What is under a null may point anywhere.
    valid = validity(array, start, count)
    data = raw(array, 1, 16 * at, 16 * (at + count))
    found = []
    for i in range(count):
        length, _, buffer, offset = (
            struct.unpack_from("iiii", data, 16 * i) if valid is None or valid[i] else (0, 0, 0, 0)
        )
        inline = data[16 * i + 4 : 16 * i + 4 + length]
        found.append(bytes(inline if length <= 12 else raw(array, 2 + buffer, offset, offset + length)))
    return found


def _decimals(kind: str, array: Any, at: int, count: int) -> list[decimal.Decimal]:
    precision, scale, *bits = map(int, kind[2:].split(","))
    width = (bits[0] if bits else 128) // 8
    data = raw(array, 1, at * width, (at + count) * width)
    context = decimal.Context(prec=max(precision, 80))
    integers = (int.from_bytes(data[i * width : (i + 1) * width], "little", signed=True) for i in range(count))
    return [decimal.Decimal(integer).scaleb(-scale, context) for integer in integers]


def _times(field: Field, array: Any, at: int, count: int) -> list[Any]:
    kind = field.format
    if kind.startswith("ti"):
        raise SchemaError(
            f"column {field.name!r}: intervals have no Python type; take them as Arrow", column=field.name
        )
    code = "i" if kind in ("tdD", "tts", "ttm") else "q"
    numbers = _typed(array, 1, code, at, count)
    # Python's types end at microseconds: nanoseconds stay integers, and lose nothing.
    if kind in ("ttn", "tDn") or kind.startswith("tsn:"):
        return numbers
    valid = validity(array, at - array.offset, count)
    make = _maker(kind)
    try:
        return [make(number) if valid is None or valid[i] else None for i, number in enumerate(numbers)]
    except (OverflowError, ValueError) as error:
        message = (
            f"column {field.name!r}: a date or time that Python's datetime has no room for; "
            "take it as Arrow or to_numpy()"
        )
        raise SchemaError(message, column=field.name) from error


def _maker(kind: str) -> Callable[[int], Any]:
    if kind == "tdD":
        return lambda days: datetime.date(1970, 1, 1) + datetime.timedelta(days=days)
    if kind == "tdm":
        return lambda ms: (_EPOCH + datetime.timedelta(milliseconds=ms)).date()
    scale = 10**6 // _PER_SECOND[kind[2]]

    def since(number: int) -> datetime.timedelta:
        return datetime.timedelta(microseconds=number * scale)

    if kind.startswith("tt"):
        return lambda number: (_EPOCH + since(number)).time()
    if kind.startswith("tD"):
        return since
    if not kind[4:]:
        return lambda number: _EPOCH + since(number)
    zone, start = _zone(kind[4:]), _EPOCH.replace(tzinfo=datetime.timezone.utc)
    return lambda number: (start + since(number)).astimezone(zone)


def _zone(name: str) -> datetime.tzinfo:
    if name.upper() in ("UTC", "+00:00"):
        return datetime.timezone.utc
    if name[:1] in "+-":
        hours, minutes = name[1:].split(":")
        offset = datetime.timedelta(hours=int(hours), minutes=int(minutes))
        return datetime.timezone(offset if name[0] == "+" else -offset)
    zoneinfo = loaded("zoneinfo")
    try:
        zone: datetime.tzinfo = zoneinfo.ZoneInfo(name)
        return zone
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        raise SchemaError(
            f"this machine knows no time zone {name!r}; take the column as Arrow, or install tzdata"
        ) from error
