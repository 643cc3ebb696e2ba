"""Whole passes over a dataset in the order of its rows, for those who read all of it and shuffle nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from ._library import Handle, count, library, loader_options, size, waiting
from .batch import Batch
from .dataset import Dataset
from .sampler import DistributedSampler

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 65_536


def batch_rows(dataset: Dataset) -> int:
    """Rows that take about 16 MiB when decoded, and 65,536 at most."""
    decoded, rows = dataset.decoded_bytes, len(dataset)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(decoded, 1)))


def begin(
    dataset: Dataset,
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
    sampler = DistributedSampler(
        dataset,
        num_replicas=world_size,
        rank=rank,
        shuffle=False,
        tail="uneven",
        partition="contiguous",
        batch_size=batch_rows(dataset) if rows is None else rows,
    )
    options = loader_options(memory=size(memory, "memory"), threads=count(threads, "threads"), epochs=1)
    arguments = (dataset._pointer, sampler._at(0), ctypes.byref(options))
    return waiting(dataset._remote, lambda: Handle(library.loader_free, library.loader_new, *arguments))


def batches(loader: Handle, dataset: Dataset) -> Iterator[Batch]:
    """The batches of a loader from :func:`begin`."""
    while found := waiting(dataset._remote, lambda: Handle(library.batch_free, library.loader_next, loader)):
        yield Batch(found, dataset.schema)


def piece(dataset: Dataset, rank: int, world_size: int) -> range:
    """The rows of a rank in a pass of :func:`begin`."""
    if not 0 <= rank < world_size:
        raise ValueError(f"rank {rank} of {world_size}: ranks count from 0")
    each, more = divmod(len(dataset), world_size)
    start = rank * each + min(rank, more)
    return range(start, start + each + (rank < more))
