"""Views: choosing the rows of an index, and writing them down as another index of the same files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple, Union

from .dataset import Class, Dataset
from .id_set import IdSet, Side, listed
from .index import Index, Path
from .native.library import Handle, Operands, is_remote, seed_number, waiting
from .progress import Progress, told
from .store import StoreOptions, store_fields

Rows = Union[Path, IdSet, Any]
"""A file that lists rows, a set of them, or any object with ``__arrow_c_stream__``."""


class SelectReport(NamedTuple):
    """What :func:`select` made."""

    rows: int
    """Rows that the view serves: row ids are 0 up to ``rows - 1``."""
    base_rows: int
    """Rows that the base serves."""
    source_rows: int
    """Rows of the files, served or not."""
    repeated: int
    """How often lists had rows beyond the first time."""
    unserved: int
    """Listed rows that are in the files and that the base does not serve."""
    index_bytes: int
    """Length of the view in bytes."""


def select(
    base: Index | Path,
    output: Path,
    *,
    rows: Rows | None = None,
    skip: Rows | None = None,
    where: str | None = None,
    root: Path | None = None,
    intersect: Index | Path | Iterable[Index | Path] = (),
    exclude: Index | Path | Iterable[Index | Path] = (),
    union: Index | Path | Iterable[Index | Path] = (),
    sample: float | None = None,
    seed: int = 0,
    split: Side | None = None,
    split_fraction: float | None = None,
    split_by: str | None = None,
    split_seed: int | None = None,
    note: str | None = None,
    overwrite: bool = False,
    progress: Progress = None,
    store: StoreOptions | None = None,
) -> SelectReport:
    """Writes a view to ``output``: an index of the files of ``base`` that serves only some of the rows.

    No data is copied, and none is read but for ``where`` and ``split_by``. Shards of a view are as equal as those of
    any index. The path holds what it held, or the whole view, at any moment. Every choice leaves rows out; only
    ``union`` adds rows, to what all others leave.

    Lists of rows come from any engine: a table with the columns ``file`` and ``row_in_file``, or with ``row_id``. It is
    a Parquet or Arrow file, or an object with ``__arrow_c_stream__``, such as a DuckDB relation, a Polars frame or a
    ``pyarrow`` table. A text has a row id on each line. ``docs/select.md`` has the query for each engine.

    Args:
        rows: Keeps only these rows: a list, or an :class:`IdSet` of the base.
        skip: Leaves out these rows.
        where: Keeps only rows that meet this condition in SQL, such as ``"lang = 'en' and length(text) > 200"``. Reads
            the columns that it needs of rows that the other choices leave, where the footers do not decide.
        root: Where the data is that ``where`` and ``split_by`` read, instead of where the index says.
        intersect: Keeps only rows that these indexes of the same files serve, too.
        exclude: Leaves out the rows that these indexes of the same files serve.
        union: Adds the rows of these indexes of the same files.
        sample: Keeps this fraction of the rows, by a hash: a row stays in the sample when files are appended.
        seed: Of the sample: another one for another seed.
        split: Keeps only this side of a split by hash, ``"train"`` or ``"validation"``, as :meth:`IdSet.split`.
        split_fraction: The part that is for validation. Default: 0.1.
        split_by: Splits by the values of this column, instead of by row id. Reads the column.
        split_seed: Another split for another seed.
        note: Is recorded in the view as the reason for ``rows`` and ``skip``, where these are not files.
        overwrite: Replaces an existing file.
        progress: Of ``where``: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in
            any case, ``False`` never. A function is called with rows decided, rows in all, and 0.
        store: How the object store is talked to, if the view goes to one.

    Raises:
        Error: Which one depends on the fault: an :class:`ArgumentError`, an :class:`OutOfRangeError`, an
            :class:`AlreadyExistsError` or another. It names the file.
    """
    if isinstance(base, (str, os.PathLike)):
        base = Index(base, store=store)
    handle = base._handle.get()
    kept, files, repeated, unserved = _lists(handle, rows, skip)
    operands = Operands([handle])
    if kept is not None and note is None:
        note = "rows given to rowdex.select"
    key = None if split_seed is None else seed_number(split_seed, "split_seed")
    parted = {"side": split, "validation_fraction": split_fraction, "by": split_by, "seed": key}
    select = dict(
        output=output,
        rows=files.get("rows"),
        skip=files.get("skip"),
        note=note,
        intersect=_views(intersect),
        exclude=_views(exclude),
        union=_views(union),
        sample={"fraction": sample, "seed": seed_number(seed)} if sample is not None or seed else None,
        split={name: given for name, given in parted.items() if given is not None} or None,
        where=where,
        root=root,
        overwrite=overwrite,
        kept=kept,
        store=store_fields(store),
    )
    with told(progress if where is not None else False, "selecting", "rows") as tell:
        remote = is_remote(output, root) or base._is_of_a_store
        made = SelectReport(**waiting(remote, lambda: operands.run(tell, select=select)))
    return made._replace(repeated=made.repeated + repeated, unserved=made.unserved + unserved)


def _lists(base: Handle, rows: Rows | None, skip: Rows | None) -> tuple[IdSet | None, dict[str, Any], int, int]:
    """The set of the rows that are listed, if they are not in files; the files, by what they are for; how often rows
    were listed again, and how many that are not served.
    """
    kept: IdSet | None = None
    files: dict[str, Any] = {}
    counts = [0, 0]
    for name, chosen in (("rows", rows), ("skip", skip)):
        if chosen is None:
            continue
        if isinstance(chosen, IdSet):
            found = chosen
        elif hasattr(chosen, "__arrow_c_stream__"):
            found, told_of = listed(base, chosen)
            counts = [one + other for one, other in zip(counts, told_of)]
        elif isinstance(chosen, (str, bytes, os.PathLike)):
            files[name] = chosen
            continue
        else:
            raise TypeError(
                f"{name} is a {type(chosen).__name__}: give a table, a file that lists rows, or for row ids "
                "rowdex.order.IdSet(len(base), ids)"
            )
        found = found if name == "rows" else ~found
        kept = found if kept is None else kept & found
    return kept, files, counts[0], counts[1]


def count(
    index: Index | Path,
    *,
    where: str | None = None,
    by: str | None = None,
    root: Path | None = None,
    threads: int | None = None,
    store: StoreOptions | None = None,
) -> int | dict[Class, int]:
    """How many rows an index has, of those that meet a condition, and of each class: a quick look before training.

    ``count("train.rdx")`` reads nothing. ``count("train.rdx", by="lang")`` is a dict such as
    ``{"de": 120, "en": 900, None: 3}``, ascending by value, as :meth:`Dataset.counts` gives it.

    Args:
        index: The index, which may be a view.
        where: Only rows that meet this condition in SQL, as :func:`select` takes it.
        by: Counts the rows of each class: rows with equal values in this column are one.
        root: Where the data is, instead of where the index says.
        threads: Threads that decode.
        store: How the object store is talked to, if index or data are in one.

    Raises:
        ArgumentError: What is wrong with the condition; SchemaError: for a column whose values are no classes.
    """
    if isinstance(index, Dataset):
        raise TypeError("count of a Dataset: give its index, count(dataset.index); there is dataset.counts(column)")
    with Dataset(index, [], root=root, threads=threads, store=store) as dataset:
        kept = None if where is None else IdSet.where(dataset, where)
        if by is not None:
            return dataset.counts(by, of=kept)
        return len(dataset if kept is None else kept)


def _views(given: Index | Path | Iterable[Index | Path]) -> list[Any]:
    each: list[Any] = [given] if isinstance(given, (Index, str, os.PathLike)) else list(given)
    return [view.path if isinstance(view, Index) else view for view in each]


__all__ = ["Rows", "SelectReport", "count", "select"]
