"""Columns and their types, as the Arrow C data interface spells them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _capsule, _ffi


def column_list(columns: Any) -> list[str]:
    """The names of columns that were asked for."""
    several = isinstance(columns, Iterable) and not isinstance(columns, (str, bytes))
    found: list[Any] = list(columns) if several else [None]
    if not all(isinstance(name, str) for name in found):
        raise TypeError(f"columns={columns!r}: give a list of names")
    return found


class Field(NamedTuple):
    """A column, or a part of a nested one.

    Attributes:
        name: Its name.
        format: Its type, in the `format strings <https://arrow.apache.org/docs/format/CDataInterface.html>`_ of Arrow:
            ``"l"`` is int64.
        nullable: Whether there may be nulls.
        children: The parts of a nested type.
        dictionary: The type of the categories, if the values are codes.
    """

    name: str
    format: str
    nullable: bool
    children: tuple[Field, ...]
    dictionary: Field | None


class Schema:
    """The columns of a dataset. Takes part in the Arrow PyCapsule protocol: ``pyarrow.schema(schema)`` works."""

    def __init__(self, export: Any) -> None:
        """``export`` fills an ``ArrowSchema``; it is called once for each consumer."""
        self._export = export
        schema = _ffi.ArrowSchema()
        export(schema)
        try:
            self._fields = _field(schema).children
        finally:
            schema.release(ctypes.addressof(schema))

    @property
    def fields(self) -> tuple[Field, ...]:
        """The columns, in order."""
        return self._fields

    @property
    def names(self) -> list[str]:
        """What the columns are called, in order."""
        return [field.name for field in self._fields]

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{field.name}: {field.format}' for field in self._fields)})"

    def __arrow_c_schema__(self) -> object:
        """An ``arrow_schema`` capsule of a struct with a child for each column."""
        schema = _ffi.ArrowSchema()
        self._export(schema)
        return _capsule.capsule(schema, b"arrow_schema")


def _field(schema: Any) -> Field:
    children = tuple(_field(schema.children[i].contents) for i in range(schema.n_children))
    dictionary = _field(schema.dictionary.contents) if schema.dictionary else None
    name = (schema.name or b"").decode(errors="replace")
    return Field(name, schema.format.decode(), bool(schema.flags & 2), children, dictionary)
