"""What PyTorch's ``DataLoader`` takes.

The best way is :class:`Dataset` with :class:`BatchSampler`: workers receive which step to make, plan ahead for their
own steps, and decode each row group seldom::

    dataset = rowdex.torch.Dataset("train.rdx")
    sampler = rowdex.torch.BatchSampler(dataset, batch_size=256, seed=42)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)

With other samplers, :class:`Dataset` serves the row ids that they ask for. The order ``"torch"`` of a
:class:`BatchSampler` has the very numbers of PyTorch's own ``DistributedSampler``.
"""

from __future__ import annotations

from ..sampler import DistributedSampler
from .all_ranks import GlobalBatchSampler, GlobalStep
from .dataset import Dataset, Zipped
from .iterable import IterableDataset
from .rows import Row, Rows
from .samplers import BatchSampler, Step

__all__ = [
    "BatchSampler", "Dataset", "DistributedSampler", "GlobalBatchSampler", "GlobalStep", "IterableDataset", "Row",
    "Rows", "Step", "Zipped",
]  # fmt: skip
