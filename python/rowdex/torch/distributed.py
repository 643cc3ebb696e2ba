"""The sampler of rowdex as one of PyTorch's."""

from __future__ import annotations

import torch.utils.data

from .. import sampler as _sampler


class DistributedSampler(_sampler.DistributedSampler, torch.utils.data.DistributedSampler):  # type: ignore[override,type-arg]
    """What :class:`rowdex.DistributedSampler` makes where PyTorch is imported: frameworks keep a sampler of this kind."""
