"""Tells a dataset in the main process when a ``DataLoader`` with workers begins an epoch over it.

Each worker iterates over a copy, and the dataset is not asked. Workers that do not persist are copied from it again
for the next epoch, and would serve the same one. Nothing of PyTorch is changed to learn of it: Python says when a
process is forked, a dataset is pickled for workers that are no forks, and for those that persist a ``DataLoader`` lets
go of the iterator over its indices, and makes another, before it tells them to go on. Which loader it is can be seen
among what is running.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from ..frameworks import running as _sharded

_REFUSAL = 4096


class Told:
    """What the workers of one iterator of a ``DataLoader`` are told, in memory that they share with who made them."""

    def __init__(self) -> None:
        words = torch.zeros(3 + _REFUSAL // 8, dtype=torch.int64)
        self._words = words.share_memory_()  # type: ignore[no-untyped-call]

    def begin(self, epoch: int) -> None:
        """The next epoch that they serve is this one."""
        self._words[0], self._words[1], self._words[2] = epoch, 0, 0

    @property
    def epoch(self) -> int:
        """The epoch to serve next."""
        return int(self._words[0])

    @property
    def following(self) -> int | None:
        """The epoch after the one that they went on with from a state of their own."""
        return int(self._words[1]) or None

    def go_on(self, epoch: int) -> None:
        """A worker goes on with this epoch."""
        self._words[1] = epoch + 1

    def refuse(self, error: Exception) -> None:
        """The next epoch is not served, because of this."""
        text = str(error).encode()[:_REFUSAL]
        self._words[3:].view(torch.uint8)[: len(text)] = torch.tensor(list(text), dtype=torch.uint8)
        self._words[2] = max(len(text), 1)

    @property
    def refusal(self) -> str | None:
        """Why the next epoch is not served."""
        size = int(self._words[2])
        return bytes(self._words[3:].view(torch.uint8)[:size].tolist()).decode(errors="replace") if size else None


class Announced:
    """What wants to be told of its workers. Nobody hears of what these methods raise."""

    def _start_workers(self, iterator: Any, loader: Any) -> None:
        """A worker of this iterator of a ``DataLoader`` is about to be made: once for each of them."""
        raise NotImplementedError

    def _begin_workers(self, iterator: Any, loader: Any) -> None:
        """An epoch begins, whose workers are there and are about to go on."""
        raise NotImplementedError


class Workers:
    """The workers of one iterator of a ``DataLoader``, which tell a dataset when they go on with another epoch."""

    def __init__(self, iterator: Any, dataset: Announced) -> None:
        self.told = Told()
        self._iterator, self._dataset = weakref.ref(iterator), weakref.ref(dataset)
        self._indices: Any = None

    def watch(self) -> None:
        """Waits for the iterator to let go of the one over its indices that it has now."""
        ended = weakref.WeakMethod(self._ended)

        def over(_: Any) -> None:
            found = ended()
            if found is not None:
                found()

        self._indices = weakref.ref(getattr(self._iterator(), "_sampler_iter"), over)

    def _ended(self) -> None:
        iterator, dataset = self._iterator(), self._dataset()
        running = list(_sharded.running(*_sharded.LOADERS))
        methods = {method for own, method in running if own is iterator}
        if dataset is None or "_reset" not in methods:
            return
        self.watch()
        # It begins its first epoch in this way, too.
        if "__init__" not in methods:
            loaders = [own for own, _ in running if isinstance(own, torch.utils.data.DataLoader)]
            dataset._begin_workers(iterator, [*loaders, iterator][0])


def tell_if_starting(dataset: Announced) -> bool:
    """Tells a dataset that is copied if it is for a worker that a ``DataLoader`` makes in this thread, and says so."""
    found = _starting()
    if found is not None:
        dataset._start_workers(*found)
    return found is not None


def _starting() -> tuple[Any, Any] | None:
    """The iterator of a ``DataLoader`` that makes its workers in this thread, and the loader."""
    iterator: Any = None
    for own, method in _sharded.running(*_sharded.LOADERS):
        if isinstance(own, torch.utils.data.DataLoader):
            return None if iterator is None or own.num_workers == 0 else (iterator, own)
        if iterator is None and method == "__init__":
            iterator = own
    return None


def _before_fork() -> None:
    found = _starting()
    if found is not None:
        for dataset in _within(found[1].dataset, set()):
            dataset._start_workers(*found)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


def _within(value: Any, seen: set[int]) -> Iterator[Announced]:
    """The datasets that are, or are part of, a dataset, such as one that chains or shards others."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Announced):
        yield value
    elif isinstance(value, torch.utils.data.Dataset):
        for part in getattr(value, "__dict__", {}).values():
            yield from _within(part, seen)
    elif isinstance(value, (list, tuple)) and len(value) <= 1000:
        for part in value:
            yield from _within(part, seen)
