"""Rows by their row id."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, Union

from . import native
from .batch import Batch, LoaderStep, column_array, numbers_of, stream_capsule
from .errors import Error
from .index import Index, Location, Path
from .loading import passes
from .loading.engine import RowSource
from .native import values as _values
from .native.imports import arrow, frames, loaded
from .native.library import (
    Handle,
    Operands,
    PerProcess,
    RowSet,
    call,
    count,
    exception_of,
    is_remote,
    library,
    located,
    optional_path,
    optional_set,
    optional_text,
    size,
    text_bytes,
    texts,
    told_of,
    waiting,
)
from .prefetched import Prefetched
from .progress import Progress, told
from .row_ids import row_ids
from .schema import Schema, column_list
from .shown import ROWS, columns_of
from .store import StoreOptions, store_text
from .disk_cache import DiskCache, DiskCacheCounters, disk_cache_pointer, located_disk_cache


class Counters(NamedTuple):
    """What a dataset has done so far, in this process."""

    hits: int
    """Look-ups that found the row group decoded."""
    misses: int
    """Look-ups that did not."""
    decodes: int
    """Row groups decoded, whole or in part."""
    bytes_decoded: int
    """Bytes of Arrow data that those decodes made."""
    bytes_read: int
    """Bytes read from the files."""
    evictions: int
    """Row groups dropped to make room."""
    held_bytes: int
    """Bytes of decoded row groups held now."""
    requests: int
    """Requests sent to an object store; 0 for local files."""
    bytes_fetched: int
    """Bytes that an object store sent, with what was read ahead or again."""


class VerifyReport(NamedTuple):
    """What :meth:`Dataset.verify` found."""

    files: int
    """Files that were looked at."""
    rows: int
    """Rows that were decoded; 0 below ``"deep"``."""
    problems: list[Error]
    """What is wrong with each bad file."""


Class = Union[bool, int, str, bytes, None]
"""A value that rows are of one class by."""

class Labels(NamedTuple):
    """The classes of rows: equal values of a column are one class."""

    codes: array.array[int]
    """The class of each row, as its place in :attr:`classes`. Shape ``(rows,)``, uint32."""
    classes: list[str]
    """The values as text, in the order of the values; bytes in hexadecimal."""


class Dataset(RowSource):
    """The rows of indexed Parquet files, by row id.

    ``len(dataset)`` is the number of rows; ``dataset[7]`` one of them as a dict of Python values;
    ``dataset[[7, 3, 7]]``, ``dataset[10:20]`` and ``dataset[numpy_array]`` a :class:`Batch`. Iterating goes through the
    rows in order. All may be called from many threads at once.

    It takes part in the Arrow PyCapsule protocol as a stream of all rows, which are read when they are asked for::

        pyarrow.table(dataset)
        polars.DataFrame(dataset)
        pandas.DataFrame.from_arrow(dataset)
        duckdb.sql("select label, count(*) from dataset group by label")

    Nothing is opened, and no thread started, before it is used. A process forked from this one opens it again at its
    first use, and so does one that unpickles it: a pickle has the arguments alone.

    Args:
        index: The index: a path, or an :class:`Index`.
        columns: The columns to serve, in this order; a path with dots names a nested field. Default: all.
        root: Finds the data files below this directory. Default: where the index says that they were.
        check: How closely files are compared with what was indexed: ``"off"``, ``"stat"``, ``"footer"`` or
            ``"deep"``.
        cache: Bytes of decoded row groups to keep: a number, or a text such as ``"4GiB"``. Default: 1 GiB.
        threads: Threads that decode, in each process. Default: one for each core, at most eight. 0: the caller's.
        max_decoded: Refuses a row group that takes more bytes than this when decoded. Default: 2 GiB.
        store: How the object store is talked to, if index or data are in one. Default: as the :class:`Index` says.
        disk_cache: Keeps row groups on a local disk. Default: none does.

    Raises:
        Error: One of its kinds, from what goes wrong in reading, naming file, row group and column.
    """

    def __init__(
        self,
        index: Path | Index,
        columns: Sequence[str] | None = None,
        *,
        root: Path | None = None,
        check: Literal["off", "stat", "footer", "deep"] = "stat",
        cache: int | str | None = None,
        threads: int | None = None,
        max_decoded: int | str | None = None,
        store: StoreOptions | None = None,
        disk_cache: DiskCache | None = None,
    ) -> None:
        columns = None if columns is None else column_list(columns)
        size(cache, "cache")
        size(max_decoded, "max_decoded")
        count(threads, "threads")
        known = index._fingerprint if isinstance(index, Index) else None
        path = index.path if isinstance(index, Index) else located(index)
        if store is None and isinstance(index, Index):
            store = index._store
        self._set(
            {
                "index": path,
                "fingerprint": known,
                "columns": columns,
                "root": None if root is None else located(root),
                "check": check,
                "cache": cache,
                "threads": threads,
                "max_decoded": max_decoded,
                "store": store,
                "disk_cache": None if disk_cache is None else located_disk_cache(disk_cache),
                "found": False,
            }
        )
        # So that mistakes show here; it is opened again where it is used.
        self._opened.get()

    def _set(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._index = PerProcess(self._open_index)
        self._opened = PerProcess(self._open)
        self._schema: Schema | None = None
        self._rows: int | None = None
        self._is_remote: bool | None = None

    def _open_index(self) -> Index:
        index = Index(
            self._arguments["index"], store=self._arguments["store"], _fingerprint=self._arguments["fingerprint"]
        )
        self._arguments["fingerprint"] = index.fingerprint
        return index

    def _open(self) -> Handle:
        arguments = self._arguments
        columns = arguments["columns"]
        names = None if columns is None else [text_bytes(name, "column name") for name in columns]
        # NULL stands for all columns, so no column at all is a pointer to no name.
        none = ctypes.cast(texts([b""]), ctypes.POINTER(ctypes.c_char_p))
        options = native.DatasetOptions(
            columns=None if names is None else texts(names) if names else none,
            num_columns=0 if names is None else len(names),
            root=optional_path(arguments["root"]),
            check=optional_text(arguments["check"], "check"),
            cache_bytes=size(arguments["cache"], "cache"),
            threads=count(arguments["threads"], "threads"),
            max_decoded_bytes=size(arguments["max_decoded"], "max_decoded"),
            store=store_text(arguments["store"]),
            disk_cache=disk_cache_pointer(arguments["disk_cache"]),
        )
        index = self._index.get()._handle.get()
        return waiting(
            self._remote, lambda: Handle(library.dataset_open, index, ctypes.byref(options))
        )

    @property
    def _remote(self) -> bool:
        """Whether reading rows may wait for a store."""
        if self._is_remote is None:
            self._is_remote = any(
                part._index.get()._is_of_a_store if part._arguments["root"] is None
                else is_remote(part._arguments["root"])
                for part in self._parts
            )  # fmt: skip
        return self._is_remote

    @property
    def _pointer(self) -> Handle:
        return self._opened.get()

    @property
    def _parts(self) -> tuple[Dataset, ...]:
        """The datasets of the rows, each with its own index, one after the other."""
        return (self,)

    @property
    def _in_turn(self) -> tuple[Dataset, ...]:
        """Those whose rows have the row ids, one after the other."""
        return self._parts

    def _location(self, row: int, column: str | None = None) -> Location:
        """Where a row is, or its value of a column."""
        return self.index.locate(row)

    def __getstate__(self) -> dict[str, Any]:
        self._index.get()  # Its fingerprint.
        return self._arguments

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set(dict(state))

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the cache and the threads, unless a loader still uses them. The dataset opens again if it is used again.
        """
        self._opened.forget()

    def __len__(self) -> int:
        if self._rows is None:
            self._rows = int(told_of(self._pointer)["rows"])
        return self._rows

    def __repr__(self) -> str:
        columns = ", ".join(self.column_names)
        return f"{type(self).__name__}({self._arguments['index']!r}, {len(self)} rows, columns {columns})"

    def _repr_html_(self) -> str:
        first = self.take(range(min(ROWS, len(self)))).to_pylist()
        files = sum(part.index._told["files"] for part in self._parts)
        paths = ", ".join(part.index.path for part in self._parts)
        caption = f"{type(self).__name__} of {paths}: {len(self):,} rows in {files:,} files"
        return columns_of(first, self.schema.fields, caption)

    @property
    def index(self) -> Index:
        """The index it was opened with."""
        return self._index.get()

    @property
    def schema(self) -> Schema:
        """The columns served."""
        if self._schema is None:
            self._schema = Schema(self._pointer)
        return self._schema

    @property
    def column_names(self) -> list[str]:
        """What the columns are called, in the order in which they are served."""
        return self.schema.names

    @property
    def decoded_bytes(self) -> int:
        """About how many bytes the columns of all rows take when decoded, according to the footers."""
        found = ctypes.c_uint64()
        pointer = self._pointer
        waiting(self._remote, lambda: call(library.dataset_decoded_bytes, pointer, ctypes.byref(found)))
        return found.value

    @property
    def counters(self) -> Counters:
        """What it has done so far, in this process."""
        told = told_of(self._pointer)
        return Counters(*(told[name] for name in Counters._fields))

    @property
    def disk_cache_counters(self) -> DiskCacheCounters:
        """What it has done with its disk cache so far, in this process; zeros without one."""
        told = told_of(self._pointer)["disk_cache"]
        return DiskCacheCounters(*(told[name] for name in DiskCacheCounters._fields))

    @property
    def disk_cache_fault(self) -> Error | None:
        """Why nothing more is kept in the disk cache, such as a full disk; ``None`` while all is well. Rows are served
        all the same.
        """
        fault = told_of(self._pointer)["disk_cache"]["fault"]
        return None if fault is None else exception_of(fault)

    def select(self, columns: Sequence[str]) -> Dataset:
        """The same dataset with these columns alone; of a struct with the fields of it that are served."""
        served, paths = self.column_names, list[str]()
        fields = [path for path in self._arguments["columns"] or () if path not in served]
        for name in column_list(columns):
            paths += [path for path in fields if name in served and path.startswith(f"{name}.")] or [name]
        chosen = object.__new__(type(self))
        chosen.__setstate__({**self.__getstate__(), "columns": paths})
        chosen._opened.get()
        return chosen

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "__getitem__" in vars(cls) and "__getitems__" not in vars(cls):
            raise TypeError(f"{cls.__name__} overrides __getitem__ alone: override both, PyTorch asks by __getitems__")

    def __getitem__(self, rows: Any) -> Any:
        """One row as a dict of Python values, or several as a :class:`Batch`. Negative ids count from the end.

        Raises:
            OutOfRangeError: which is an ``IndexError``.
        """
        if isinstance(rows, slice):
            return self.take(range(*rows.indices(len(self))))
        if hasattr(rows, "__index__") and not isinstance(rows, bool) and not getattr(rows, "shape", ()):
            return self.take([rows]).to_pylist()[0]
        if rows is None or isinstance(rows, (str, bytes, float, bool)) or rows is ...:
            raise TypeError(
                f"dataset[{rows!r}]: use a row id, a slice, or several row ids; a column is "
                "dataset[...].to_numpy()[name]"
            )
        return self.take(rows)

    def __getitems__(self, rows: Any) -> Any:
        """Several rows, each as a dict: what PyTorch's DataLoader asks for."""
        if isinstance(rows, LoaderStep):
            return rows.batch()
        if isinstance(rows, tuple) and hasattr(rows, "spec"):
            raise TypeError(
                "these are the steps of a rowdex.torch.BatchSampler: give the DataLoader a rowdex.torch.Dataset, not a "
                "rowdex.Dataset"
            )
        return self.take(rows).to_pylist()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), 256):
            yield from self.take(range(start, min(start + 256, len(self))))

    def __arrow_c_schema__(self) -> object:
        """An ``arrow_schema`` capsule, of a struct with a child for each column."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """An ``arrow_array_stream`` capsule: all rows in their order, in batches of about 16 MiB.

        Each stream is a separate pass, which holds at most about 1 GiB of decoded rows. It begins to read when its
        first batch is asked for. All columns are read: choose with :meth:`select`. A requested schema is ignored:
        consumers cast.
        """
        return stream_capsule(passes.begin(self))

    def to_arrow(self) -> Any:
        """All rows as a ``pyarrow.Table``, in their order. Choose columns with :meth:`select`."""
        table = arrow().table
        return waiting(self._remote, lambda: table(self))

    def to_pandas(self) -> Any:
        """All rows as a ``pandas.DataFrame``, in their order, by way of pyarrow."""
        frames()
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """All rows as a ``polars.DataFrame``, in their order."""
        polars = loaded("polars")
        return waiting(self._remote, lambda: polars.DataFrame(self))

    def take(self, rows: Any) -> Batch:
        """Rows in the order asked, which may repeat. Each row group is decoded at most once in a call, several in
        parallel.

        Args:
            rows: Row ids: a range, a list or another sequence of integers, or an array of integers or booleans of one
                dimension. Negative ids count from the end: -1 is the last row.

        Raises:
            OutOfRangeError: for ids that no row has.
        """
        ids = self._row_ids(rows)
        pointer = self._pointer
        # What is called keeps the row ids, even if nobody waits for it any more.
        handle = waiting(
            self._remote, lambda: Handle(library.take, pointer, *ids.buffer_info())
        )
        return Batch(handle, self.schema)

    def prefetch(self, rows: Any, *, memory: int | str | None = None, threads: int | None = None) -> Prefetched:
        """Reads ahead for row ids that will be asked for in this order, so that they are served at about the speed of a
        scan.

        For your own sampler, if it knows an epoch, or a good part of it, beforehand::

            order = my_sampler.permutation(len(dataset))
            with dataset.prefetch(order, memory=4 << 30) as rows:
                for start in range(0, len(order), 256):
                    batch = rows.take(order[start : start + 256])

        Args:
            rows: Row ids, as :meth:`take` has them.
            memory: Bytes of decoded rows to hold at most. Default: 1 GiB.
            threads: Threads that read ahead. Default: 2. 0: none, taking does all work.

        Raises:
            OutOfRangeError: which is an ``IndexError``, naming the first row id that is not there.
        """
        return Prefetched(self, rows, memory=memory, threads=threads)

    def labels(self, column: str, of: RowSet | None = None) -> Labels:
        """The classes of the rows by a column, which need not be among those served: for
        :class:`rowdex.order.Balanced`.

        Args:
            column: Integers, dates, booleans, strings or binary, or dictionaries of them; a dotted path for a nested
                field.
            of: The rows that are asked for. Default: all.

        Raises:
            SchemaError: for another type; ArgumentError: for a row without a value. They name the column.
        """
        found, schema = self._of_column("labels", column, of)
        codes, classes = numbers_of(found, "I"), found.array.dictionary.contents
        dictionary = schema.field.dictionary
        assert dictionary is not None
        return Labels(codes, _values.values(dictionary, classes, 0, classes.length))

    def counts(self, column: str, of: RowSet | None = None) -> dict[Class, int]:
        """How many rows each class has: rows with equal values in a column are one class. Ascending by value; ``None``
        comes last, with the rows that have no value. :func:`rowdex.count` counts without a dataset.

        Args:
            column: Integers, dates (in days since 1970), booleans, strings or binary, or dictionaries of them; a dotted
                path for a nested field. It need not be among those served. It is read.
            of: The rows that are asked for. Default: all.

        Raises:
            SchemaError: for another type, naming the column.
        """
        found, schema = self._of_column("counts", column, of)
        columns = zip(schema.field.children, found.array.children[: found.array.n_children])
        classes, rows = (_values.values(field, one.contents, 0, found.array.length) for field, one in columns)
        return dict(zip(classes, rows))

    def weights(self, column: str, of: RowSet | None = None) -> array.array[float]:
        """The numbers of a column, which need not be among those served: for :class:`rowdex.order.Weighted`. Shape
        ``(rows,)``, float64.

        Raises:
            ArgumentError: for a row without a value, or one that is negative, infinite or not a number.
        """
        return numbers_of(self._of_column("weights", column, of)[0], "d")

    def _of_column(self, what: str, column: str, of: RowSet | None) -> Any:
        """What the values of a column say of rows."""
        text_bytes(column, "column name")
        operands = Operands(dataset=self._pointer)
        asked = {"column": column, "of": optional_set(of)}
        return waiting(self._remote, lambda: column_array(operands, **{what: asked}))

    def _row_ids(self, rows: Any) -> array.array[int]:
        return row_ids(rows, len(self))

    def verify(
        self, level: Literal["off", "stat", "footer", "deep"] = "footer", *, progress: Progress = None
    ) -> VerifyReport:
        """Checks the index, then every data file at this level, and reports all bad files at once.

        Args:
            progress: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in any case,
                ``False`` never. A function is called with files done, files in all, and 0.
        """
        text_bytes(level, "level")
        operands = Operands(dataset=self._pointer)
        with told(progress, "checking") as tell:
            found = waiting(self._remote, lambda: operands.run(tell, verify={"check": level}))
        return VerifyReport(found["files"], found["rows"], [exception_of(one) for one in found["problems"]])
