"""Tells datasets and samplers when a ``DataLoader`` begins an epoch over them.

A ``DataLoader`` with workers iterates over a copy of the dataset in each worker, and the dataset in the main process
never learns of it. Workers that do not persist are copied from it again for the next epoch, and would serve the same
one. A sampler never learns what a framework has wrapped it in. So that they know, the two methods with which every
``DataLoader`` begins an epoch, that of torchdata included, are wrapped: PyTorch has no other place for it. What they do
is left as it is.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch.utils.data
from torch.utils.data import dataloader

from . import _sharded


class Announced:
    """What wants to be told."""

    def _begin_workers(self, iterator: Any) -> None:
        """An epoch begins, whose workers are about to be made, or are there and are about to be told."""
        raise NotImplementedError


def announce() -> None:
    """Has every epoch announced that any ``DataLoader`` of this process begins from now on."""
    base = getattr(dataloader, "_BaseDataLoaderIter", None)
    if base is None or getattr(base, "_rowdex_announces", False):
        return
    make, reset = base.__init__, base._reset

    @functools.wraps(make)
    def __init__(self: Any, loader: Any, *arguments: Any, **options: Any) -> None:
        # Its __del__ looks at this, also where nothing was begun.
        self._shutdown = True
        _sharded.check(loader)
        make(self, loader, *arguments, **options)
        _tell(self, loader)

    @functools.wraps(reset)
    def _reset(self: Any, loader: Any, first_iter: bool = False, *arguments: Any, **options: Any) -> None:
        if not first_iter:
            _sharded.check(loader)
            _tell(self, loader)
        reset(self, loader, first_iter, *arguments, **options)

    base.__init__, base._reset, base._rowdex_announces = __init__, _reset, True


def _tell(iterator: Any, loader: Any) -> None:
    if loader.num_workers > 0:
        for dataset in _within(loader.dataset, set()):
            dataset._begin_workers(iterator)


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
