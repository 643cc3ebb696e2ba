"""The batches of one rank as steps, which the dataset turns into batches where it is asked for them."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch.utils.data

from ..dataset import Dataset as _Dataset
from ..sampler import DistributedSampler, sampler_of
from ..spec import STEPS_ARE_NO_ROWS, SamplerSpec


class Step(NamedTuple):
    """Which batch a worker is to make: all that it needs to know to make it, and to plan for those that come after."""

    spec: SamplerSpec
    epoch: int
    step: int
    resumed: bool
    """Whether the epoch is the one that the run was resumed within."""

    def __index__(self) -> int:
        raise TypeError(STEPS_ARE_NO_ROWS)


class BatchSampler(torch.utils.data.Sampler[Step]):
    """The batches of one rank, for ``DataLoader(dataset, batch_sampler=...)``: it hands out steps, and the dataset
    makes the batches.

    Each iteration is an epoch, and the next one the next epoch, with or without :meth:`set_epoch`. ``len()`` is the
    number of steps, the same on every rank.

    Args:
        dataset: The dataset that the ``DataLoader`` has, or the :class:`rowdex.DistributedSampler` to take batches
            from, which needs a batch size.
        batch_size: Rows per step and rank.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes. ``drop_last=True`` is what it is for a ``DataLoader``: it leaves
            out a short last batch.
    """

    def __init__(self, dataset: _Dataset | DistributedSampler, batch_size: int | None = None, **sampling: Any) -> None:
        if isinstance(dataset, DistributedSampler):
            if batch_size is not None or sampling:
                raise TypeError("batch size and other options belong to the sampler")
            self.sampler = dataset
        else:
            self.sampler = sampler_of(dataset, "BatchSampler", batch_size=batch_size, **sampling)
        self.sampler.spec.check_serves_rows("a BatchSampler")
        if self.sampler.batch_size is None:
            raise ValueError("no batch size: give batch_size, to the sampler if there is one")

    def __iter__(self) -> Iterator[Step]:
        dataset = self.sampler.dataset
        if type(self).__iter__ is BatchSampler.__iter__ and hasattr(dataset, "_share_among_workers"):
            # A DataLoader that has this sampler itself makes its workers between here and the first step.
            dataset._share_among_workers(uuid.uuid4().hex)
        return _Steps(self.sampler)

    def __len__(self) -> int:
        return self.sampler.steps

    def __repr__(self) -> str:
        return f"BatchSampler({self.sampler!r})"

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self.sampler.set_epoch(epoch)

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state once every rank has trained on this step. Workers read ahead, so this is what to save."""
        return self.sampler.state_after(epoch, step)

    def state_dict(self) -> dict[str, str]:
        """The state after the last step that was handed out to the workers, which is further than training is."""
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        """Resumes from a state, which may come from another number of ranks, workers, and another batch size."""
        self.sampler.load_state_dict(state_dict)


class _Steps(Iterator[Step]):
    """The steps of an epoch, which begins when the first of them is asked for.

    Its state is whether they were all handed out: torchdata's ``StatefulDataLoader`` resumes from the end of an epoch
    with an empty iteration, and within an epoch from the state of the sampler.
    """

    def __init__(self, sampler: DistributedSampler) -> None:
        self._sampler = sampler
        self._steps: Iterator[Step] | None = None
        self._ended = False

    def __next__(self) -> Step:
        if self._ended:
            raise StopIteration
        if self._steps is None:
            self._steps = _Steps._of_epoch(weakref.proxy(self))
            if hasattr(self._sampler.dataset, "_share_among_workers"):
                self._sampler.dataset._share_among_workers(None)
        return next(self._steps)

    def _of_epoch(self) -> Iterator[Step]:
        sampler = self._sampler
        spec, epoch = sampler.spec, sampler._begin()
        resumed = epoch == sampler._resumed_epoch
        steps = sampler._steps(epoch)
        for step in steps:
            sampler._served = (epoch, step + 1)
            self._ended = step + 1 == steps.stop
            yield Step(spec, epoch, step, resumed)

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self._ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._ended = bool(state_dict["ended"])
