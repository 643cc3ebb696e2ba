"""The batches of all ranks, for frameworks that assign them to ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch.utils.data

from ..dataset import Dataset as _Dataset
from ..frameworks.gathered import dealt
from ..frameworks.sharded import is_prepared
from ..launch import world
from ..sampler import sampler_of
from .samplers import Step


class DealtStep(NamedTuple):
    """The step that a :class:`GlobalBatchSampler` has assigned to a rank."""

    step: Step
    rows: list[int] | None
    """Its row ids, where they are not those of the step."""


class GlobalBatchSampler(torch.utils.data.Sampler[Any]):
    """The batches of all ranks, for a ``DataLoader`` that a framework shards by batches: Accelerate, the ``Trainer`` of
    Hugging Face. Every rank then serves the batches that it serves with :class:`BatchSampler`, as fast. Each iteration
    is an epoch, and the next one the next epoch::

        batches = rowdex.torch.GlobalBatchSampler(dataset, batch_size=256, seed=42)
        loader = accelerator.prepare(DataLoader(dataset, batch_sampler=batches, num_workers=4))

    Every batch reports the full length, so ``even_batches`` makes no difference: all ranks take the same number of
    steps anyway. In the last step the rows are assigned so that ``gather_for_metrics`` drops those that are served
    twice.

    Args:
        dataset: The dataset that the ``DataLoader`` has.
        batch_size: Rows per step and rank; with ``split_batches``, rows per step of all ranks together.
        split_batches: Whether the framework takes a part of every batch for each rank, rather than batches in turn: the
            framework's own option.
        num_shards: To how many ranks it assigns batches. Default: the world size.
        sampling: ``seed``, ``shuffle``, ``order``, ``tail`` and all else that :class:`rowdex.DistributedSampler` takes,
            but no ``num_replicas`` and ``rank``.
    """

    drop_last = True
    """So that no framework fills up the last batch."""

    def __init__(
        self, dataset: _Dataset, batch_size: int, *, split_batches: bool = False, num_shards: int | None = None,
        **sampling: Any,
    ) -> None:  # fmt: skip
        for name in {"num_replicas", "rank", "replication"} & set(sampling):
            raise TypeError(f"{name}: a GlobalBatchSampler has the batches of all ranks; use num_shards")
        shards = world()[0] if num_shards is None else num_shards
        if split_batches and batch_size % shards != 0:
            raise ValueError(f"a batch size of {batch_size} does not split among {shards} ranks")
        size = batch_size // shards if split_batches else batch_size
        self.batch_size, self.split_batches = batch_size, split_batches
        self.sampler = sampler_of(
            dataset, "GlobalBatchSampler", ("num_shards",), num_replicas=shards, rank=0, batch_size=size, **sampling
        )
        self.sampler._is_of_all = True
        self.sampler.spec.check_serves_rows("a GlobalBatchSampler")
        if self.sampler.steps:
            last = dealt(self.sampler, self.sampler.epoch, self.sampler.steps - 1)
            kept = len(dataset) % (size * shards) or last.total
            if min(kept, last.total) != last.real:
                raise ValueError(
                    f"the last step of an epoch has {last.real} rows, of which gather_for_metrics of Accelerate would "
                    f"keep {kept}, because it knows the dataset's length alone: use rowdex.accelerate.Loader"
                )

    def __len__(self) -> int:
        return self.sampler.steps * (1 if self.split_batches else self._shards)

    def __repr__(self) -> str:
        return f"GlobalBatchSampler({self.sampler!r}, split_batches={self.split_batches})"

    def __iter__(self) -> Iterator[GlobalStep]:
        self._check_dealt()
        sampler = self.sampler
        epoch = sampler._begin()
        steps = sampler._steps(epoch)
        for step in steps:
            # Nobody splits batches for one rank.
            if self.split_batches and self._shards > 1:
                yield GlobalStep(self, epoch, step, None)
            else:
                for rank in range(self._shards):
                    yield GlobalStep(self, epoch, step, rank)

    @property
    def _shards(self) -> int:
        return self.sampler.num_replicas

    def _check_dealt(self) -> None:
        """Refuses an epoch that no framework shards, or that is sharded among another number of ranks."""
        if not is_prepared(self.sampler, self.sampler.dataset):
            if self._shards > 1:
                raise RuntimeError(
                    f"a GlobalBatchSampler has the batches of all {self._shards} ranks, and no framework shards them: "
                    "give the DataLoader to accelerator.prepare(), or use rowdex.torch.BatchSampler"
                )
            return
        from ..accelerate import ranks

        if ranks()[0] != self._shards:
            raise RuntimeError(
                f"a GlobalBatchSampler with num_shards={self._shards} is sharded among {ranks()[0]} ranks of "
                "Accelerate: make it with these"
            )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self.sampler.set_epoch(epoch)


class GlobalStep(Sequence[Any]):
    """A batch of a :class:`GlobalBatchSampler` on its way through a framework, which looks at its length, takes it or
    leaves it, or takes a slice of it.
    """

    __slots__ = ("_epoch", "_rank", "_sampler", "_step")

    def __init__(self, sampler: GlobalBatchSampler, epoch: int, step: int, rank: int | None) -> None:
        self._sampler, self._epoch, self._step, self._rank = sampler, epoch, step, rank

    def __len__(self) -> int:
        return self._sampler.batch_size

    def __getitem__(self, part: Any) -> Any:
        size = self._sampler.sampler.spec.batch_size
        start, stop, stride = part.indices(len(self)) if isinstance(part, slice) else (0, 0, 0)
        if self._rank is not None or stride != 1 or start % size != 0 or stop - start != size:
            raise RuntimeError(
                f"batch[{part}] of a GlobalBatchSampler, which assigns whole batches of {size} rows: make it with "
                "the split_batches of the framework"
            )
        return GlobalStep(self._sampler, self._epoch, self._step, start // size)

    def share(self) -> DealtStep:
        """What the dataset is asked for."""
        if self._rank is None:
            raise TypeError("a batch of all ranks that was not split: use split_batches=False")
        sampler = self._sampler.sampler
        resumed = self._epoch == sampler._resumed_epoch
        step = Step(sampler.spec._replace(rank=self._rank), self._epoch, self._step, resumed)
        last = self._step + 1 == sampler.steps
        return DealtStep(step, dealt(sampler, self._epoch, self._step).rows[self._rank] if last else None)

    def __reduce__(self) -> Any:
        # Workers get what it stands for.
        return _share, (self.share(),)


def _share(share: DealtStep) -> DealtStep:
    return share
