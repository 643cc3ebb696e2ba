"""Where rows are."""

from __future__ import annotations

import array
import ctypes
import json
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import native
from .batch import column_array, numbers_of
from .errors import OutOfRangeError, StaleError
from .native.capsule import stream_of
from .native.library import (
    Handle,
    Operands,
    PerProcess,
    RowSet,
    call,
    is_remote,
    library,
    located,
    optional_set,
    path_bytes,
    reported,
    text_bytes,
    told_of,
    waiting,
)
from .progress import Progress, told
from .schema import Schema
from .shown import ROWS, table
from .store import StoreOptions, store_fields, store_text

Path = str | os.PathLike[str]


class Location(NamedTuple):
    """Where a row is."""

    file: str
    """The path of its file, relative to the root of the index."""
    row_group: int
    """The row group, counted within the file."""
    row: int
    """The row, counted within the row group."""


class FileInfo(NamedTuple):
    """What an index knows of a file."""

    path: str
    """Relative to the root of the index, with ``/`` between its parts."""
    size: int
    """In bytes, when it was indexed."""
    first_row: int
    """The id of its first row."""
    rows: int
    """How many of its rows are served."""
    row_groups: int
    """How many row groups it has."""


class LengthsInfo(NamedTuple):
    """What is known of the lengths by one name."""

    of: str
    """``"items"`` of a column of lists, ``"numbers"`` of a column of integers, or ``"given"``."""
    sum: int
    """The sum over all rows."""
    longest: int
    """The length of the longest row."""


