"""Small tables for notebooks, as HTML."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Protocol

_MOST_ROWS = 40
_TYPES = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64", "z": "binary", "Z": "binary",
    "vz": "binary", "u": "string", "U": "string", "vu": "string", "tdD": "date", "tdm": "date", "+l": "list",
    "+L": "list", "+s": "struct", "+m": "map",
}  # fmt: skip
_STARTS = {
    "d:": "decimal", "w:": "binary of", "+w:": "list of", "ts": "timestamp", "tt": "time", "tD": "duration",
    "ti": "interval",
}  # fmt: skip
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}


class Typed(Protocol):
    """A column, as :class:`rowdex.schema.Field` is one."""

    @property
    def name(self) -> str: ...
    @property
    def format(self) -> str: ...
    @property
    def nullable(self) -> bool: ...
    @property
    def children(self) -> Sequence[Typed]: ...
    @property
    def dictionary(self) -> Typed | None: ...


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table with a caption. All texts are escaped; of many rows the first are shown, and how many more there are."""
    found = list(rows)
    lines = [_line("th", head)] if any(head) else []
    lines += [_line("td", row) for row in found[:_MOST_ROWS]]
    more = len(found) - _MOST_ROWS
    if more > 0:
        lines.append(_line("td", [f"… and {more:,} more"]))
    said = html.escape(caption)
    return f"<table><caption style='text-align: left'>{said}</caption>{''.join(lines)}</table>"


def _line(tag: str, cells: Sequence[str]) -> str:
    # Numbers are compared from line to line, names are read.
    sides = ("left" if at == 0 or not text[:1].isdigit() else "right" for at, text in enumerate(cells))
    of = (f"<{tag} style='text-align: {side}'>{html.escape(text)}</{tag}>" for side, text in zip(sides, cells))
    return f"<tr>{''.join(of)}</tr>"


def type_of(field: Typed) -> str:
    """The type of a column for people: ``list<float32>``."""
    if field.dictionary is not None:
        return f"dictionary<{type_of(field.dictionary)}>"
    kind, _, zone = field.format.partition(":")
    start = next((start for start in _STARTS if field.format.startswith(start)), "")
    name = _TYPES.get(field.format) or _STARTS.get(start, field.format)
    if start in ("d:", "w:", "+w:"):
        size = field.format.removeprefix(start)
        name = f"decimal({size.replace(',', ', ')})" if start == "d:" else f"{name} {size}"
    elif start in ("ts", "tt", "tD"):
        unit = _UNITS.get(kind[2:3], kind[2:3])
        name += f"[{unit}, {zone}]" if zone else f"[{unit}]"
    if not field.children:
        return name
    inner = [type_of(child) for child in field.children]
    if field.format == "+s":
        inner = [f"{child.name}: {text}" for child, text in zip(field.children, inner)]
    return f"{name}<{', '.join(inner)}>"


def columns(fields: Iterable[Typed]) -> list[tuple[str, str, str]]:
    """A line for each column: its name, its type, and whether it may have nulls."""
    return [(field.name, type_of(field), "may be null" if field.nullable else "") for field in fields]


def figure(name: str, value: float) -> str:
    """A number with a unit that its name tells: bytes, seconds or a share."""
    if "bytes" in name or "memory" in name:
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
            if value >= size:
                return f"{value / size:,.1f} {unit}"
        return f"{value:,.0f} B"
    if name in ("planning", "decoding", "extracting", "assembling", "waited"):
        return f"{value:,.3f} s"
    if name == "wait_share":
        return f"{value:.1%}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
