"""What a notebook shows of rows, columns and files, as tables."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

ROWS = 5
"""How many rows, or files, are shown."""
COLUMNS = 20
"""How many columns are shown."""
TEXT = 60
"""How long a value may be, in characters."""

SCALARS = {
    "n": "null", "b": "bool", "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32",
    "l": "int64", "L": "uint64", "e": "float16", "f": "float32", "g": "float64", "z": "binary", "Z": "large_binary",
    "u": "string", "U": "large_string", "vz": "binary_view", "vu": "string_view", "tdD": "date32", "tdm": "date64",
    "tts": "time32[s]", "ttm": "time32[ms]", "ttu": "time64[us]", "ttn": "time64[ns]", "tDs": "duration[s]",
    "tDm": "duration[ms]", "tDu": "duration[us]", "tDn": "duration[ns]",
}  # fmt: skip
"""Types that have no parts, by their format strings."""


def type_name(field: Any) -> str:
    """The type of a :class:`rowdex.schema.Field`, as Arrow's libraries write it; its format string if it is rare."""
    if field.dictionary is not None:
        return f"dictionary<{type_name(field.dictionary)}>"
    kind, _, rest = field.format.partition(":")
    parts = [type_name(part) for part in field.children]
    if kind in ("+l", "+L", "+vl", "+vL"):
        return f"list<{parts[0]}>"
    if kind == "+w":
        return f"list<{parts[0]}>[{rest}]"
    if kind == "+s":
        return f"struct<{', '.join(f'{part.name}: {name}' for part, name in zip(field.children, parts))}>"
    if kind == "+m":
        return f"map<{', '.join(type_name(part) for part in field.children[0].children)}>"
    if kind == "w":
        return f"binary[{rest}]"
    if kind == "d":
        return f"decimal({rest.replace(',', ', ')})"
    if kind[:2] == "ts":
        unit = {"s": "s", "m": "ms", "u": "us", "n": "ns"}[kind[2]]
        return f"timestamp[{unit}{', ' + rest if rest else ''}]"
    return SCALARS.get(kind) or str(field.format)


def columns_of(rows: Iterable[Mapping[str, Any]], fields: Sequence[Any], caption: str) -> str:
    """The first columns of rows, below their names and types."""
    shown = fields[:COLUMNS]
    if len(shown) < len(fields):
        caption += f"; {len(fields) - len(shown)} more columns"
    head = [f"{field.name}\n{type_name(field)}" for field in shown]
    return table(head, [[row[field.name] for field in shown] for row in rows], caption)


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], caption: str) -> str:
    """A table of HTML that is scrolled where it is too wide."""
    lines = [_row("th", head)] if head else []
    lines += [_row("td", [_text(value) for value in row]) for row in rows]
    return (
        f'<div style="overflow-x:auto"><div>{html.escape(caption)}</div>'
        f'<table style="font-size:13px">{"".join(lines)}</table></div>'
    )


def _row(tag: str, cells: Iterable[str]) -> str:
    style = "text-align:left;vertical-align:top"
    written = (html.escape(cell).replace("\n", "<br>") for cell in cells)
    return f"<tr>{''.join(f'<{tag} style={style!r}>{cell}</{tag}>' for cell in written)}</tr>"


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value[:TEXT] if isinstance(value, (bytes, list)) else value)
    return text if len(text) <= TEXT else text[: TEXT - 1] + "…"


__all__ = ["columns_of", "table", "type_name"]
