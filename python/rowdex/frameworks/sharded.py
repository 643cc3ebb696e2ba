"""Refuses an epoch in which a framework shards again what is one of several shards already.

Lightning, Fabric, Ray and the ``Trainer`` leave a sampler alone that is one of PyTorch's ``DistributedSampler``, which
that of rowdex is. Accelerate takes what it is given for all rows. It is seen by what it asks of what it was given: a
``generator`` of samplers and iterable datasets when it prepares a loader for several processes, and
``total_dataset_length`` of the dataset whenever such a loader begins an epoch.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

REMEDY = (
    "Give accelerator.prepare() a rowdex.accelerate.Loader, or a DataLoader with batch_sampler="
    "rowdex.torch.GlobalBatchSampler(...), or do not prepare this DataLoader"
)


class Generated:
    """A sampler or an iterable dataset, of which Accelerate wants to know a generator of random numbers."""

    _is_prepared = False

    @property
    def generator(self) -> Any:
        """There is none; only Accelerate asks for it, which shards this."""
        self._is_prepared = True
        raise AttributeError("generator")


class Measured:
    """A dataset, whose length a loader of Accelerate wants to know when it begins an epoch."""

    _is_begun = False

    @property
    def total_dataset_length(self) -> int:
        """How many items it has; only Accelerate asks for it."""
        self._is_begun = True
        return len(self)  # type: ignore[arg-type]


def is_prepared(sampler: Any, dataset: Any) -> bool:
    """Whether Accelerate assigns what a sampler says of a dataset to several processes in the epoch that begins."""
    begun, prepared = getattr(dataset, "_is_begun", False), getattr(sampler, "_is_prepared", False)
    state = sys.modules.get("accelerate.state")
    return (begun or prepared) and state is not None and state.PartialState().num_processes > 1


def is_over(dataset: Any) -> None:
    """Forgets what began an epoch over a dataset: something else may begin the next one."""
    if isinstance(dataset, Measured):
        dataset._is_begun = False


def check(name: str, shards: int, sampler: Any, dataset: Any) -> None:
    """Refuses an epoch of one of several shards that Accelerate would shard again.

    Raises:
        RuntimeError: saying what to write.
    """
    if shards > 1 and is_prepared(sampler, dataset):
        raise RuntimeError(
            f"Accelerate shards this {name} among its processes, and it is one of {shards} shards already: every "
            f"rank would get a part of its part. {REMEDY}"
        )


def check_worker(name: str, made_in: int, assumed: bool, chosen: bool) -> None:
    """Refuses to serve all batches of a rank in each of several workers of a ``DataLoader``.

    Args:
        name: What would serve them.
        made_in: The process that made it.
        assumed: Whether its rank was not given.
        chosen: Whether its epoch is another one than each worker begins with.
    """
    data = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return
    inherited = made_in != os.getpid()
    if worker.num_workers > 1 and (inherited or assumed):
        raise RuntimeError(
            f"a {name} in one of the {worker.num_workers} workers of a DataLoader: each of them would serve every batch"
            " of this rank. Use rowdex.torch.IterableDataset, which shards batches among workers, or num_workers=0 and "
            "map= of the loader; or make a loader in each worker, with its own num_replicas and rank"
        )
    if inherited and not chosen:
        warnings.warn(
            f"this {name} was copied to the worker of a DataLoader, and every worker that is started begins with the "
            "same epoch: use persistent_workers=True, call set_epoch() of the loader before each epoch, or use "
            "rowdex.torch.IterableDataset",
            stacklevel=5,
        )
