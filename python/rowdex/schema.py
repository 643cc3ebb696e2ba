"""Columns and their types, as the Arrow C data interface spells them."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import native
from .native import capsule as _capsule
from .native.library import Owned, call, library
from .shown import table, type_name


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


class ExportedSchema(Owned):
    """An ``ArrowSchema`` that releases itself."""

    def __init__(self, _: Any) -> None:
        self.schema = native.ArrowSchema()
        self._as_parameter_ = ctypes.byref(self.schema)

    @property
    def field(self) -> Field:
        """The type that was exported."""
        return _field(self.schema)


class _Rebuilt:
    """An ``ArrowSchema`` of another process, whose parts are kept here. It must not be released."""

    def __init__(self, parts: Any) -> None:
        self._kept: list[Any] = []
        self.schema = self._struct(*parts)
        # NULL would say that it was released. It is only lent, and this is never called.
        self.schema.release = ctypes.cast(library.schema_release, type(self.schema.release))
        self._as_parameter_ = ctypes.byref(self.schema)

    def _struct(
        self, format: bytes, name: bytes | None, metadata: bytes | None, flags: int, children: Any, dictionary: Any
    ) -> Any:
        below = [ctypes.pointer(self._struct(*child)) for child in children]
        pointers = (ctypes.POINTER(native.ArrowSchema) * len(below))(*below)
        text = None if metadata is None else ctypes.create_string_buffer(metadata, len(metadata))
        schema = native.ArrowSchema(
            format=format, name=name, flags=flags, n_children=len(below), children=pointers,
            metadata=None if text is None else ctypes.addressof(text),
        )  # fmt: skip
        if dictionary is not None:
            schema.dictionary = ctypes.pointer(self._struct(*dictionary))
        self._kept += [text, pointers]
        return schema


def _parts(schema: Any) -> tuple[Any, ...]:
    """What there is to know of an ``ArrowSchema``."""
    children = tuple(_parts(schema.children[i].contents) for i in range(schema.n_children))
    dictionary = _parts(schema.dictionary.contents) if schema.dictionary else None
    return schema.format, schema.name, metadata_of(schema.metadata), schema.flags, children, dictionary


def metadata_of(address: int | None) -> bytes | None:
    """Keys and values, as the Arrow C data interface has them: a length of 32 bits before each."""
    if not address:
        return None
    end = address + 4
    for _ in range(2 * ctypes.c_int32.from_address(address).value):
        end += 4 + ctypes.c_int32.from_address(end).value
    return ctypes.string_at(address, end - address)


def _rebuilt(parts: Any) -> Schema:
    schema = object.__new__(Schema)
    schema._exported = _Rebuilt(parts)
    schema._take_note()
    return schema


def side_by_side(columns: Iterable[tuple[str, Schema, int]]) -> Schema:
    """Columns of several schemas as one: what goes before the name of each, its schema, and its place there."""
    children = []
    for prefix, schema, place in columns:
        format, name, *others = _parts(schema._exported.schema.children[place].contents)
        children.append((format, prefix.encode() + (name or b""), *others))
    return _rebuilt((b"+s", b"", None, 0, tuple(children), None))


class Schema:
    """The columns of a dataset. Takes part in the Arrow PyCapsule protocol: ``pyarrow.schema(schema)`` works."""

    def __init__(self, handle: Any) -> None:
        """That of a handle, which is not kept."""
        self._exported: ExportedSchema | _Rebuilt = ExportedSchema(library.schema_release)
        call(library.schema, handle, self._exported)
        self._take_note()

    def _take_note(self) -> None:
        self._fields = _field(self._exported.schema).children
        # How the arrays of packs are read, of batches with this schema: with labels, and without.
        self._of_sequences: dict[bool, list[tuple[str, Any]]] = {}

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
        return f"Schema({', '.join(f'{field.name}: {type_name(field)}' for field in self._fields)})"

    def _repr_html_(self) -> str:
        rows = [[field.name, type_name(field), "yes" if field.nullable else ""] for field in self._fields]
        return table(["column", "type", "nulls"], rows, f"{len(self)} columns")

    def __reduce__(self) -> Any:
        return _rebuilt, (_parts(self._exported.schema),)

    def __arrow_c_schema__(self) -> object:
        """An ``arrow_schema`` capsule of a struct with a child for each column."""
        schema = native.ArrowSchema()
        call(library.schema_copy, self._exported, ctypes.byref(schema))
        return _capsule.capsule(schema, b"arrow_schema")


def _field(schema: Any) -> Field:
    children = tuple(_field(schema.children[i].contents) for i in range(schema.n_children))
    dictionary = _field(schema.dictionary.contents) if schema.dictionary else None
    name = (schema.name or b"").decode(errors="replace")
    return Field(name, schema.format.decode(), bool(schema.flags & native.ARROW_FLAG_NULLABLE), children, dictionary)
