"""Batches of one rank for a ``DataLoader`` that asks for no indices."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from ..errors import StateError
from ..frameworks import counted as _counted
from ..frameworks import running as _sharded
from ..spec import SamplerSpec, steps_left
from .dataset import Dataset
from .reader import check_workers, workers_of
from .samplers import BatchSampler, Step
from .workers import Announced, Told, Workers, tell_if_starting

_GOES_ON = "dataset.load_run_state(dataset.state_after({}, {})) of the IterableDataset"


def _refused(message: str) -> Iterator[Any]:
    """Batches of which the first is an error: what a worker that persists raises before, it does not outlive."""
    raise RuntimeError(message)
    yield


class IterableDataset(torch.utils.data.IterableDataset[Any], Announced):
    """Batches of one rank, shared out among the workers of a ``DataLoader(dataset, batch_size=None)``: dicts of
    tensors.

    What comes, and in which order, does not depend on the number of workers. Every iteration is an epoch, and the next
    one the next epoch, with or without :meth:`set_epoch`, and whether or not workers persist. An iteration counts when
    it begins, also if it is given up.

    It has a state (``state_dict``, ``load_state_dict``) for torchdata's ``StatefulDataLoader``, which keeps one for
    each worker, so the number of workers must stay. To go on with another number of ranks or workers, save
    :meth:`state_after` and give it to :meth:`load_run_state`.

    Args:
        dataset: A :class:`Dataset`.
        batch_size: Rows per step and rank.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes.
    """

    _makes_batches = True

    def __init__(self, dataset: Dataset, batch_size: int, **sampling: Any) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"an IterableDataset of {dataset!r}: give it a rowdex.torch.Dataset")
        self.__setstate__({"dataset": dataset, "sampler": BatchSampler(dataset, batch_size, **sampling)})

    def __getstate__(self) -> dict[str, Any]:
        tell_if_starting(self)
        return {
            "dataset": self.dataset, "sampler": self._sampler, "begun": self._begun, "told": self._told,
            "chosen": self._chosen, "at": self._at, "go_on": self._go_on, "counted_by": self._counted_by,
            "refused": self._refused,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dataset: Dataset = state["dataset"]
        self._sampler: BatchSampler = state["sampler"]
        # Whether workers were told to serve the epoch that the sampler is at. The sampler stays there until something
        # else happens, because workers are made of this object as it is.
        self._begun: bool = state.get("begun", False)
        self._told: Told | None = state.get("told")
        # Whether somebody said which epoch to serve.
        self._chosen: bool = state.get("chosen", False)
        # The epoch that is served, which of this worker's steps comes next, and whether that was the last.
        self._at: tuple[int, int, bool] | None = state.get("at")
        # The state of the run where that epoch began.
        self._begins: str | None = None
        # Why there is no epoch to serve, until another one is asked for.
        self._refused: Exception | None = state.get("refused")
        self._go_on: tuple[int, int] | None = state.get("go_on")
        # What counts the steps of its workers, and tells nobody where it goes on.
        self._counted_by: str = state.get("counted_by", "")
        # The workers of each iterator of a DataLoader, and the sampler's spec that they have.
        self._iterators: weakref.WeakKeyDictionary[Any, tuple[Workers, SamplerSpec]] = weakref.WeakKeyDictionary()

    @property
    def _shards(self) -> int:
        return self._sampler._shards

    def __repr__(self) -> str:
        return f"IterableDataset({self.dataset!r}, {self._sampler!r})"

    def __len__(self) -> int:
        """How many batches every rank has in the current epoch."""
        if torch.utils.data.get_worker_info() is None:
            # A framework that counts steps asks for it before workers are made.
            self._counted_by = _counted.in_workers(self)
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        in_worker = torch.utils.data.get_worker_info() is not None
        if not in_worker:
            self._settle()
        if not in_worker and self._go_on is not None and self._go_on[1] == 0:
            # StatefulDataLoader makes an iterator that it never uses when it goes on from the end of an epoch.
            return self._begin_late()
        return self._begin()

    def _begin_late(self) -> Iterator[Any]:
        yield from self._begin()

    def _begin(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        place, sampler = 0, self._sampler.sampler
        if info is not None and self._counted_by:
            raise RuntimeError(
                f"{self._counted_by} counts the steps of a run and goes on from a checkpoint at that count, which the "
                "workers of an IterableDataset cannot see: with Lightning use "
                f"{_counted.MODULE}, or torchdata's StatefulDataLoader; with the Trainer {_counted.MIXIN}"
            )
        told = None if info is None else self._told
        if told is not None and told.refusal is not None:
            return _refused(told.refusal)
        if self._go_on is not None:
            (epoch, place), self._go_on = self._go_on, None
            self._go_to(epoch)
            if told is not None:
                told.go_on(epoch)
        elif info is not None and told is None:
            self._warn()
        elif told is not None and not self._begun:
            # These workers persist. The first time, they are at the epoch already.
            self._go_to(told.epoch)
        self._begun = False
        epoch = sampler._begin()
        resumed = epoch == sampler._resumed_epoch
        steps = sampler._steps(epoch)[worker::workers]
        place = min(place, len(steps))
        refusals = [] if info is not None else list(sampler._refusals(steps.start + place, goes_on=_GOES_ON))
        self._begins = sampler._state(epoch, sampler._steps(epoch).start)["state"]
        self._at = (epoch, place, 0 < place == len(steps))
        return self._serve(sampler.spec, epoch, resumed, steps, place, refusals)

    def _serve(
        self, spec: SamplerSpec, epoch: int, resumed: bool, steps: range, place: int, refusals: list[Any]
    ) -> Iterator[Any]:
        if self._refused is not None:
            raise self._refused
        for refusal in refusals:
            refusal.__index__()
        for next_place, step in enumerate(steps[place:], place + 1):
            batch = self.dataset.__getitems__(Step(spec, epoch, step, resumed))
            try:
                columns = batch.columns()
            except Exception:
                # PyTorch asks this worker for nothing more.
                self.dataset._leave()
                raise
            self._at = (epoch, next_place, False)
            yield columns
        self._at = (epoch, len(steps), True)

    def _start_workers(self, iterator: Any, loader: Any) -> None:
        is_whole = loader.dataset is self and type(self).__iter__ is IterableDataset.__iter__
        self.dataset._group_workers(iterator, loader, is_whole)
        if iterator in self._iterators:
            return
        try:
            self._iterators[iterator] = (Workers(iterator, self), self._sampler.sampler.spec)
        except Exception as error:
            # Without memory to share, workers have it with the rest of this object.
            self._refused = error
            return
        self._begin_workers(iterator, loader)

    def _begin_workers(self, iterator: Any, loader: Any) -> None:
        workers, spec = self._iterators[iterator]
        try:
            workers.watch()
            self._settle()
            self._check_workers(loader, spec)
            if self._go_on is not None:
                self._go_to(self._go_on[0])
        except Exception as error:
            workers.told.refuse(error)
        else:
            workers.told.begin(self._sampler.sampler.epoch)
            self._begun, self._at = True, None
        self._told = workers.told

    def _check_workers(self, loader: Any, spec: SamplerSpec) -> None:
        _sharded.check(loader)
        sampler = self._sampler.sampler
        sampler._check_world()
        sampler._follow()
        sampler._is_unordered = _sharded.is_unordered(loader)
        if sampler._is_unordered:
            first = sampler._steps(sampler.epoch).start if self._go_on is None else self._go_on[1]
            _counted.check_steps(sampler.epoch, first, type(self).__name__, sampler._is_unordered)
        if spec is not sampler.spec:
            raise RuntimeError(
                "a state was loaded after the workers of this DataLoader were started: make another DataLoader"
            )

    def _settle(self) -> None:
        """Leaves the epoch that workers were told to serve."""
        if not self._begun:
            return
        self._begun, self._go_on = False, None
        self._sampler.sampler._advance()
        if self._told is not None and self._told.following is not None:
            self._go_to(self._told.following)

    def _go_to(self, epoch: int) -> None:
        # An epoch that was resumed stays resumed.
        if self._sampler.sampler.epoch != epoch:
            self._sampler.set_epoch(epoch)

    def _warn(self) -> None:
        if not self._chosen:
            warnings.warn(
                "this worker does not know which epoch it is to serve, and serves the first: call set_epoch() of the "
                "rowdex.torch.IterableDataset before each epoch",
                stacklevel=2,
            )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self._settle()
        self._chosen, self._go_on, self._refused = True, None, None
        self._sampler.set_epoch(epoch)

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state of the run once every rank has trained on this step."""
        return self._sampler.state_after(epoch, step)

    def load_run_state(self, state_dict: dict[str, str]) -> None:
        """Goes on from :meth:`state_after`, with any number of ranks and workers."""
        self._settle()
        self._sampler.load_state_dict(state_dict)
        self._chosen, self._go_on, self._at, self._refused = True, None, None, None

    def state_dict(self) -> dict[str, Any]:
        """Where this worker stands."""
        sampler = self._sampler.sampler
        found: dict[str, Any] = {"workers": workers_of(), "shards": sampler._shards, "batch_size": sampler.batch_size}
        if self._go_on is not None:
            return found | {"epoch": self._go_on[0], "batches": self._go_on[1], "state": sampler.spec.resumed}
        if self._at is None:
            begins = sampler._state(sampler.epoch, sampler._steps(sampler.epoch).start)
            return found | begins | {"epoch": sampler.epoch, "batches": 0}
        epoch, place, ended = self._at
        if ended:
            return found | sampler._state(epoch + 1, 0) | {"epoch": epoch + 1, "batches": 0, "ended": True}
        return found | {"epoch": epoch, "batches": place, "state": self._begins}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from where a worker stood.

        Raises:
            StateError: if its batches were others: of another number of workers, ranks or rows, or in another order.
        """
        check_workers(state_dict)
        if "batches" not in state_dict:
            raise StateError("this is the state of a run: give it to load_run_state()")
        self._refused = None
        sampler = self._sampler.sampler
        own = (sampler._shards, sampler.batch_size)
        before = tuple(state_dict.get(name, now) for name, now in zip(("shards", "batch_size"), own))
        if before != own:
            # Said where the first batch is asked for: what is raised before may be lost.
            self._refused = StateError(
                f"the state is of {before[0]} ranks with {before[1]} rows per step each, and now {own[0]} have "
                f"{own[1]}: as many batches are other rows. Save state_after(epoch, step), and give it to "
                "load_run_state(), which goes on with any"
            )
            return
        epoch, place = int(state_dict["epoch"]), int(state_dict["batches"])
        if torch.utils.data.get_worker_info() is None:
            self._settle()
        elif state_dict.get("ended"):
            # The iteration that goes on is the one of which this worker had done its part.
            epoch, place = epoch - 1, sys.maxsize
        text = state_dict.get("state")
        if text is not None:
            # Refuses another order, seed or dataset.
            opened = sampler.spec._replace(resumed=text).open(self.dataset)
            if steps_left(opened.sampler(True)).start > 0:
                # Its batches are counted from where the run had been resumed itself.
                self._sampler.load_state_dict({"state": text})
        self._chosen, self._go_on = True, (epoch, place)
