"""Batches that functions are applied to on threads, handed out in order."""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from ..batch import Batch
from ..errors import ClosedError
from .engine import LibraryLoader
from .functions import kept


class Mapping:
    """The batches of a loader after a function, which ``threads`` threads call for one batch each.

    At most ``2 * threads`` batches are looked at and not handed out. An error comes at the step of its batch.
    """

    def __init__(
        self, threads: int, entering: Callable[[], Callable[[], None]], failed: list[Exception]
    ) -> None:
        """``entering`` is called by the thread that begins an iteration, and returns what each of its threads calls
        first. ``failed`` takes errors."""
        self._threads, self._entering, self._failed = threads, entering, failed
        self._pool: ThreadPoolExecutor | None = None
        # What the last iteration waits for.
        self._due: deque[Future[tuple[Any, int]]] = deque()

    def close(self) -> None:
        """Lets no thread begin with another batch. Who waits for a batch gets :class:`ClosedError`."""
        pool, self._pool = self._pool, None
        for future in list(self._due):
            # It is not one of the pool, which cancels none that was begun.
            future.cancel()
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

    def epoch(
        self, loader: LibraryLoader, epoch: int, step: int, make: Callable[[Batch], Any], finish: Callable[[Any], Any]
    ) -> Generator[tuple[Any, int], None, None]:
        """What ``make`` gives for the batches of an epoch from a step on, and how many rows each has. ``finish`` is
        called with it by the thread that asks.
        """
        info, process = loader.info(), os.getpid()
        pool = self._pool = ThreadPoolExecutor(self._threads, "rowdex-map", self._entering()) if self._threads else None
        due = self._due = deque()
        ahead, end, begins_at_end = step, int(info.steps), step >= info.steps
        try:
            while step < info.steps:
                try:
                    if process != os.getpid():
                        raise ClosedError(
                            "this iteration belongs to the process that this one was forked from: begin another one"
                        )
                    while ahead < end and len(due) < max(1, 2 * self._threads):
                        due.append(_begun(pool, loader, epoch, ahead, make))
                        ahead += 1
                        if due[-1].done() and due[-1].exception() is not None:
                            # Nothing comes after it.
                            end = ahead
                    made, rows = due[0].result()
                    found = (finish(made), rows)
                except ClosedError:
                    raise
                except Exception as error:
                    if isinstance(error, CancelledError) or self._pool is not pool:
                        raise ClosedError("the loader was closed") from None
                    self._failed.append(kept(error))
                    raise
                due.popleft()
                loader.advance(epoch, step)
                step += 1
                yield found
            if begins_at_end:
                # The epoch is over before it has begun.
                loader.peek(epoch, step, 1)
        finally:
            # When the interpreter ends, what a shutdown uses may be gone already, and so are the threads.
            if pool is not None and process == os.getpid() and not sys.is_finalizing():
                pool.shutdown(wait=False, cancel_futures=True)
            # An error has this frame, and what is due may have the error.
            due.clear()


def _begun(
    pool: ThreadPoolExecutor | None, loader: LibraryLoader, epoch: int, step: int, make: Callable[[Batch], Any]
) -> Future[tuple[Any, int]]:
    """What will be made of the batch of a step."""
    future: Future[tuple[Any, int]] = Future()
    try:
        batch = loader.peek(epoch, step, 1)
        work = [make, batch, future]
        if pool is None:
            _make(work)
        else:
            pool.submit(_make, work)
    except Exception as error:
        future.set_exception(error)
    try:
        return future
    finally:
        # An error has this frame.
        del future


def _make(work: list[Any]) -> None:
    """Makes something of a batch for a future. Frames of errors may hold what they are given: nothing is left in it."""
    make, batch, future = work
    work.clear()
    try:
        found = make(batch), len(batch)
    except BaseException as error:
        if not future.cancelled():
            future.set_exception(error)
    else:
        if not future.cancelled():
            future.set_result(found)
    finally:
        del make, batch, future
