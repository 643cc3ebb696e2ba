"""Whole passes over a dataset in the order of its rows, for those who read all of it and shuffle nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Protocol

from .. import native
from ..batch import Batch
from ..native.library import Handle, Operands, count, library, loader_options, size, waiting
from ..schema import Schema

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 65_536


class Source(Protocol):
    """A :class:`rowdex.Dataset`, which begins passes itself."""

    @property
    def schema(self) -> Schema: ...
    @property
    def decoded_bytes(self) -> int: ...
    @property
    def _pointer(self) -> Handle: ...
    @property
    def _remote(self) -> bool: ...
    def __len__(self) -> int: ...


def batch_rows(dataset: Source) -> int:
    """Rows that take about 16 MiB when decoded, and 65,536 at most."""
    decoded, rows = dataset.decoded_bytes, len(dataset)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(decoded, 1)))


def begin(
    dataset: Source,
    rows: int | None = None,
    *,
    rank: int = 0,
    world_size: int = 1,
    memory: int | str | None = None,
    threads: int | None = None,
) -> Handle:
    """A loader of the library that serves one pass in batches of so many rows, and ends. It reads nothing yet.

    Each rank gets one consecutive piece of the rows, and pieces differ by one row at most.
    """
    orders = Operands().make(library.order_new, {"order": "sequential", "rows": len(dataset)})
    sampling = native.SamplerOptions(
        rank=rank, world_size=world_size, batch_size=batch_rows(dataset) if rows is None else rows,
        tail=b"uneven", partition=b"contiguous",
    )  # fmt: skip
    sampler = Handle(library.sampler_new, orders, ctypes.byref(sampling))
    options = loader_options(memory=size(memory, "memory"), threads=count(threads, "threads"), epochs=1)
    arguments = (dataset._pointer, sampler, ctypes.byref(options))
    return waiting(dataset._remote, lambda: Handle(library.loader_new, *arguments))


def batches(loader: Handle, dataset: Source) -> Iterator[Batch]:
    """The batches of a loader from :func:`begin`."""
    while found := waiting(dataset._remote, lambda: Handle(library.loader_next, loader)):
        yield Batch(found, dataset.schema)


def piece(dataset: Source, rank: int, world_size: int) -> range:
    """The rows of a rank in a pass of :func:`begin`."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}: ranks count from 0")
    each, more = divmod(len(dataset), world_size)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))
