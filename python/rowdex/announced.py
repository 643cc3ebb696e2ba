"""Rows in an order that a sampler of one's own announces."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from . import native
from .batch import Batch
from .errors import ClosedError
from .native.library import Handle, call, count, library, not_pickled, size, waiting


class AnnouncedStats(NamedTuple):
    """What an :class:`Announced` did so far. From ``decodes`` on: since it last began to read ahead; times in seconds,
    added up over its threads.
    """

    announced: int
    """Rows announced."""
    waiting: int
    """Announced rows that are ahead of the farthest one taken."""
    followed: int
    """Rows served as they were announced."""
    fell_back: int
    """Rows served as :meth:`Dataset.take` does, because they were not announced here, or could not be read when they
    were due.
    """
    skipped: int
    """Rows announced, passed over, and no longer waited for."""
    decodes: int
    """Row groups decoded for announced rows, whole or in part."""
    rows: int
    """Rows put together; some of them may wait to be asked for."""
    held_bytes: int
    """Bytes held now."""
    peak_bytes: int
    """The most that was ever held."""
    planning: float
    """Walking the order and deciding what to read."""
    decoding: float
    """Reading and decoding."""
    extracting: float
    """Picking rows out of what was decoded."""
    assembling: float
    """Putting rows together."""


class Announced:
    """Serves rows in an order that was announced, from memory, and any others as :meth:`Dataset.take` does: from
    :meth:`Dataset.plan`.

    Rows count as announced as long as they are asked for in about that order, in portions of any size; the values are
    the same in any case. One thread at a time; in a forked process, plan again.
    """

    def __init__(
        self, dataset: Any, rows: Any, *, memory: int | str | None, threads: int | None, portion: int | None
    ) -> None:
        if portion is not None and portion < 1:
            raise ValueError(f"portion is {portion}: use 1 or more")
        self.dataset = dataset
        """The :class:`Dataset` whose rows they are."""
        options = native.AnnouncedOptions(
            memory=size(memory, "memory"), threads=count(threads, "threads"), portion=portion or 0
        )
        ids = dataset._row_ids(rows)
        pointer = dataset._pointer
        self._handle: Handle | None = waiting(
            dataset._remote,
            lambda: Handle(
                library.announced_free, library.dataset_plan, pointer, *ids.buffer_info(), ctypes.byref(options)
            ),
        )
        self._schema = dataset.schema
        self._pid = os.getpid()

    @property
    def _pointer(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise ClosedError("the plan is closed")
        if handle.inherited:
            raise RuntimeError(f"planned in process {self._pid}, and this is a fork of it: plan again here")
        return handle

    def announce(self, rows: Any) -> None:
        """Says what will be asked for after all that was announced before. Early is better: a short announcement means
        more decodes.
        """
        ids = self.dataset._row_ids(rows)
        call(library.announced_announce, self._pointer, *ids.buffer_info())

    def take(self, rows: Any) -> Batch:
        """Rows in the order asked, whether they were announced or not, as :meth:`Dataset.take` has them."""
        ids = self.dataset._row_ids(rows)
        pointer = self._pointer
        handle = waiting(
            self.dataset._remote,
            lambda: Handle(library.batch_free, library.announced_take, pointer, *ids.buffer_info()),
        )
        return Batch(handle, self._schema)

    def clear(self) -> None:
        """Forgets what was announced and not taken, as when an epoch is abandoned."""
        call(library.announced_clear, self._pointer)

    @property
    def stats(self) -> AnnouncedStats:
        """What it did so far."""
        found = native.AnnouncedStats()
        call(library.announced_get_stats, self._pointer, ctypes.byref(found))
        counts = (int(getattr(found, name)) for name in AnnouncedStats._fields[:9])
        times = (getattr(found, f"{name}_ns") / 1e9 for name in AnnouncedStats._fields[9:])
        return AnnouncedStats(*counts, *times)

    @property
    def waiting(self) -> int:
        """How many announced rows are ahead of the farthest one taken."""
        return self.stats.waiting

    def close(self) -> None:
        """Ends its threads and lets go of what it holds. A thread that waits in it gets :class:`ClosedError`."""
        handle, self._handle = self._handle, None
        if handle is not None and not handle.inherited:
            library.announced_close(handle)

    def __enter__(self) -> Announced:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Announced({self.dataset!r})"

    def __reduce__(self) -> Any:
        return not_pickled("a plan is not pickled: plan again in the other process")


__all__ = ["Announced", "AnnouncedStats"]
