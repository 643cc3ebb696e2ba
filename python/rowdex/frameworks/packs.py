"""Batches of packs by the names that models ask for. The arrays are those that the library made: nothing here counts
positions or pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
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


def causal(batch: dict[str, Any], column: str, bounds: bool, with_columns: Sequence[str] = ()) -> dict[str, Any]:
    """A flat batch as the models of Hugging Face take one: of shape ``(1, tokens)``, with ``position_ids`` that restart
    where a piece begins, and without an attention mask, which would join all pieces.

    These models shift labels themselves. So the label of a token is its own, and -100 where a piece begins; and so do
    other columns have for a token what is its own, and 0 where a piece begins.

    Args:
        batch: A batch of tensors.
        column: The packed column.
        bounds: Whether to say where pieces begin to kernels that would look for that otherwise, too.
        with_columns: Other columns that have an item for each token.
    """
    positions = batch["position_ids"]
    begins = positions == 0

    def own(following: Any, none: int) -> Any:
        found = following.new_full(following.shape, none)
        found[1:] = following[:-1]
        found[begins] = none
        return found[None]

    found = {
        "input_ids": batch[column].long()[None],
        "position_ids": positions[None],
        "labels": own(labels_of(batch), IGNORED),
        **{name: own(batch[name], 0) for name in with_columns},
    }
    if bounds:
        ends, longest = batch["cu_seqlens"], int(batch["max_seqlen"])
        found |= {"cu_seq_lens_q": ends, "cu_seq_lens_k": ends, "max_length_q": longest, "max_length_k": longest}
        found["seq_idx"] = (begins.cumsum(0, dtype=ends.dtype) - 1)[None]
    return found
