"""The row ids of an epoch, one by one."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterator
from typing import Any

from ..native.library import call, library

_CHUNK = 4096


class SampledRows(Iterator[int]):
    """The row ids of an epoch, which begins when the first of them is asked for.

    torchdata's ``StatefulDataLoader`` saves the state of the sampler, and that of this iterator, which adds what the
    sampler does not say: whether all rows were handed out, and which one comes next where that is within a batch.
    """

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self._rows: Iterator[int] | None = None
        self._ended = False
        # The epoch that is handed out, and its number of steps.
        self._end: tuple[int, int] | None = None
        # The epoch, and how many rows of it this rank has handed out.
        self._place: tuple[int, int] | None = None

    def __next__(self) -> int:
        if self._ended:
            self._over()
            raise StopIteration
        if self._rows is None:
            # Which this has, and is not kept alive by.
            self._rows = SampledRows._of_epoch(weakref.proxy(self))
        return next(self._rows)

    def _of_epoch(self) -> Iterator[int]:
        sampler = self._sampler
        epoch = sampler._begin()
        info, size = sampler._info(epoch), sampler.spec.batch_size
        total, served = info["len"], info["steps"] - info["steps_left"]
        begin = total - info["samples_left"]
        start = begin
        if self._place is not None and self._place[0] == epoch:
            start = min(max(begin, self._place[1]), total)
        self._end = (epoch, info["steps"])
        for first in range(start, total, _CHUNK):
            rows = (ctypes.c_uint64 * min(_CHUNK, total - first))()
            call(library.sampler_fill, sampler._at(epoch), epoch, first, len(rows), ctypes.addressof(rows), None)
            for p, row in enumerate(rows, first + 1):
                # The last step may have fewer rows, and a step that this rank has no row of is over with the iteration.
                rows_over = p - begin if p < total else -(-(p - begin) // size) * size
                sampler._served = (epoch, served + rows_over // size)
                # A step of others may be left, which only an iterator that goes on sees the end of.
                self._place, self._ended = (epoch, p), p == total and sampler._served[1] == info["steps"]
                yield row
        self._over()

    def _over(self) -> None:
        """Has the sampler stand at the end of the epoch that this was of."""
        end, self._end = self._end, None
        if end is not None and self._sampler._served[0] == end[0]:
            self._sampler._served, self._ended = end, True

    def state_dict(self) -> dict[str, Any]:
        epoch, rows = (None, 0) if self._place is None else self._place
        return {"ended": self._ended, "epoch": epoch, "rows": rows, "world_size": self._sampler.num_replicas}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._ended = bool(state_dict["ended"])
        epoch = state_dict.get("epoch")
        # Another number of ranks goes on from the last whole batch, where the sampler stands.
        if epoch is not None and state_dict.get("world_size") == self._sampler.num_replicas:
            self._place = (int(epoch), int(state_dict["rows"]))
