"""Building an index from the footers of Parquet files."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from .index import Path
from .native.library import Operands, is_remote, waiting
from .progress import Progress, told
from .store import StoreOptions, store_fields


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
    index_bytes: int
    """Length of the index file in bytes."""
    read_files: int
    """Files whose footers were read."""
    requests: int
    """Requests sent to an object store for footers; 0 for local files."""
    footer_bytes: int
    """Bytes of the footers that were read."""
    repeated_files: int = 0
    """How often a file was named again: it is in the index once."""
    unlike_files: int = 0
    """Files with other columns, types, nulls or another order of columns than the first one."""
    unlike_example: str | None = None
    """The first of them, and in what it differs."""
    undecodable_columns: list[str] = []
    """Columns that this version cannot decode, because a newer writer wrote them; all others can be served."""


def reported(report: dict[str, Any], stacklevel: int) -> BuildReport:
    """The report, with a warning of columns that cannot be served."""
    if report["undecodable_columns"]:
        names = ", ".join(report["undecodable_columns"])
        message = f"this version cannot decode {names}, which a newer writer wrote: serve others, by columns=[...]"
        warnings.warn(message, stacklevel=stacklevel)
    return BuildReport(**report)


def build(
    inputs: Path | Iterable[Path],
    output: Path,
    *,
    root: Path | None = None,
    schema: Literal["strict", "union"] = "strict",
    threads: int | None = None,
    overwrite: bool = False,
    update: bool = False,
    footers: bool = True,
    partitions: bool = True,
    rename: Mapping[str, str] | None = None,
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
        schema: ``"strict"`` wants the same columns and types in every file; with ``"union"`` missing columns are
            null and types are widened.
        threads: Threads that read footers. Default: one for each core.
        overwrite: Replaces an existing file.
        update: Updates an existing index: its unchanged leading files keep their row ids.
        footers: Stores footers, so that they need not be read again.
        partitions: Turns folders named ``key=value`` into columns.
        rename: Serves columns of the files by other names: ``{"content": "text"}`` serves what some files call
            ``content`` as ``text``. Only whole columns, in either schema mode. A file may have either name, not both.
            An update keeps the renames of the index.
        lengths: Columns by which the length of each row is recorded, as :meth:`Index.note_lengths` does. An update
            keeps those of the index.
        progress: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in any case,
            ``False`` never. A function is called with files done, files in all, and rows so far.
        store: How the object store is talked to, if the data or the index is in one.

    Raises:
        Error: Which one depends on the fault: a :class:`FormatError`, a :class:`SchemaError`, an
            :class:`AlreadyExistsError`, a :class:`NotFoundError` or another. It names the file.
    """
    inputs = several(inputs)
    build = dict(
        files=inputs,
        output=output,
        root=root,
        schema=schema,
        threads=threads,
        overwrite=overwrite,
        update=update,
        footers=footers,
        partitions=partitions,
        rename=rename,
        lengths=[lengths] if isinstance(lengths, str) else lengths,
        store=store_fields(store),
    )
    with told(progress, "indexing") as tell:
        remote = is_remote(*inputs, output, root)
        report = waiting(remote, lambda: Operands().run(tell, build=build))
    return reported(report, 3)


def several(given: Any) -> list[Any]:
    """One path or several."""
    one = isinstance(given, (str, bytes, os.PathLike)) or not isinstance(given, Iterable)
    return [given] if one else list(given)


__all__ = ["BuildReport", "build"]
