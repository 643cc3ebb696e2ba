"""Delta Lake and Iceberg tables at a snapshot, through the packages ``deltalake`` and ``pyiceberg``.

:func:`rowdex.build` takes a ``deltalake.DeltaTable``, a ``pyiceberg`` table or a scan of one, and indexes the files of
its snapshot without the rows that deletion vectors and position deletes take away. Columns of an Iceberg table that
were renamed are served by their names now. What cannot be honoured is refused with its name: fields of structs that
were renamed, columns that took the name of another, equality deletes, deletes in Puffin files, and partition values
that neither the files nor their folders have.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import views
from .errors import ArgumentError
from .index import Index, Path

_READABLE = {"deletionVectors", "timestampNtz", "columnMapping", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening"}
"""Features of Delta tables that a reader of their files has nothing more to do for than is done here."""


class Snapshot(NamedTuple):
    """The files of a table, and which of their rows are gone."""

    files: list[str]
    columns: list[str]
    """The table's own."""
    partitioned: bool
    """Whether columns are in the names of folders."""
    deleted: list[tuple[str, Any]]
    """Files, and numbers of their rows."""
    note: str
    """Which snapshot, as it is recorded."""
    renamed: dict[str, str]
    """Names of columns in files, from before they got those of the table."""


def is_table(inputs: Any) -> bool:
    """Whether this is a table of one of the packages, which need not be installed."""
    return _package(inputs) is not None


def _package(inputs: Any) -> str | None:
    tables = {("deltalake", "DeltaTable"), ("pyiceberg", "Table"), ("pyiceberg", "TableScan")}
    for kind in type(inputs).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in tables:
            return package
    return None


def build_table(
    build: Callable[..., Any], table: Any, output: Path, *, overwrite: bool = False, store: Any = None, **options: Any
) -> Any:
    """Builds the index of a table's snapshot: :func:`rowdex.build`, which is to index its files, comes here."""
    for name in ("rows_file", "update"):
        if options.pop(name, None):
            raise ArgumentError(f"{name} and a table: build the index of the table, then select from it")
    if options.pop("rename", None):
        message = "rename and a table: its columns have the names of the table"
        raise ArgumentError(message, hint="rename them in the table")
    snapshot = _delta(table) if _package(table) == "deltalake" else _iceberg(table)
    if not snapshot.files:
        raise ArgumentError(f"{snapshot.note} has no files")
    options["partitions"] = snapshot.partitioned and options.get("partitions", True)
    # Files of one table may lack columns that were added later.
    options["schema_mode"] = "union"
    options["rename"] = snapshot.renamed
    local = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", os.fspath(output)) is None
    folder = os.path.dirname(os.path.abspath(output)) if local else None
    work = tempfile.mkdtemp(prefix=f".{os.path.basename(os.fspath(output))[:50]}.tmp-", dir=folder)
    try:
        report = build(snapshot.files, os.path.join(work, "files.rdx"), store=store, **options)
        index = Index(os.path.join(work, "files.rdx"), store=store)
        _check_columns(snapshot, index)
        skip = _deleted(snapshot) if snapshot.deleted else None
        made = views.select(index, output, skip=skip, note=snapshot.note, overwrite=overwrite, store=store)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return report._replace(rows=made.rows, index_bytes=made.index_bytes)


def _check_columns(snapshot: Snapshot, index: Index) -> None:
    served = set(index.schema.names)
    missing = [name for name in snapshot.columns if name not in served]
    if missing:
        raise ArgumentError(
            f"no file of {snapshot.note} has the column {missing[0]}",
            column=missing[0], hint="rewrite the table's files",
        )  # fmt: skip


def _deleted(snapshot: Snapshot) -> Any:
    """The deleted rows as a list for :func:`rowdex.select`."""
    import pyarrow as pa  # type: ignore[import-untyped]

    def batches() -> Iterator[Any]:
        for path, rows in snapshot.deleted:
            rows = pa.array(rows, pa.int64())
            yield pa.record_batch({"file": pa.array([path] * len(rows), pa.string()), "row_in_file": rows})

    schema = pa.schema({"file": pa.string(), "row_in_file": pa.int64()})
    return pa.RecordBatchReader.from_batches(schema, batches())


def _delta(table: Any) -> Snapshot:
    note = f"the Delta table {table.table_uri} at version {table.version()}"
    unknown = set(getattr(table.protocol(), "reader_features", None) or ()) - _READABLE
    if unknown:
        raise ArgumentError(f"{note} needs the feature {sorted(unknown)[0]}, which is not read here")
    metadata = table.metadata()
    mapping = metadata.configuration.get("delta.columnMapping.mode") or "none"
    if mapping != "none":
        raise ArgumentError(
            f"{note} maps its columns by {mapping}, so its files call them otherwise",
            hint="rewrite it without a mapping",
        )
    columns = list(metadata.partition_columns)
    files = list(table.file_uris())
    for path in files:
        parts = {urllib.parse.unquote(part.partition("=")[0]) for part in path.split("/") if "=" in part}
        for column in columns:
            if column not in parts:
                message = f"{path} is in no folder {column}=…, and {note} is partitioned by {column}"
                raise ArgumentError(message, column=column)
    deleted = []
    if "deletionVectors" in (getattr(table.protocol(), "reader_features", None) or ()):
        for batch in table.deletion_vectors():
            paths, masks = (batch.column(number) for number in (0, 1))
            for path, mask in zip(paths, masks, strict=True):
                deleted.append((path.as_py(), [row for row, kept in enumerate(mask.as_py()) if not kept]))
    fields = [field.name for field in table.schema().fields]
    return Snapshot(files, fields, bool(columns), [(path, rows) for path, rows in deleted if rows], note, {})


