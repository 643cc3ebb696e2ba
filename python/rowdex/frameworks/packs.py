"""Batches of packs by the names that models ask for. The arrays are those that the library made: nothing here counts
positions or pieces.
"""

from __future__ import annotations

from typing import Any

IGNORED = -100
"""The label of what nothing is predicted for."""


def labels_of(batch: dict[str, Any]) -> Any:
    """The labels of a batch, which are those of the next token.

    Raises:
        ValueError: where it has none.
    """
    if "labels" not in batch:
        raise ValueError("labels=False, and the model is trained with labels: leave it out")
    return batch["labels"]


def causal(batch: dict[str, Any], column: str, bounds: bool) -> dict[str, Any]:
    """A flat batch as the models of Hugging Face take one: of shape ``(1, tokens)``, with ``position_ids`` that restart
    where a piece begins, and without an attention mask, which would join all pieces.

    These models shift labels themselves. So the label of a token is the token, and -100 where a piece begins.

    Args:
        batch: A batch of tensors.
        column: The packed column.
        bounds: Whether to say where pieces begin to kernels that would look for that otherwise, too.
    """
    positions, following = batch["position_ids"], labels_of(batch)
    begins = positions == 0
    labels = following.new_full(following.shape, IGNORED)
    labels[1:] = following[:-1]
    labels[begins] = IGNORED
    found = {"input_ids": batch[column].long()[None], "position_ids": positions[None], "labels": labels[None]}
    if bounds:
        ends, longest = batch["cu_seqlens"], int(batch["max_seqlen"])
        found |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
        found["seq_idx"] = (begins.cumsum(0, dtype=ends.dtype) - 1)[None]
    return found
