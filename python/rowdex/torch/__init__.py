"""What PyTorch's ``DataLoader`` takes.

The best way is :class:`Dataset` with :class:`BatchSampler`: workers receive which step to make, plan ahead for the
steps that are theirs, and decode each row group seldom::

    dataset = rowdex.torch.Dataset("train.rdx")
    sampler = rowdex.torch.BatchSampler(dataset, batch_size=256, seed=42)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)

With samplers that are not rowdex's, :class:`Dataset` serves whatever row ids it is asked for; :meth:`Dataset.follow`
makes that fast for PyTorch's own ``DistributedSampler``.
"""

from __future__ import annotations

from typing import Any

from ..sampler import DistributedSampler
from .all_ranks import GlobalBatchSampler, GlobalStep
from .dataset import Dataset
from .iterable import IterableDataset
from .rows import Row, Rows
from .samplers import BatchSampler, Step


def __getattr__(name: str) -> Any:
    # torchdata is not needed for anything else here.
    if name == "Node":
        from .node import Node

        return Node
    raise AttributeError(f"module 'rowdex.torch' has no attribute {name!r}")


__all__ = [
    "BatchSampler", "Dataset", "DistributedSampler", "GlobalBatchSampler", "GlobalStep", "IterableDataset", "Row",
    "Rows", "Step",
]  # fmt: skip
