"""The steps of a loader, for frameworks that ask a loader for its batch sampler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..batch import LoaderStep
from ..frameworks import sharded as _sharded
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

    def __len__(self) -> int:
        return len(self._loader)

    def __repr__(self) -> str:
        return f"LoaderSteps({self._loader!r})"

    def __iter__(self) -> Iterator[Any]:
        loader = self._loader
        _sharded.check("LoaderSteps", loader._sampler._shards, None, loader.dataset)
        _sharded.is_over(loader.dataset)
        _, epoch, first = loader._begin()
        loader._begun = None
        served = _Served(loader, epoch, first)
        end = len(loader)
        if first >= end:
            # A state may have nothing left of its epoch, which ends so.
            next(loader._from(epoch, first), None)
        for step in range(first, end):
            yield LoaderStep(served, step)


class _Served:
    """The batches of one epoch, by step."""

    def __init__(self, loader: Any, epoch: int, first: int) -> None:
        self._loader, self._epoch, self._first = loader, epoch, first
        self._next: int | None = None
        self._batches: Iterator[Any] = iter(())

    def batch(self, step: int) -> Any:
        if self._next is None and step > self._first > 0:
            raise RuntimeError(
                f"this {type(self._loader).__name__} resumes after {self._first} steps, from its state, and "
                f"skip_first_batches() would skip {step - self._first} more: leave skip_first_batches() out after "
                "load_state(), or load no state"
            )
        if step != self._next:
            self._batches = self._loader._from(self._epoch, step)
        self._next = step + 1
        return next(self._batches)