def _iceberg(table: Any) -> Snapshot:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.manifest import FileFormat
    from pyiceberg.transforms import IdentityTransform

    scan = table if hasattr(table, "plan_files") else table.scan()
    if scan.row_filter != AlwaysTrue() or tuple(scan.selected_fields) != ("*",) or scan.limit is not None:
        raise ArgumentError(
            "a scan that filters, selects or limits: give the whole snapshot",
            hint="choose columns when opening the dataset, and rows with rowdex.select",
        )
    snapshot = scan.snapshot()
    note = f"the Iceberg table {scan.table_metadata.location} at snapshot {snapshot.snapshot_id if snapshot else None}"
    try:
        tasks = list(scan.plan_files()) if snapshot else []
    except (NotImplementedError, ValueError) as error:
        raise ArgumentError(f"{note} cannot be read: {error}") from error
    columns = _Columns(scan.projection(), note)
    specs = scan.table_metadata.specs()
    files, deleted = [], []
    for task in tasks:
        path = task.file.file_path
        if task.file.file_format != FileFormat.PARQUET:
            raise ArgumentError(f"{note} has a file that is not Parquet: {path}", file=path)
        with scan.io.new_input(path).open() as opened:
            there = columns.add(path, pq.read_schema(opened))
        for part in specs[task.file.spec_id].fields if task.file.spec_id in specs else ():
            column = columns.names.get(part.source_id)
            if isinstance(part.transform, IdentityTransform) and column is not None and column not in there:
                raise ArgumentError(f"{path} lacks {column}, by which it is partitioned", file=path)
        files.append(path)
        for delete in task.delete_files:
            if delete.file_format != FileFormat.PARQUET:
                raise ArgumentError(
                    f"{note} has deletes in a file that is not Parquet: {delete.file_path}", file=delete.file_path
                )
            with scan.io.new_input(delete.file_path).open() as opened:
                rows = pq.read_table(opened, columns=["file_path", "pos"])
            own = [row for of, row in zip(*rows.to_pydict().values(), strict=True) if of == path]
            if own:
                deleted.append((path, sorted(set(own))))
    if columns.dropped:
        dropped = ", ".join(sorted(columns.dropped))
        warnings.warn(f"{note}: its files still have columns that were dropped: {dropped}", stacklevel=4)
    return Snapshot(files, list(columns.names.values()), False, deleted, note, columns.renames())


class _Columns:
    """The columns of an Iceberg table, and how its files call them."""

    def __init__(self, schema: Any, note: str) -> None:
        self._note = note
        self.names = {field.field_id: field.name for field in schema.fields}
        self._types = {field.field_id: field.field_type for field in schema.fields}
        self._defaults = {field.name for field in schema.fields if getattr(field, "initial_default", None) is not None}
        self.dropped: set[str] = set()
        self._unnumbered: set[str] = set()
        self._known: dict[str, str] = {}

    def add(self, path: str, fields: Any) -> set[str]:
        """Learns from the schema of a file. Returns which columns of the table it has."""
        there = set()
        for field in fields:
            number = _field_id(field)
            known = self.names.get(number) if number >= 0 else field.name
            if known is None:
                self.dropped.add(field.name)
                continue
            there.add(known)
            message = None
            if number < 0:
                self._unnumbered.add(field.name)
            elif self._known.setdefault(field.name, known) != known:
                message = f"{path} has another column {field.name} than other files of {self._note}, {known}"
            elif below := _renamed_below(field.type, self._types[number]):
                message = f"{path} calls a field of {known} {below}, from before it was renamed"
            if message is not None:
                raise ArgumentError(message, file=path, column=known, hint="rewrite the files of the table")
        if clash := self.dropped & set(self.names.values()):
            raise ArgumentError(f"{path} has another column {clash.pop()}, which was dropped", file=path)
        if absent := self._defaults - there:
            raise ArgumentError(f"{path} lacks {sorted(absent)[0]}, which has a default value", file=path)
        return there

    def renames(self) -> dict[str, str]:
        """The names of columns in files that are others than in the table, and the table's."""
        renamed = {old: new for old, new in self._known.items() if old != new}
        if clash := renamed.keys() & (self.dropped | self._unnumbered):
            old = sorted(clash)[0]
            raise ArgumentError(
                f"{self._note} calls {old} in some files what is {renamed[old]} now, and has another column {old} in "
                "others",
                column=renamed[old],
                hint="rewrite the files of the table",
            )
        return renamed


def _field_id(field: Any) -> int:
    """The number that a field has in the table; -1 where the file has none."""
    return int((field.metadata or {}).get(b"PARQUET:field_id", -1))


def _renamed_below(own: Any, wanted: Any) -> str | None:
    """The name that a file has for a field of structs, below a column, which is called otherwise in the table."""
    import pyarrow as pa
    from pyiceberg.types import ListType, MapType, StructType

    pairs: list[tuple[Any, Any]] = []
    if pa.types.is_struct(own) and isinstance(wanted, StructType):
        fields = {field.field_id: field for field in wanted.fields}
        for place in range(own.num_fields):
            field = own.field(place)
            if (known := fields.get(_field_id(field))) is not None:
                if known.name != field.name:
                    return str(field.name)
                pairs.append((field.type, known.field_type))
            elif _field_id(field) >= 0 and any(field.name == other.name for other in wanted.fields):
                return str(field.name)
    elif isinstance(wanted, ListType) and hasattr(own, "value_type"):
        pairs.append((own.value_type, wanted.element_type))
    elif isinstance(wanted, MapType) and pa.types.is_map(own):
        pairs += [(own.key_type, wanted.key_type), (own.item_type, wanted.value_type)]
    return next((found for pair in pairs if (found := _renamed_below(*pair))), None)


__all__ = ["Snapshot", "build_table", "is_table"]
