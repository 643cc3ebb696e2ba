"""Batches that are converted where they are asked for, several at once."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from ..batch import Batch
from ..native.arrays import split
from ..native.library import Handle, call, library
from ..schema import Schema
from .functions import kept

_ROWS = 8192
"""The most rows that are converted in one go, unless a batch is larger: that costs as much for many rows as for few."""


class Plain:
    """The batches of a loader without functions. An error comes at the step of its batch.

    ``size`` is how many rows a batch has, ``None`` for packs. ``one_by_one`` converts each batch by itself. ``failed``
    takes errors.
    """

    def __init__(self, size: int | None, one_by_one: bool, failed: list[Exception]) -> None:
        self._size, self._most, self._failed = size, 1 if one_by_one else _ROWS, failed

    def epoch(
        self, loader: Handle, epoch: int, step: int, schema: Schema, make: Callable[[Batch], Any],
        finish: Callable[[Any], Any],
    ) -> Generator[tuple[Any, int], None, None]:  # fmt: skip
        """What ``finish`` makes of what ``make`` gives for the batches of an epoch from a step on, and how many rows
        each has.
        """
        most = self._most
        while handle := Handle(library.loader_peek, loader, epoch, step, most):
            batch = Batch(handle, schema)
            rows = len(batch)
            size = rows if self._size is None else self._size
            try:
                found = make(batch)
            except Exception as error:
                if rows > size:
                    # One of several steps has it. They come one by one now, and the error at its own.
                    most = 1
                    continue
                self._failed.append(kept(error))
                raise
            for part in split(found, size, rows) if rows > size else (found,):
                try:
                    part = finish(part)
                except Exception as error:
                    self._failed.append(kept(error))
                    raise
                call(library.loader_advance, loader, epoch, step)
                step += 1
                yield part, min(rows, size)
                rows -= size
