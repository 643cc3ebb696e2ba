"""Building an index from the footers of Parquet files."""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from . import native
from .index import Path
from .native.library import (
    call,
    count,
    is_remote,
    library,
    optional_path,
    optional_text,
    path_bytes,
    text_bytes,
    texts,
    waiting,
)
from .progress import Progress, told
from .store import StoreOptions, store_pointer


class BuildReport(NamedTuple):
    """What :func:`build` made."""

    files: int
    """Files in the index."""
    kept_files: int
    """Files that keep the row ids they had in the index that was updated."""
    row_groups: int
    """Row groups in the index."""
    rows: int
    """Rows served: row ids are 0 up to ``rows - 1``."""
    source_rows: int
    """Rows in those row groups; more than ``rows`` where rows were selected."""
    index_bytes: int
    """Length of the index file in bytes."""
    read_files: int
    """Files whose footers were read."""
    requests: int
    """Requests sent to an object store for footers; 0 for local files."""
    footer_bytes: int
    """Bytes of the footers that were read."""
    differences: tuple[str, ...] = ()
    """In what files differ from the schema that is served: other names, missing columns, nulls, types and order."""
    repeated_files: int = 0
    """How often a file was named that was named already: it is in the index once."""


def build(
    inputs: Path | Iterable[Path],
    output: Path,
    *,
    root: Path | None = None,
    schema_mode: Literal["strict", "union"] = "strict",
    rows_file: Path | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    update: bool = False,
    footers: bool = True,
    partitions: bool = True,
    rename: Mapping[str, str] | None = None,
    slice: tuple[int, int] | None = None,
    parts: Iterable[Path] = (),
    lengths: Iterable[str] = (),
    progress: Progress = None,
    store: StoreOptions | None = None,
) -> BuildReport:
    """Builds the index at ``output`` from the footers of Parquet files: about one read for each file.

    The path holds what it held, or the whole new index, at any moment.

    Args:
        inputs: Files, folders (searched for ``*.parquet``, ``*.parq`` and ``*.pq``) and patterns, or URLs of these in a
            store (``"s3://bucket/data/"``, ``"hf://datasets/owner/name"``), one or several. Folders
            of Delta Lake and Iceberg tables are refused, because their files have rows that were deleted:
            ``examples/with_delta.py`` and ``examples/with_iceberg.py`` index what is left.
        root: Stores paths relative to this directory, which must contain all files. Default: the deepest one that does.
        schema_mode: ``"strict"`` wants the same columns and types in every file; with ``"union"`` missing columns are
            null and types are widened.
        rows_file: Serves only the rows that this file lists, as :func:`rowdex.select` takes it; none may be listed
            twice.
        threads: Threads that read footers. Default: one for each core.
        overwrite: Replaces an existing file.
        update: Updates an existing index: its unchanged leading files keep their row ids.
        footers: Stores footers, so that nobody reads them again.
        partitions: Turns folders named ``key=value`` into columns.
        rename: Serves columns of the files by other names: ``{"content": "text"}`` serves what some files call
            ``content`` as ``text``. Only whole columns, in either schema mode. A file may have either name, not both.
            An update goes on with the renames of the index.
        slice: ``(3, 64)`` indexes slice 3, counted from 0, of 64 of the sorted list of files alone, as a part of the
            whole.
        parts: Indexes of such slices: files that are as recorded there are not read. The index has the very bytes that
            it has without them. They must have footers and the same root, and select no rows.
        lengths: Columns by which it is noted how long rows are, as :meth:`Index.note_lengths` does. An update goes on
            with those of the index.
        progress: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in any case,
            ``False`` never. A function is called with files done, files in all, and rows so far.
        store: How the object store is talked to, if the data or the index is in one.

    Raises:
        Error: Which one depends on the fault: a :class:`FormatError`, a :class:`SchemaError`, an
            :class:`AlreadyExistsError`, a :class:`NotFoundError` or another. It names the file.
    """
    columns = [text_bytes(name, "lengths") for name in ([lengths] if isinstance(lengths, str) else lengths)]
    encoded, encoded_parts = _paths(inputs, "inputs"), _paths(parts, "parts")
    if slice is not None and not 0 <= slice[0] < slice[1]:
        raise ValueError(f"slice={slice}: there is no such slice; (0, 8) is the first of eight")
    old_names = [text_bytes(name, "rename") for name in rename or ()]
    new_names = [text_bytes(name, "rename") for name in (rename or {}).values()]
    options = native.BuildOptions(
        inputs=texts(encoded),
        num_inputs=len(encoded),
        root=optional_path(root),
        schema_mode=optional_text(schema_mode, "schema mode"),
        rows_file=optional_path(rows_file),
        threads=count(threads, "threads"),
        overwrite=overwrite,
        update=update,
        no_footers=not footers,
        no_partitions=not partitions,
        store=store_pointer(store),
        parts=texts(encoded_parts) if encoded_parts else None,
        num_parts=len(encoded_parts),
        slice=slice[0] if slice else 0,
        slices=slice[1] if slice else 0,
        renames_from=texts(old_names) if rename else None,
        renames_to=texts(new_names) if rename else None,
        num_renames=len(old_names),
        lengths=texts(columns) if columns else None,
        num_lengths=len(columns),
    )
    report = native.BuildReport()
    differences: list[str] = []
    options.difference = native.Difference(lambda _, text: differences.append(text.decode()))
    with told(progress, "indexing") as options.progress:
        remote = is_remote(*encoded, output, root, *encoded_parts)
        build_to = (path_bytes(output), ctypes.byref(options), ctypes.byref(report))
        waiting(remote, lambda: call(library.index_build, *build_to))
    counts = {name: getattr(report, name) for name in BuildReport._fields if name != "differences"}
    return BuildReport(**counts, differences=tuple(differences))


def part(paths: list[str], slice: tuple[int, int], shared: dict[str, Any]) -> bytes:
    """The bytes of an index of a slice of the files, for a task on another machine."""
    with tempfile.TemporaryDirectory(prefix="rowdex-part-") as folder:
        path = os.path.join(folder, "part.rdx")
        build(paths, path, slice=slice, progress=False, **shared)
        with open(path, "rb") as file:
            return file.read()


def _paths(given: Any, name: str) -> list[bytes]:
    """One path or several."""
    one = isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Iterable)
    paths: list[Any] = [given] if one else list(given)
    if not all(isinstance(path, (str, bytes, os.PathLike)) for path in paths):
        raise TypeError(f"{name} are {given!r}: give a path, or several")
    return [path_bytes(path) for path in paths]


__all__ = ["BuildReport", "build"]
