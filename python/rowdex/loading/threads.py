"""Batches that functions are applied to on threads, handed out in order.

One loader of the library says where the run stands, and reads nothing. Another one reads ahead of it for the threads.
So what was read and not handed out is never counted.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Generator
from typing import Any

from .. import native
from ..batch import Batch
from ..errors import ClosedError, OutOfRangeError
from ..native.library import Handle, call, library
from ..schema import Schema

_JOIN_SECONDS = 2.0


class Mapping:
    """The batches of a loader after a function, which ``threads`` threads call for one batch each.

    At most ``2 * threads`` batches are read and not handed out. An error comes at the step of its batch, and again in
    every later iteration, until :meth:`forget`.
    """

    def __init__(self, threads: int, entering: Callable[[], Callable[[], None]]) -> None:
        """``entering`` is called by the thread that begins an iteration, and returns what each of its threads calls
        first."""
        self._threads, self._entering = threads, entering
        self._reader: Handle | None = None
        self._last: _Queue | None = None
        self._error: BaseException | None = None

    @property
    def reader(self) -> Handle | None:
        """The loader that reads, in this process."""
        reader = self._reader
        return None if reader is None or reader.inherited else reader

    def forget(self) -> None:
        """Begins anew where the run is said to stand: after a state was loaded."""
        self._stop()
        self._reader = self._error = None

    def close(self) -> None:
        """Ends the threads. A thread that waits for a batch gets :class:`ClosedError`."""
        reader = self.reader
        if reader is not None:
            library.loader_close(reader)
        self._stop()
        self._reader = self._error = None

    def epoch(
        self, run: Handle, epoch: int, step: int, schema: Schema, make: Callable[[Batch], Any]
    ) -> Generator[tuple[Any, int], None, None]:
        """What ``make`` gives for the batches of an epoch from a step on, and how many rows each has. ``run`` says
        where the run stands.
        """
        if self._error is not None:
            raise self._error
        steps = int(_info(run).steps)
        if step >= steps:
            # An epoch without a batch is over before it has begun.
            call(library.loader_set_epoch, run, epoch + 1)
            return
        queue = self._last = _Queue(self._source(run, epoch, step, schema), make, self._threads, self._entering())
        try:
            while step < steps:
                try:
                    found = queue.take()
                except (ClosedError, GeneratorExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    self._error = error
                    raise
                _hand_out(run, epoch, step, steps)
                step += 1
                yield found
        finally:
            queue.stop()

    def _source(self, run: Handle, epoch: int, step: int, schema: Schema) -> _Source:
        last, reader = self._last, self.reader
        if last is not None:
            last.leave()
        if reader is not None:
            try:
                call(library.loader_seek, reader, epoch, step)
            except OutOfRangeError:
                # It was resumed within this epoch, which is to be served whole.
                reader = None
        if reader is None:
            reader = self._reader = Handle(library.loader_free, library.loader_reopen, run)
        return _Source(reader, schema, step, int(_info(run).steps))

    def _stop(self) -> None:
        if self._last is not None:
            self._last.stop()


def _info(loader: Handle) -> native.LoaderInfo:
    info = native.LoaderInfo()
    call(library.loader_get_info, loader, ctypes.byref(info))
    return info


def _hand_out(run: Handle, epoch: int, step: int, steps: int) -> None:
    """Counts a step: the run stands after it then."""
    info = _info(run)
    if (info.epoch, info.step) != (epoch, step):
        raise ClosedError(
            "another iteration over this loader was begun, or it was set to another epoch, before this one ended; "
            "give each iteration a loader of its own",
            hint="give each iteration a loader of its own",
        )
    if step + 1 < steps:
        call(library.loader_seek, run, epoch, step + 1)
    else:
        call(library.loader_set_epoch, run, epoch + 1)


class _Source:
    """The batches of an epoch, which one thread at a time may ask for."""

    def __init__(self, reader: Handle, schema: Schema, step: int, steps: int) -> None:
        self._reader, self._schema = reader, schema
        self.step, self.steps = step, steps

    def next(self) -> Batch:
        handle = Handle(library.batch_free, library.loader_next, self._reader)
        if not handle:
            raise ClosedError("the loader ended before its epoch did")
        return Batch(handle, self._schema)


class _Shared:
    """What the threads of an iteration have in common. They keep nothing else alive."""

    def __init__(
        self, source: _Source, make: Callable[[Batch], Any], ahead: int, enter: Callable[[], None]
    ) -> None:
        self.source, self.make, self.ahead, self.enter = source, make, ahead, enter
        # Whoever holds it asks for the next batch, so batches are numbered in their order.
        self.asking = threading.Lock()
        self.changed = threading.Condition()
        self.next, self.end = source.step, source.steps
        self.wanted = source.step
        self.made: dict[int, tuple[bool, Any]] = {}
        self.stopped = False

    def work(self) -> None:
        """What a thread does."""
        self.enter()
        while True:
            with self.asking:
                with self.changed:
                    while not self.stopped and self.next < self.end and self.next - self.wanted >= self.ahead:
                        self.changed.wait()
                    if self.stopped or self.next >= self.end:
                        return
                    step, self.next = self.next, self.next + 1
                try:
                    batch = self.source.next()
                except BaseException as error:
                    # Nothing comes after it.
                    self.end = step
                    self._put(step, False, error)
                    return
            try:
                found = self.make(batch)
            except BaseException as error:
                self._put(step, False, error)
                return
            self._put(step, True, (found, len(batch)))
            del batch, found

    def _put(self, step: int, fine: bool, found: Any) -> None:
        with self.changed:
            self.made[step] = (fine, found)
            self.changed.notify_all()

    def stop(self) -> None:
        with self.changed:
            self.stopped = True
            # It may be a method of what keeps this alive.
            self.make = _nothing
            self.made.clear()
            self.changed.notify_all()


def _nothing(_: Batch) -> None:
    return None


class _Queue:
    """The batches of an epoch after the function, in order."""

    def __init__(
        self, source: _Source, make: Callable[[Batch], Any], threads: int, enter: Callable[[], None]
    ) -> None:
        self._pid = os.getpid()
        self._source = source
        self._shared = _Shared(source, make, 2 * threads, enter)
        names = [f"rowdex-map-{number}" for number in range(threads)]
        self.threads = [threading.Thread(target=self._shared.work, name=name, daemon=True) for name in names]
        for thread in self.threads:
            thread.start()
        if threads:
            _live.add(self)

    def take(self) -> tuple[Any, int]:
        """The next batch, and how many rows it has."""
        if self._pid != os.getpid():
            raise ClosedError("this iteration belongs to the process that this one was forked from: begin another one")
        if not self.threads:
            batch = self._source.next()
            return self._shared.make(batch), len(batch)
        shared = self._shared
        with shared.changed:
            while shared.wanted not in shared.made:
                if shared.stopped:
                    raise ClosedError("the loader was closed")
                shared.changed.wait()
            fine, found = shared.made.pop(shared.wanted)
            shared.wanted += 1
            shared.changed.notify_all()
        if not fine:
            try:
                raise found
            finally:
                del found
        made: tuple[Any, int] = found
        return made

    def stop(self) -> None:
        """Tells the threads to end, and waits for none."""
        if self._pid == os.getpid():
            self._shared.stop()

    def leave(self) -> None:
        """Stops, and waits until no thread asks for a batch any more."""
        if self._pid == os.getpid():
            self._shared.stop()
            with self._shared.asking:
                pass


_live: weakref.WeakSet[_Queue] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    # They must not be in the middle of something while the interpreter ends.
    for queue in list(_live):
        queue.stop()
        for thread in queue.threads if queue._pid == os.getpid() else ():
            thread.join(_JOIN_SECONDS)
