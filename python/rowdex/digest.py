"""Digests of rows: one number for all rows of a dataset, in any order, and the proof that two have the same."""

from __future__ import annotations

import ctypes
from typing import NamedTuple, Union

from . import native
from .dataset import Dataset
from .errors import Error
from .index import Index, Path
from .native.library import Handle, exception_of, library, seed_number, waiting
from .order import Context, Order, open_order
from .progress import Progress, told
from .spec import epoch_number
from .store import StoreOptions

Source = Union[Dataset, Index, Path]


class SameRows(NamedTuple):
    """What :func:`same_rows` found. It is true if all that was asked for is so."""

    digest: str
    """Of the rows of the first dataset, 32 hexadecimal digits."""
    other_digest: str
    """Of the rows of the other one."""
    difference: Error | None
    """What is not so, with an order with the ``file`` and ``row_group`` of rows that differ; ``None`` if all is so."""

    def __bool__(self) -> bool:
        return self.difference is None


def rows_digest(dataset: Source, *, store: StoreOptions | None = None, progress: Progress = None) -> str:
    """The digest of all rows over the columns that ``dataset`` serves, as 32 hexadecimal digits: 128 bits a row, added
    up modulo 2^128. It depends on the values, and not on the order of the rows, on files, row groups or encodings;
    ``docs/digests.md`` specifies it. Reads and decodes these columns once.

    Args:
        dataset: A dataset, or an index for all of its columns.
        store: How the object store is talked to that the index is in.
        progress: ``None`` shows a bar if tqdm is installed and standard error is a terminal, ``True`` in any case,
            ``False`` never. A function is called with rows read, rows to read, and 0.

    Raises:
        SchemaError: for a column of a type that has no digest.
    """
    return _digest(_digested(_opened(dataset, store), native.DigestOptions(), progress)[0])


def same_rows(
    dataset: Source,
    other: Source,
    *,
    order: Order | None = None,
    seed: int = 0,
    epoch: int = 0,
    store: StoreOptions | None = None,
    progress: Progress = None,
) -> SameRows:
    """Whether every row of ``dataset`` is once in ``other`` over the columns that both serve, and nothing else is; with
    an order, whether row ``i`` of ``other`` is row ``order(i)`` of ``dataset``. ::

        assert rowdex.digest.same_rows("train.rdx", "shuffled.rdx", order="global", seed=42)

    Reads and decodes each row of both once, in the memory of a few chunks of rows.

    Args:
        dataset: A dataset, or an index for all of its columns.
        other: The one that it is compared with.
        order: As for :class:`rowdex.DistributedSampler`, over the rows of ``dataset``. Default: any order.
        seed: The seed of the order.
        epoch: Its epoch.
        store: How the object store is talked to that an index is in.
        progress: As for :func:`rows_digest`, of both.

    Raises:
        ArgumentError: if they have no column in common; SchemaError: for a column that has values of another kind in
            ``other``, or of a type that has no digest.
    """
    first, second = _opened(dataset, store), _opened(other, store)
    options = native.DigestOptions(other=second._pointer.address, epoch=epoch_number(epoch))
    handle = None
    if order is not None:
        handle = open_order(order, Context(first, len(first), seed_number(seed)))
        options.order = handle.address
    info, difference = _digested(first, options, progress, remote=second._remote)
    del handle
    return SameRows(_digest(info), f"{info.other_high:016x}{info.other_low:016x}", difference)


def _opened(source: Source, store: StoreOptions | None) -> Dataset:
    if isinstance(source, Dataset):
        return source
    return Dataset(source, cache=1) if store is None else Dataset(source, cache=1, store=store)


def _digested(
    dataset: Dataset, options: native.DigestOptions, progress: Progress, *, remote: bool = False
) -> tuple[native.DigestInfo, Error | None]:
    info = native.DigestInfo()
    with told(progress, "reading", "rows") as options.progress:
        arguments = (dataset._pointer, ctypes.byref(options), ctypes.byref(info))

        def work() -> Error | None:
            difference = Handle(library.dataset_digest, *arguments)
            return exception_of(difference) if difference else None

        # Long enough for Ctrl-C to be listened for, wherever the data is.
        return info, waiting(True, work)


def _digest(info: native.DigestInfo) -> str:
    return f"{info.high:016x}{info.low:016x}"


__all__ = ["SameRows", "rows_digest", "same_rows"]
