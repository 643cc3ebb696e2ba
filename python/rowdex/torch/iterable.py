"""Batches of one rank for a ``DataLoader`` that asks for no indices."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch.utils.data

from ..errors import StateError
from ..frameworks import sharded as _sharded
from ..spec import epoch_number, steps_left
from .dataset import Dataset
from .reader import ITERABLE, check_workers, workers_of
from .rows import Columns, columns_of
from .samplers import BatchSampler, Step
from .workers import Turns


class IterableDataset(torch.utils.data.IterableDataset[Any], _sharded.Generated, _sharded.Measured):
    """Batches of one rank, divided among the workers of a ``DataLoader(dataset, batch_size=None)``: dicts of tensors.

    What comes, and in which order, does not depend on the number of workers. Every iteration is an epoch, and the next
    one the next epoch, with or without :meth:`set_epoch`, and whether or not workers persist. An iteration counts when
    it begins, even if it is abandoned; with workers, it begins when the first of them does.

    It has a state (``state_dict``, ``load_state_dict``) for torchdata's ``StatefulDataLoader``, which keeps one for
    each worker, so the number of workers must stay. To resume with another number of ranks or workers, save
    :meth:`state_after` and give it to :meth:`load_run_state`.

    Args:
        dataset: A :class:`Dataset`.
        batch_size: Rows per step and rank.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes.
    """

    def __init__(self, dataset: Dataset, batch_size: int, **sampling: Any) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"an IterableDataset of {dataset!r}: give it a rowdex.torch.Dataset")
        self.dataset = dataset
        self._sampler = BatchSampler(dataset, batch_size, **sampling)
        self._turns = Turns()
        self._loaded = 0
        # How many iterations this process has begun.
        self._begun = 0
        # The epoch that is served, which of this worker's steps comes next, and whether that was the last.
        self._at: tuple[int, int, bool] | None = None
        # The state of the run where that epoch began.
        self._begins: str | None = None
        # The epoch and the place of a state of a worker.
        self._go_on: tuple[int, int] | None = None
        # Why there is no epoch to serve, until another one is asked for.
        self._refused: Exception | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_begun": 0}

    def __repr__(self) -> str:
        return f"IterableDataset({self.dataset!r}, {self._sampler!r})"

    def __len__(self) -> int:
        """How many batches every rank has in the current epoch."""
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        if info is not None:
            try:
                return self._begin(info)
            except Exception as error:
                # What a worker that persists raises here, it does not outlive.
                return _refused(error)
        self._check_sharded()
        _sharded.is_over(self)
        # StatefulDataLoader makes an iterator that it never uses when it goes on from the end of an epoch.
        return self._begin_late() if self._go_on is not None and self._go_on[1] == 0 else self._begin(None)

    def _begin_late(self) -> Iterator[Any]:
        yield from self._begin(None)

    def _check_sharded(self) -> None:
        _sharded.check("IterableDataset", self._sampler.sampler._shards, self, self)

    def _begin(self, info: Any) -> Iterator[Any]:
        self._check_sharded()
        sampler, place = self._sampler.sampler, 0
        if info is not None and self._turns.loaded != self._loaded:
            raise RuntimeError(
                "a state was loaded after the workers of this DataLoader were started: make another DataLoader"
            )
        if self._go_on is not None:
            (epoch, place), self._go_on = self._go_on, None
            self._turns.next = epoch + 1
        else:
            epoch = self._turns.take() if info is None else self._turns.take_in_worker(info, self._begun)
        self._begun += 1
        if sampler.epoch != epoch:
            # An epoch that was resumed stays resumed.
            sampler.set_epoch(epoch)
        sampler._begin()
        whole = sampler._steps(epoch)
        steps = whole if info is None else whole[info.id :: info.num_workers]
        place = min(place, len(steps))
        self._begins = sampler._state(epoch, whole.start)["state"]
        self._at = (epoch, place, 0 < place == len(steps))
        if info is not None and info.dataset is self and type(self).__iter__ is IterableDataset.__iter__:
            self.dataset._share_among_workers(ITERABLE)
        return self._serve(epoch, epoch == sampler._resumed_epoch, steps, place)

    def _serve(self, epoch: int, resumed: bool, steps: range, place: int) -> Iterator[Any]:
        if self._refused is not None:
            raise self._refused
        spec = self._sampler.sampler.spec
        for next_place, step in enumerate(steps[place:], place + 1):
            batch = self.dataset.__getitems__(Step(spec, epoch, step, resumed))
            try:
                columns = columns_of(batch)
            except Exception:
                # PyTorch asks this worker for nothing more.
                self.dataset._leave()
                raise
            self._at = (epoch, next_place, False)
            yield Columns(columns) if isinstance(columns, dict) else columns
        self._at = (epoch, len(steps), True)

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        epoch = epoch_number(epoch)
        self._check_sharded()
        self._go_on = self._refused = None
        # Workers may have served what this sampler was to go on with.
        for each in (self._turns.next, epoch):
            self._sampler.set_epoch(each)
        self._turns.next = epoch

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state of the run once every rank has trained on this step."""
        return self._sampler.state_after(epoch, step)

    def load_run_state(self, state_dict: dict[str, str]) -> None:
        """Resumes from :meth:`state_after`, with any number of ranks and workers."""
        self._sampler.load_state_dict(state_dict)
        self._turns.load(self._sampler.sampler.epoch)
        self._loaded = self._turns.loaded
        self._go_on = self._at = self._refused = None

    def state_dict(self) -> dict[str, Any]:
        """Where this worker stands."""
        sampler = self._sampler.sampler
        found: dict[str, Any] = {"workers": workers_of(), "shards": sampler._shards, "batch_size": sampler.batch_size}
        if self._go_on is not None:
            return found | {"epoch": self._go_on[0], "batches": self._go_on[1], "state": sampler.spec.resumed}
        if self._at is None:
            epoch = self._turns.next
            return found | sampler._state(epoch, sampler._steps(epoch).start) | {"epoch": epoch, "batches": 0}
        epoch, place, ended = self._at
        if ended:
            return found | sampler._state(epoch + 1, 0) | {"epoch": epoch + 1, "batches": 0, "ended": True}
        return found | {"epoch": epoch, "batches": place, "state": self._begins}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from where a worker stood.

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
                f"{own[1]}: the same batches are other rows. Save state_after(epoch, step), and give it to "
                "load_run_state(), which resumes with any"
            )
            return
        epoch, place = int(state_dict["epoch"]), int(state_dict["batches"])
        if torch.utils.data.get_worker_info() is not None and state_dict.get("ended"):
            # The iteration that goes on is the one of which this worker had done its part.
            epoch, place = epoch - 1, sys.maxsize
        text = state_dict.get("state")
        if text is not None:
            # Refuses another order, seed or dataset.
            opened = sampler.spec._replace(resumed=text).open(self.dataset)
            if steps_left(opened.sampler(True)).start > 0:
                # Its batches are counted from where the run had been resumed itself.
                self._sampler.load_state_dict({"state": text})
        self._go_on = (epoch, place)


def _refused(error: Exception) -> Iterator[Any]:
    """Batches of which the first raises."""
    raise error
    yield
