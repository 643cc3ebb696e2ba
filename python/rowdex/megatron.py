"""Batches of packs for Megatron-Core, whose name for packs without padding is THD.

::

    pack = rowdex.Pack("tokens", capacity=8192, multiple=2 * context_parallel_size)
    loader = rowdex.Loader(dataset, batch_size=1, pack=pack, num_replicas=dp_size, rank=dp_rank)
    batches = map(rowdex.megatron.thd, loader)

``megatron.core.datasets.data_schedule.get_batch_on_this_rank_for_sequence_packing`` takes an iterator of these, and
makes ``PackedSeqParams`` of them.
"""

from __future__ import annotations

from typing import Any

import torch

from .frameworks.packs import IGNORED, labels_of


def thd(batch: dict[str, Any], column: str = "tokens") -> dict[str, Any]:
    """A flat batch of packs as one microbatch of Megatron-Core.

    ===================== ================ =============================================================
    ``tokens``            int64, (places,)  all packs, one after the other
    ``position_ids``      int64, (places,)  which restart where a piece begins
    ``labels``            int64, (places,)  the next token, and -100 where there is none
    ``loss_mask``         float32, (places,)  0 where there is no label
    ``cu_seqlens``        int32, (pieces + 1,)  the sums of the tokens of pieces
    ``cu_seqlens_padded`` int32, (pieces + 1,)  the sums of what they take with ``multiple``
    ``max_seqlen``        int32, (1,)       the most that a piece takes
    ===================== ================ =============================================================

    With context parallelism pieces are to be a multiple of twice its size, so say ``multiple`` to the packing.

    Args:
        batch: A batch of tensors, of a :class:`rowdex.Loader` with ``pack``.
        column: The packed column.

    Raises:
        ValueError: for a batch without labels, or one of a fixed number of places for each pack.
    """
    if batch[column].ndim != 1:
        raise ValueError('layout="rows": THD is packs without padding between them, so use layout="flat"')
    labels, bounds = labels_of(batch), batch["cu_seqlens"]
    lengths = torch.zeros_like(bounds)
    torch.cumsum(batch["lengths"], 0, dtype=torch.int32, out=lengths[1:])
    return {
        "tokens": batch[column].long(),
        "position_ids": batch["position_ids"].long(),
        "labels": labels.long(),
        "loss_mask": (labels != IGNORED).float(),
        "cu_seqlens": lengths,
        "cu_seqlens_padded": bounds,
        "max_seqlen": torch.as_tensor([int(batch["max_seqlen"])], dtype=torch.int32),
    }


__all__ = ["thd"]
