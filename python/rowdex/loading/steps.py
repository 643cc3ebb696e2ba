"""The steps of a loader, for frameworks that ask a loader for its batch sampler."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..batch import LoaderStep
from ..frameworks import counted as _counted
from ..frameworks import running as _sharded
from ..sampler import DistributedSampler


class LoaderSteps:
    """The steps of the next epoch of a :class:`rowdex.Loader`, which makes this. Iterating begins it."""

    drop_last = False

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    @property
    def batch_size(self) -> int:
        """Rows per step and rank."""
        return int(self._loader.batch_size)

    @property
    def sampler(self) -> DistributedSampler:
        """A copy of the sampler of the loader."""
        copy: DistributedSampler = self._loader._sampler_copy()
        return copy

    def set_epoch(self, epoch: int) -> None:
        """Makes ``epoch`` the next one of the loader."""
        self._loader.set_epoch(epoch)

    @property
    def _shards(self) -> int:
        return int(self._loader._sampler._shards)

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return f"LoaderSteps({self._loader!r})"

    def __iter__(self) -> Iterator[Any]:
        _sharded.check_begun()
        loader = self._loader
        _, epoch, first = loader._begin()
        loader._begun = None
        _counted.check_steps(epoch, first, type(loader).__name__)
        served = _Served(loader, epoch)
        end = len(loader)
        if first >= end:
            # A state may have nothing left of its epoch, which ends so.
            next(loader._from(epoch, first), None)
        for step in range(first, end):
            yield LoaderStep(served, step)


class _Served:
    """The batches of one epoch, by step."""

    def __init__(self, loader: Any, epoch: int) -> None:
        self._loader, self._epoch = loader, epoch
        self._next: int | None = None
        self._batches: Iterator[Any] = iter(())

    def batch(self, step: int) -> Any:
        if step != self._next:
            self._batches = self._loader._from(self._epoch, step)
        self._next = step + 1
        return next(self._batches)


def telling(copy: DistributedSampler, told: Callable[[int], None]) -> DistributedSampler:
    """The copy of a sampler, whose ``set_epoch`` tells somebody else, too."""
    # It has this function, and is not kept alive by it.
    own = weakref.ref(copy)

    def set_epoch(epoch: int) -> None:
        told(epoch)
        sampler = own()
        if sampler is not None:
            DistributedSampler.set_epoch(sampler, epoch)

    copy.set_epoch = set_epoch  # type: ignore[method-assign]
    return copy
