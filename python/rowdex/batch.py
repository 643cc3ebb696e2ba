"""Rows, as Arrow, numpy, torch or Python has them."""

from __future__ import annotations

import array
import ctypes
import operator
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from . import native
from .native import capsule as _capsule
from .native import values as _values
from .native.arrays import Nulls, reader, samples, to_torch
from .native.imports import frames, loaded
from .native.library import Handle, Operands, Owned, call, described, library, not_pickled, text_bytes, token
from .schema import ExportedSchema, Field, Schema, column_list
from .shown import ROWS, columns_of


class _Exported(Owned):
    """An ``ArrowArray`` that releases itself. Buffers that were taken from it refer to it."""

    def __init__(self, _: Any, schema: ExportedSchema | None, function: Any, *arguments: Any) -> None:
        self.array = native.ArrowArray()
        self._as_parameter_ = ctypes.byref(self.array)
        call(function, *arguments, ctypes.byref(self.array), schema)


def exported(function: Any, *arguments: Any) -> tuple[_Exported, ExportedSchema]:
    """What a function exports, and its type."""
    schema = ExportedSchema(library.schema_release)
    return _Exported(library.array_release, schema, function, *arguments), schema


def column_array(operands: Operands, **asked: dict[str, Any]) -> tuple[_Exported, ExportedSchema]:
    """What the values of a column say of rows."""
    return exported(library.column, described(operands, **asked), ctypes.byref(operands.struct()))


def numbers_of(found: _Exported, kind: str) -> array.array[Any]:
    """The values of an array of numbers."""
    numbers: array.array[Any] = array.array(kind)
    numbers.frombytes(_values.raw(found.array, 1, 0, found.array.length * numbers.itemsize))
    return numbers


def stream_capsule(handle: Handle) -> object:
    """The rows of a handle to come, as a capsule."""
    stream = native.ArrowArrayStream()
    call(library.stream, handle, ctypes.byref(stream))
    return _capsule.capsule(stream, b"arrow_array_stream")


OF_SEQUENCES = frozenset(
    "cu_seqlens pack_offsets max_seqlen lengths position_ids segment_ids labels row_ids offsets".split()
)
"""The names of what :meth:`Batch.sequences` gives besides the tokens."""


class Substituted(NamedTuple):
    """A row of a batch that stands in for one that could not be read."""

    place: int
    """The place in the batch, from 0."""
    lost: int
    """The row id that the order has there. The one that is served is in :attr:`Batch.row_ids`."""


