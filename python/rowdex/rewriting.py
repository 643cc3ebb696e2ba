"""Writing rows again, as Parquet files in another order: what ``rowdex rewrite`` does."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Literal, NamedTuple, Union

from .dataset import Dataset
from .digest import same_rows
from .errors import ArgumentError
from .id_set import IdSet
from .index import Index, Path
from .native.library import Operands, seed_number, size, waiting
from .order import Context, Order, Subset, open_order
from .progress import Progress, told
from .store import StoreOptions

Source = Union[Dataset, Index, Path]
Step = Literal["spill", "write", "index"]


class RewriteReport(NamedTuple):
    """What :func:`rewrite` wrote."""

    rows: int
    """Rows that were written, or are in files that were there already."""
    files: int
    """Output files."""
    kept_files: int
    """Files that were finished before, by a call that this one resumes."""
    bytes_written: int
    """Bytes of the files that this call wrote."""
    bytes_spilled: int
    """Bytes that this call spilled."""
    index_path: str | None
    """The index of the output; ``None`` from a step that does not write it."""
    rows_digest: str | None
    """With ``verify``: the digest of the rows, as :func:`rowdex.rows_digest` has it."""


def rewrite(
    source: Source,
    output: Path,
    *,
    seed: int = 0,
    order: Order = "global",
    where: str | None = None,
    columns: Sequence[str] | None = None,
    root: Path | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    files: int | None = None,
    file_bytes: int | str | None = None,
    row_group_rows: int | None = None,
    page_bytes: int | str | None = None,
    compression: str | None = None,
    origin: str | None = None,
    spill: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    verify: bool = False,
    step: Step | None = None,
    task: int = 0,
    tasks: int = 1,
    progress: Progress = None,
    store: StoreOptions | None = None,
) -> RewriteReport:
    """Writes the rows again, as Parquet files of a folder or of a store with an index, ``index.rdx``: row ``i`` of the
    output is row ``order(i)`` of the source, in epoch 0. ::

        rowdex.rewrite("train.rdx", "shuffled", seed=42, memory="4GiB", verify=True)

    ``docs/rewriting.md`` says what is written, when it pays and what it takes. Ctrl-C ends it, and ``resume=True``
    resumes after what was finished.

    Args:
        source: A dataset, or an index.
        output: The folder to write to, or a prefix of a store, such as ``"s3://bucket/shuffled/"``.
        seed: The seed of the order.
        order: As for :class:`rowdex.DistributedSampler`: ``"global"``, ``"blocks(8)"``, ``"sequential"``, or one of
            :mod:`rowdex.order`, such as a list of rows.
        where: Writes only rows that meet this condition in SQL.
        columns: Writes only these columns. Default: those that the dataset serves.
        root: Finds the data files below this directory, where ``source`` is an index.
        memory: Bytes of rows to hold: a number, or a text such as ``"4GiB"``. Default: 1 GiB.
        threads: Threads that decode and encode. Default: one for each core, at most eight.
        files: Writes this number of files, of equal numbers of rows or one row more.
        file_bytes: Writes files of about this size. Default: 512 MiB.
        row_group_rows: Rows of a row group. Default: such that it takes 32 MiB in memory.
        page_bytes: Bytes of values of a page. Default: 128 KiB, and 1 MiB where a value takes 4 KiB or more.
        compression: ``"none"``, ``"snappy"``, ``"lz4"``, ``"zstd"`` or ``"zstd:LEVEL"``. Default: for each column what
            makes a sample smallest.
        origin: Adds a column of this name with the row ids of the source.
        spill: Spills rows to a folder in this one, which is local. Default: in ``output``, if that is local.
        resume: Resumes from what an earlier call left in ``output``, if there is any.
        overwrite: Replaces what an earlier call wrote there.
        verify: Reads both once more, and raises unless every row is where it belongs.
        step: Does one step of the work alone, where several machines share it: all tasks of ``"spill"``, then all of
            ``"write"``, then ``"index"``.
        task: The number of this task of the step, from 0.
        tasks: How many share the step.
        progress: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in any case,
            ``False`` never. A function is called with rows done, rows in all (of both passes together), and
            bytes that were spilled and written.
        store: How the object store is talked to, if the source or ``output`` is in one. A dataset has its own.

    Raises:
        Error: Which one depends on the fault: an :class:`AlreadyExistsError` if ``output`` has something, a
            :class:`StateError` if another rewrite is to be resumed, an :class:`ArgumentError`, or what reading raises.
    """
    if verify and step not in (None, "index"):
        raise ValueError("verify reads what is written: it is for the whole, or for step='index'")
    if isinstance(source, Dataset):
        if root is not None or store is not None:
            raise TypeError("root and store are those of the dataset: leave them out")
        chosen = source if columns is None else source.select(columns)
        given: contextlib.AbstractContextManager[Dataset] = contextlib.nullcontext(chosen)
    else:
        given = Dataset(source, columns, root=root, cache=1, threads=threads, store=store)
    with given as dataset:
        if where is not None:
            kept = IdSet.where(dataset, where)
            if len(kept) == 0:
                raise ArgumentError(f"no row meets the condition: {where}")
            order = Subset(order, kept)
        orders = open_order(order, Context(dataset, len(dataset), seed_number(seed)))
        rewrite = dict(
            output=output,
            memory=size(memory, "memory") or None,
            threads=threads,
            files=files,
            file_bytes=size(file_bytes, "file_bytes") or None,
            row_group_rows=row_group_rows,
            page_bytes=size(page_bytes, "page_bytes") or None,
            compression=compression,
            origin=origin,
            spill=spill,
            step=step,
            task=[task, tasks] if (task, tasks) != (0, 1) else None,
            resume=resume,
            overwrite=overwrite,
        )
        with told(progress, "shuffling", "rows", "bytes") as tell:
            operands = Operands(dataset=dataset._pointer, order=orders)
            # Long enough for Ctrl-C to be listened for, wherever the data is.
            made = waiting(True, lambda: operands.run(tell, rewrite=rewrite))
        index = made.pop("index")
        digest = _proven(dataset, index, order, seed, progress) if verify and index is not None else None
        return RewriteReport(**made, index_path=index, rows_digest=digest)


def _proven(dataset: Dataset, index: str, order: Order, seed: int, progress: Progress) -> str:
    """The digest of the output, if that has the rows of the dataset in their order."""
    written = Dataset(index, cache=1, store=dataset._arguments["store"])
    found = same_rows(dataset, written, order=order, seed=seed, progress=progress)
    if found.difference is not None:
        raise found.difference
    return found.other_digest


__all__ = ["RewriteReport", "rewrite"]
