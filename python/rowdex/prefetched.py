"""Rows prefetched in the order of the caller's sampler."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from . import native
from .batch import Batch
from .errors import ClosedError
from .native.library import Handle, call, count, library, not_pickled, size, told_of, waiting


class PrefetchedStats(NamedTuple):
    """What a :class:`Prefetched` did so far. From ``decodes`` on: since it last began to read ahead."""

    prefetched: int
    """Rows prefetched."""
    waiting: int
    """Prefetched rows that were not taken yet."""
    followed: int
    """Rows that followed, served from memory."""
    fell_back: int
    """Rows served as :meth:`Dataset.take` does, because others come next, or because they could not be read when they
    were needed.
    """
    decodes: int
    """Row groups decoded for prefetched rows, whole or in part."""
    held_bytes: int
    """Bytes held now."""
    peak_bytes: int
    """The most that was ever held."""


class Prefetched:
    """Serves rows in the order in which they were prefetched, and any others as :meth:`Dataset.take` does: from
    :meth:`Dataset.prefetch`.

    A call for exactly the rows that come next, any number of them, is served from memory, and any other call as
    :meth:`Dataset.take` does; the values are the same in any case. One thread at a time; in a forked process,
    prefetch again.
    """

    def __init__(
        self, dataset: Any, rows: Any, *, memory: int | str | None, threads: int | None
    ) -> None:
        self.dataset = dataset
        """The :class:`Dataset` whose rows they are."""
        options = native.PrefetchedOptions(memory=size(memory, "memory"), threads=count(threads, "threads"))
        ids = dataset._row_ids(rows)
        pointer = dataset._pointer
        given = (pointer, *ids.buffer_info(), ctypes.byref(options))
        self._handle: Handle | None = waiting(
            dataset._remote, lambda: Handle(library.dataset_prefetch, *given)
        )
        self._schema = dataset.schema
        self._pid = os.getpid()

    @property
    def _pointer(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise ClosedError("the prefetched rows are closed")
        if handle.inherited:
            raise RuntimeError(f"prefetched in process {self._pid}, and this is a fork of it: prefetch again here")
        return handle

    def prefetch(self, rows: Any) -> None:
        """Says what will be asked for after all that was prefetched before. Early is better: few rows mean
        more decodes.
        """
        ids = self.dataset._row_ids(rows)
        call(library.prefetched_prefetch, self._pointer, *ids.buffer_info())

    def take(self, rows: Any) -> Batch:
        """Rows in the order asked, whether they were prefetched or not, as :meth:`Dataset.take` has them."""
        ids = self.dataset._row_ids(rows)
        pointer = self._pointer
        handle = waiting(
            self.dataset._remote,
            lambda: Handle(library.take, pointer, *ids.buffer_info()),
        )
        return Batch(handle, self._schema)

    def clear(self) -> None:
        """Forgets what was prefetched and not taken, as when an epoch is abandoned."""
        call(library.prefetched_clear, self._pointer)

    @property
    def stats(self) -> PrefetchedStats:
        """What it did so far."""
        found = told_of(self._pointer)
        return PrefetchedStats(*(found[name] for name in PrefetchedStats._fields))

    @property
    def waiting(self) -> int:
        """How many prefetched rows were not taken yet."""
        return self.stats.waiting

    def close(self) -> None:
        """Ends its threads and frees what it holds. A thread that waits in it gets :class:`ClosedError`."""
        handle, self._handle = self._handle, None
        if handle is not None and not handle.inherited:
            library.close(handle)

    def __enter__(self) -> Prefetched:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Prefetched({self.dataset!r})"

    def __reduce__(self) -> Any:
        return not_pickled("prefetched rows are not pickled: prefetch again in the other process")


__all__ = ["Prefetched", "PrefetchedStats"]