class Batch:
    """Some rows of a dataset, column by column.

    It takes part in the Arrow PyCapsule protocol, so any library that reads Arrow takes it without a copy::

        pyarrow.record_batch(batch)
        polars.DataFrame(batch)
        duckdb.sql("select * from batch")

    ``len(batch)`` is the number of rows. ``batch["label"]`` is a column as :meth:`to_numpy` gives it; ``batch[3]`` a
    row as a dict of Python values; iterating gives such rows.
    """

    __slots__ = ("_handle", "_schema", "_info", "_exported", "__weakref__")

    def __init__(self, handle: Handle, schema: Schema) -> None:
        self._handle = handle
        self._schema = schema
        info = native.BatchInfo()
        call(library.batch_get_info, handle, ctypes.byref(info))
        self._info = info
        self._exported: Any = None

    @property
    def schema(self) -> Schema:
        """The columns."""
        return self._schema

    @property
    def column_names(self) -> list[str]:
        """What the columns are called, in order."""
        return self._schema.names

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return int(self._info.num_rows)

    @property
    def num_pads(self) -> int:
        """How many of them, always the last ones, are repeated: another rank or an earlier step serves them, too."""
        return int(self._info.num_pads)

    @property
    def num_packs(self) -> int:
        """How many packs there are, whose pieces are the rows; 0 if the rows are in none."""
        return int(self._info.num_packs)

    @property
    def epoch(self) -> int:
        """The epoch that it is from."""
        return int(self._info.epoch)

    @property
    def step(self) -> int:
        """Which step of the epoch, from 0. After resuming within an epoch, steps continue from there."""
        return int(self._info.step)

    @property
    def row_ids(self) -> list[int]:
        """The row ids, one for each row."""
        rows = _values.raw_at(self._info.row_ids, 8 * self.num_rows).cast("Q").tolist()
        return rows

    @property
    def positions(self) -> list[int]:
        """Where the order may serve a row more than once: for each row its position in the order, which is the same for
        any number of ranks. Empty in all other orders, and of packs."""
        if not self._info.positions:
            return []
        return _values.raw_at(self._info.positions, 8 * self.num_rows).cast("Q").tolist()

    @property
    def substituted(self) -> list[Substituted]:
        """Which rows stand in for others that could not be read, in ascending order of their places: see ``on_error``
        of a :class:`Loader`.
        """
        rows = self._info.substituted[: self._info.num_substituted]
        return [Substituted(row.place, row.lost) for row in rows]

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, key: str | int) -> Any:
        if isinstance(key, str):
            return self.to_numpy([key])[key]
        try:
            row = operator.index(key)
        except TypeError:
            raise TypeError(
                f"batch[{key!r}]: use the name of a column or the number of a row; several rows are a part of a "
                "column, batch['label'][:3], or batch.to_pylist()[:3]"
            ) from None
        row = row + self.num_rows if row < 0 else row
        if not 0 <= row < self.num_rows:
            raise IndexError(f"row {key} of a batch of {self.num_rows}")
        return self._rows(row, 1)[0]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.to_pylist())

    def __repr__(self) -> str:
        return f"Batch({self.num_rows} rows, columns {', '.join(self.column_names)})"

    def _repr_html_(self) -> str:
        rows = self._rows(0, min(ROWS, self.num_rows))
        return columns_of(rows, self._schema.fields, f"Batch of {self.num_rows:,} rows")

    def __reduce__(self) -> Any:
        return not_pickled(
            "a Batch is not pickled, and does not go from a worker to its DataLoader: send to_numpy(), to_torch() or "
            "pyarrow.record_batch(batch), or use batch_sampler=rowdex.torch.BatchSampler(...), whose samples go"
        )

    def to_numpy(
        self, columns: list[str] | None = None, *, nulls: Nulls = "error", strings: str = "list"
    ) -> dict[str, Any]:
        """The columns as numpy arrays.

        Numbers, dates and times are arrays of shape ``(rows,)``, lists of a fixed size arrays of shape
        ``(rows, size)``, and binary of a fixed size arrays of bytes of shape ``(rows, size)``. None of these is copied,
        but for booleans, which are bits in Arrow, and dates of 32 bits. Lists of other sizes are :class:`Ragged`,
        dictionaries :class:`Codes`, structs dicts; all else is a list of Python values.

        Args:
            columns: The columns wanted. Default: all.
            nulls: ``"error"`` raises :class:`SchemaError` if there is a null; ``"fill"`` puts NaN, NaT, 0, False, None
                or an empty list in its place; ``"mask"`` does that and makes every column a :class:`Masked`. Within
                lists, nulls are filled where they do not raise.
            strings: ``"list"`` gives lists of ``str`` and ``bytes``, ``"offsets"`` gives :class:`Ragged` of their
                bytes, without a copy.
        """
        readers = [(i, field.name, reader(field, nulls, strings)) for i, field in self._chosen(columns)]
        return self._read(readers)

    def to_torch(
        self, columns: list[str] | None = None, *, nulls: Nulls = "error", strings: str = "list"
    ) -> dict[str, Any]:
        """The columns as torch tensors: the arrays of :meth:`to_numpy`, whose memory they share. Dates and times become
        their integers.
        """
        tensors: dict[str, Any] = to_torch(self.to_numpy(columns, nulls=nulls, strings=strings))
        return tensors

    def sequences(
        self,
        *,
        layout: Literal["flat", "rows"] = "flat",
        labels: bool = True,
        bos: int | None = None,
        eos: int | None = None,
        pad: int = 0,
        capacity: int = 0,
    ) -> dict[str, Any]:
        """The tokens of packs as the arrays that a model takes, of numpy. Rows of the batch are pieces then. No token
        is copied where nothing is added.

        ========================  =====================  =========================================================
        key                       shape, type            what it has
        ========================  =====================  =========================================================
        the column with tokens    ``(tokens,)``          the tokens of all packs, one after the other
        ``cu_seqlens``            ``(pieces + 1,)``      int32: where each piece begins, and where the last one ends
        ``pack_offsets``          ``(packs + 1,)``       int32: the same of packs, counted in tokens, too
        ``max_seqlen``            ``int``                the length of the longest piece
        ``position_ids``          ``(tokens,)``          int64: restart at each piece
        ``segment_ids``           ``(tokens,)``          int32: number the pieces of a pack from 1; 0 is filling
        ``labels``                ``(tokens,)``          int64: the label of the token that follows in the row: what a
                                                         column of labels has for it, or else the token; or -100
        other columns of items    ``(tokens,)``          what they have for the token that follows, or 0
        ``lengths``               ``(pieces,)``          int32: tokens of each piece, without filling
        ``row_ids``, ``offsets``  ``(pieces,)``          int64: which row it is of, and from which token on
        ========================  =====================  =========================================================

        Args:
            layout: ``"flat"``, or ``"rows"`` of as many places as the capacity: what has the shape ``(tokens,)`` then
                has ``(packs, capacity)``, and there are no ``cu_seqlens``, ``pack_offsets`` and ``max_seqlen``.
            labels: Whether labels are made of the tokens where no column has them.
            bos, eos: Tokens that each row begins and ends with, which packs must have reserved as extra ones. A row
                that is cut has them where it begins and where it ends, not where it is cut.
            pad: The token that fills up.
            capacity: How many places rows have if the batch has no pack.
        """
        around = [0 if value is None else token(value, name) for name, value in (("bos", bos), ("eos", eos))]
        added = (ctypes.c_int64 * 2)(*around)
        options = native.SequenceOptions(
            layout=text_bytes(layout, "layout"), without_labels=not labels, pad=token(pad, "pad"),
            bos=None if bos is None else ctypes.addressof(added),
            eos=None if eos is None else ctypes.addressof(added) + 8,
        )  # fmt: skip
        # All batches of a loader have its schema, and the same arrays.
        readers = self._schema._of_sequences.get(labels)
        if readers is None:
            made, schema = exported(library.batch_sequences, self._handle, ctypes.byref(options))
            readers = [(field.name, reader(field.children[0], "error", "list")) for field in schema.field.children]
            self._schema._of_sequences[labels] = readers
        else:
            made = _Exported(library.array_release, None, library.batch_sequences, self._handle, ctypes.byref(options))
        found: dict[str, Any] = {}
        for (name, read), child in zip(readers, made.array.children[: len(readers)]):
            array = child.contents.children[0].contents
            found[name] = read(array, made, 0, array.length)
        if layout == "rows":
            for name in ("cu_seqlens", "pack_offsets", "max_seqlen"):
                del found[name]
            for name in found.keys() - {"lengths", "row_ids", "offsets"}:
                found[name] = found[name].reshape((self.num_packs, -1) if self.num_packs else (0, capacity))
        else:
            found["max_seqlen"] = int(found["max_seqlen"][0])
        return found

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.RecordBatch``, without a copy."""
        return loaded("pyarrow").record_batch(self)

    def to_pandas(self) -> Any:
        """The rows as a ``pandas.DataFrame``, by way of pyarrow."""
        return frames().record_batch(self).to_pandas()

    def to_polars(self) -> Any:
        """The rows as a ``polars.DataFrame``, without a copy."""
        return loaded("polars").DataFrame(self)

    def to_pydict(self, columns: list[str] | None = None) -> dict[str, list[Any]]:
        """The columns, or these of them, as lists of Python values, ``None`` for each null.

        Dates, times and durations become those of ``datetime``, which end at microseconds: those in nanoseconds stay
        integers.
        """
        array = self._export().array
        chosen = ((i, field, array.children[i].contents) for i, field in self._chosen(columns))
        return {field.name: _values.values(field, column, array.offset, self.num_rows) for i, field, column in chosen}

    def to_pylist(self) -> list[dict[str, Any]]:
        """The rows as dicts of Python values, as :meth:`to_pydict` has them."""
        return self._rows(0, self.num_rows)

    def to_numpy_rows(self) -> list[dict[str, Any]]:
        """The rows as dicts of what :meth:`to_numpy` has: numpy's scalars, views of arrays for lists, and ``None`` for
        each null. A row of a column that has a null within a list is a list of Python values."""
        exported = self._export()
        return self._in_rows(
            lambda field, column, first: samples(field, column, exported, first, self.num_rows), 0, self.num_rows
        )

    def _rows(self, start: int, count: int) -> list[dict[str, Any]]:
        return self._in_rows(lambda field, column, first: _values.values(field, column, first, count), start, count)

    def _in_rows(self, values: Callable[[Field, Any, int], list[Any]], start: int, count: int) -> list[dict[str, Any]]:
        array = self._export().array
        columns = [
            values(field, array.children[i].contents, array.offset + start)
            for i, field in enumerate(self._schema.fields)
        ]
        names = self.column_names
        return [dict(zip(names, row)) for row in zip(*columns)] if columns else [{} for _ in range(count)]

    def _chosen(self, columns: list[str] | None) -> list[tuple[int, Any]]:
        fields = list(enumerate(self._schema.fields))
        if columns is None:
            return fields
        columns = column_list(columns)
        by_name = {field.name: (i, field) for i, field in fields}
        unknown = [name for name in columns if name not in by_name]
        if unknown:
            raise KeyError(f"no column is called {unknown[0]!r}; there are {', '.join(self.column_names)}")
        return [by_name[name] for name in columns]

    def _read(self, readers: list[tuple[int, str, Any]]) -> dict[str, Any]:
        exported = self._export()
        array, count = exported.array, self.num_rows
        children, offset = array.children, array.offset
        return {name: read(children[i].contents, exported, offset, count) for i, name, read in readers}

    def _checked(self) -> Batch:
        """The same, once it is known that its rows belong together: those of zipped datasets may not."""
        return self

    def _export(self) -> Any:
        if self._exported is None:
            self._exported = _Exported(library.array_release, None, library.batch_export, self._handle)
        return self._exported

    def __arrow_c_schema__(self) -> object:
        """An ``arrow_schema`` capsule, of a struct with a child for each column."""
        return self._schema.__arrow_c_schema__()

    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]:
        """``arrow_schema`` and ``arrow_array`` capsules. A requested schema is ignored: consumers cast."""
        array, schema = native.ArrowArray(), native.ArrowSchema()
        call(library.batch_export, self._handle, ctypes.byref(array), ctypes.byref(schema))
        return _capsule.capsule(schema, b"arrow_schema"), _capsule.capsule(array, b"arrow_array")

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """An ``arrow_array_stream`` capsule, of one array."""
        return stream_capsule(self._handle)


class LoaderStep:
    """What a ``DataLoader`` hands from the batch sampler of a loader to its dataset: a batch that the loader makes."""

    __slots__ = ("_served", "_step")

    def __init__(self, served: Any, step: int) -> None:
        self._served, self._step = served, step

    def batch(self) -> Any:
        if self._served is None:
            raise TypeError("a rowdex.Loader serves its steps in its own process: use num_workers=0")
        return self._served.batch(self._step)

    def __reduce__(self) -> Any:
        # An error on the way to a worker would be nobody's, and the batch waited for.
        return LoaderStep, (None, self._step)
