"""The sampler of rowdex as one of PyTorch's."""

from __future__ import annotations

import torch.utils.data

from .. import sampler as _sampler


# What PyTorch has as attributes is read-only here.
class DistributedSampler(  # type: ignore[override]
    _sampler.DistributedSampler,
    torch.utils.data.DistributedSampler,  # type: ignore[type-arg]
):
    """What :class:`rowdex.DistributedSampler` is where PyTorch is imported: frameworks keep a sampler of this kind."""