class Index:
    """An index file, opened: it answers where rows are, and reads no data file.

    It is pickled by its path. A forked or unpickled one opens the file again, and says so (:class:`StaleError`) if it
    is another index by then.

    ``len(index)`` is the number of rows.
    """

    def __init__(self, path: Path, *, store: StoreOptions | None = None, _fingerprint: int | None = None) -> None:
        """Opens and checks the index at ``path``, or at a URL, which ``store`` says how to talk to."""
        self._path = located(path)
        self._store = store
        self._fingerprint = _fingerprint
        self._handle = PerProcess(self._open)
        self._handle.get()

    def _open(self) -> Handle:
        arguments = (path_bytes(self._path), store_text(self._store))
        handle = waiting(
            is_remote(self._path), lambda: Handle(library.index_open, *arguments)
        )
        fingerprint = int(told_of(handle)["fingerprint"])
        if self._fingerprint is None:
            self._fingerprint = fingerprint
        elif self._fingerprint != fingerprint:
            raise StaleError(
                f"{self._path}: the index is not the one that was opened before: its row ids mean other rows; open it "
                "again everywhere",
                file=self._path,
                hint="open it again everywhere",
            )
        return handle

    def __reduce__(self) -> Any:
        return _open_index, (self._path, self._fingerprint, self._store)

    @property
    def path(self) -> str:
        """The absolute path of the index file, or its URL."""
        return self._path

    @property
    def fingerprint(self) -> int:
        """Differs between two indexes when any row id means another row."""
        self._handle.get()
        assert self._fingerprint is not None
        return self._fingerprint

    @property
    def root(self) -> str:
        """Where the files were when the index was built; if it is relative, then to the directory of the index."""
        return str(self._told["root"])

    @property
    def _is_of_a_store(self) -> bool:
        """Whether the files are in an object store, unless another root is given."""
        root = self.root
        return is_remote(root) or (not os.path.isabs(root) and is_remote(self._path))

    @property
    def schema(self) -> Schema:
        """The columns of every file."""
        return Schema(self._handle.get())

    @property
    def files(self) -> list[FileInfo]:
        """The files, in the order of their rows."""
        return [
            FileInfo(**{name: file[name] for name in FileInfo._fields}) for file in self._files(0, self._told["files"])
        ]

    @property
    def _told(self) -> dict[str, Any]:
        return told_of(self._handle.get())

    def _files(self, first: int, number: int, groups: bool = False) -> list[dict[str, Any]]:
        """What is known of files, and of each of their row groups if that is asked for."""
        found: list[dict[str, Any]] = reported(library.index_files, self._handle.get(), first, number, groups)
        return found

    @property
    def num_row_groups(self) -> int:
        """How many row groups there are."""
        return int(self._told["row_groups"])

    def __len__(self) -> int:
        return int(self._told["rows"])

    def __repr__(self) -> str:
        return f"Index({self._path!r}, {len(self)} rows)"

    def _repr_html_(self) -> str:
        told = self._told
        files = self._files(0, min(ROWS, told["files"]))
        head = ["path", "rows", "row_groups", "size"]
        caption = f"{self!r}: {told['files']:,} files, {told['row_groups']:,} row groups"
        return table(head, [[file[name] for name in head] for file in files], caption)

    def locate(self, row: int) -> Location:
        """Where a row is; negative ids count from the end.

        Raises:
            OutOfRangeError: which is an ``IndexError``.
        """
        handle, location = self._handle.get(), native.Location()
        wanted = ctypes.c_uint64(row_id(row, len(self)))
        call(library.index_locate, handle, ctypes.byref(wanted), 1, ctypes.byref(location))
        return Location(self._files(location.file, 1)[0]["path"], location.ordinal, location.row)

    @property
    def view(self) -> dict[str, Any] | None:
        """What :func:`rowdex.select` recorded of this view: ``base`` (its path from the folder of the view),
        ``base_fingerprint``, ``base_rows``, ``choices``, ``rows`` and ``time``. ``None`` for any other index.
        """
        return self._noted("view")

    @property
    def renames(self) -> dict[str, str]:
        """The columns that files call otherwise than they are served: names in files, with the served ones."""
        return self._noted("renamed") or {}

    def _noted(self, name: str) -> dict[str, Any] | None:
        """What was recorded when it was built."""
        try:
            found = json.loads(self._told["build_info"])[name]
        except (ValueError, LookupError, TypeError):
            return None
        return found if isinstance(found, dict) else None

    def weights(self, rows: Path | Any, column: str, of: RowSet | None = None) -> array.array[float]:
        """The weights that a list of rows has in one of its columns, by row id: for :class:`rowdex.order.Weighted`.
        Shape ``(rows,)``, float64.

        The list is a Parquet or Arrow file, or an object with ``__arrow_c_stream__``, in any order, as
        :func:`rowdex.select` takes it. Rows that the index does not serve are passed over, so the list that a view was
        made with works, too: ``Weighted(Index("view.rdx").weights(table, "w"))``.

        Args:
            rows: The list. A column ``row_id`` in it counts in this index.
            column: Numbers that are finite and not negative. Every row that is asked for has one.
            of: The rows that are asked for. Default: all.

        Raises:
            ArgumentError: for a row without a weight, or with two; OutOfRangeError: for a row that is not there.
        """
        owner, stream = stream_of(rows) if hasattr(rows, "__arrow_c_stream__") else (None, None)
        operands = Operands([self._handle.get()], None if stream is None else ctypes.pointer(stream))
        asked = {"column": column, "of": optional_set(of), "list": rows if stream is None else None}
        found = numbers_of(column_array(operands, weights=asked)[0], "d")
        del owner
        return found

    def note_lengths(
        self,
        columns: str | Iterable[str] = (),
        *,
        given: Mapping[str, Path | Any] | None = None,
        root: Path | None = None,
        threads: int | None = None,
        progress: Progress = None,
    ) -> None:
        """Records in the index file how long rows are, in tokens or any other unit. The file holds a whole index at any
        moment; row ids and the fingerprint stay. All lengths are recorded at once, but those of streams one after the
        other.

        Args:
            columns: Columns of lists, whose items are counted without decoding a value, and of integers. Null and empty
                lists have the length 0.
            given: Lengths that a tokenizer found, by name: a Parquet or Arrow file, or an object with
                ``__arrow_c_stream__``, with the columns ``row_id`` and ``length``. Such rows are served whole.
            root: Where the data is, instead of where the index says.
            threads: Threads that count. Default: one for each core.
            progress: As for :func:`build`.

        Raises:
            ArgumentError: for a column that is neither of lists nor of integers, and for a row without a given length,
                or with two; SchemaError: for a number that is null or negative.
        """
        shared = {"index": self._path, "root": root, "threads": threads, "store": store_fields(self._store)}
        lists: dict[str, Any] = {}
        streams: dict[str, Any] = {}
        for name, rows in (given or {}).items():
            (streams if hasattr(rows, "__arrow_c_stream__") else lists)[name] = rows
        names = [columns] if isinstance(columns, str) else list(columns)
        try:
            if names or lists:
                self._note(Operands(), root, progress, columns=names, given=lists, **shared)
            for name, rows in streams.items():
                owner, stream = stream_of(rows)
                self._note(Operands(stream=ctypes.pointer(stream)), root, progress, stream=name, **shared)
                del owner
        finally:
            self._handle = PerProcess(self._open)

    def _note(self, operands: Operands, root: Path | None, progress: Progress, /, **lengths: Any) -> None:
        with told(progress, "counting lengths") as tell:
            remote = is_remote(self._path, root) or (root is None and self._is_of_a_store)
            waiting(remote, lambda: operands.run(tell, lengths=lengths))

    @property
    def noted_lengths(self) -> dict[str, LengthsInfo]:
        """The lengths that are recorded, by name."""
        return {one["name"]: LengthsInfo(one["of"], one["sum"], one["longest"]) for one in self._told["lengths"]}

    def lengths(self, name: str) -> array.array[int]:
        """The lengths that are recorded by this name, by row id. Shape ``(rows,)``, uint64."""
        text_bytes(name, "name")
        asked = {"column": name}
        return numbers_of(column_array(Operands([self._handle.get()]), lengths=asked)[0], "Q")

    def verify(self) -> None:
        """Reads and checks every byte of the index again. :meth:`Dataset.verify` looks at the data files, too."""
        Operands([self._handle.get()]).run(verify={})


def _open_index(path: str, fingerprint: int | None, store: StoreOptions | None) -> Index:
    return Index(path, store=store, _fingerprint=fingerprint)


def row_id(row: Any, rows: int) -> int:
    """A row id as the library wants it: negative ones count from the end."""
    number = operator.index(row)
    found = number + rows if number < 0 else number
    if not 0 <= found < rows:
        raise OutOfRangeError(f"row id {number} of {rows} rows", hint=f"row ids are 0 to {rows - 1}")
    return found


__all__ = ["FileInfo", "Index", "LengthsInfo", "Location"]
