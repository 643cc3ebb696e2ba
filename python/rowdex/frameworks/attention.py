"""Whether a model keeps the pieces of a pack apart, which the model itself is tried for: whether it looks at where
positions restart depends on the model, the kernel of its attention, and the version of its library.
"""

from __future__ import annotations

from typing import Any

import torch

_HALF = 4


def check_apart(model: Any, batch: dict[str, Any], rounded: bool) -> None:
    """Refuses a model in which a piece of a pack depends on the piece before it, at the cost of a forward pass of a few
    tokens for each of two such packs.

    Args:
        model: Returns ``logits``. Of a model that does not, nothing is known.
        batch: What it is given, of which the names and the types count.
        rounded: Whether it computes in 16 bits; what it returns may have more.

    Raises:
        ValueError: saying what to do.
    """
    trains = model.training
    model.eval()
    try:
        # One that is compiled would be compiled once more.
        with torch.no_grad(), torch.compiler.set_stance("force_eager"):
            one, other = (getattr(model(**_packed(batch, first)), "logits", None) for first in (0, 1))
    finally:
        model.train(trains)
    if one is None or other is None:
        return
    # What attention does not see has no weight, so mostly there is no difference at all.
    differs = (one[0, _HALF:] - other[0, _HALF:]).abs().max()
    kind = torch.bfloat16 if rounded else one.dtype
    if differs > torch.finfo(kind).eps ** 0.5 * one.abs().max():
        raise ValueError(
            f"{type(model).__name__} does not keep the documents of a pack apart: what it says of one depends on the "
            "one before, although position_ids restart. Take a model whose attention goes by position_ids, as those "
            "of Llama, Qwen, Mistral and GPT-2 do, or serve rows, without pack"
        )


def _packed(batch: dict[str, Any], first: int) -> dict[str, Any]:
    """Two pieces as one pack: the first one of one token over and over, the second always the same."""
    tokens, bounds = batch["input_ids"], [0, _HALF, 2 * _HALF]
    ids = tokens.new_tensor([[first] * _HALF + [0, 1] * (_HALF // 2)])
    labels = ids.clone()
    labels[0, bounds[:-1]] = -100
    found = {"input_ids": ids, "position_ids": tokens.new_tensor([[*range(_HALF)] * 2]), "labels": labels}
    if "cu_seq_lens_q" in batch:
        found["cu_seq_lens_q"] = found["cu_seq_lens_k"] = batch["cu_seq_lens_q"].new_tensor(bounds)
        found["max_length_q"] = found["max_length_k"] = _HALF
        found["seq_idx"] = batch["seq_idx"].new_tensor([[0] * _HALF + [1] * _HALF])
    return found
