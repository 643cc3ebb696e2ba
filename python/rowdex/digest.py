"""Digests of rows: one number for all rows of a dataset, in any order, and the proof that two have the same."""

from __future__ import annotations

from typing import Any, NamedTuple, Union

from .dataset import Dataset
from .errors import Error
from .index import Index, Path
from .native.library import Operands, exception_of, seed_number, waiting
from .order import Context, Order, open_order
from .progress import Progress, told
from .spec import epoch_number
from .store import StoreOptions

Source = Union[Dataset, Index, Path]


class SameRows(NamedTuple):
    """What :func:`same_rows` found. It is true if nothing differs."""

    digest: str
    """Of the rows of the first dataset, 32 hexadecimal digits."""
    other_digest: str
    """Of the rows of the other one."""
    difference: Error | None
    """What differs, with an order with the ``file`` and ``row_group`` of rows that differ; ``None`` if nothing does."""

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
    found: str = _digested(Operands(dataset=_opened(dataset, store)._pointer), {}, progress)["digest"]
    return found


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

        assert rowdex.same_rows("train.rdx", "shuffled.rdx", order="global", seed=42)

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
    number = epoch_number(epoch)
    orders = None if order is None else open_order(order, Context(first, len(first), seed_number(seed)))
    operands = Operands(dataset=first._pointer, other=second._pointer, order=orders)
    found = _digested(operands, {"epoch": None if order is None else number}, progress)
    difference = found["difference"]
    return SameRows(
        found["digest"], found["other_digest"], None if difference is None else exception_of(difference)
    )


def _opened(source: Source, store: StoreOptions | None) -> Dataset:
    if isinstance(source, Dataset):
        return source
    return Dataset(source, cache=1) if store is None else Dataset(source, cache=1, store=store)


def _digested(operands: Operands, digest: dict[str, Any], progress: Progress) -> dict[str, Any]:
    with told(progress, "reading", "rows") as tell:
        # Long enough for Ctrl-C to be listened for, wherever the data is.
        return waiting(True, lambda: operands.run(tell, digest=digest))


__all__ = ["SameRows", "rows_digest", "same_rows"]
