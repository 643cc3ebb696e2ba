"""Batches of packs by the names that Grain and MaxText have for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..frameworks.packs import IGNORED, labels_of


def segments(batch: dict[str, Any], column: str = "tokens") -> dict[str, Any]:
    """Packs as Grain's own packing names them, int32, of shape ``(packs, capacity)``.

    ``tokens``, ``tokens_segment_ids`` (from 1 in each pack; 0 where there is no token), and ``tokens_positions``, which
    restart where a piece begins and are 0 where there is no token. They have no labels: where prompts are not to be
    trained on, take :func:`maxtext`, or ``labels`` of the batch.

    Args:
        batch: A batch of numpy arrays, of a loader with ``pack`` and ``layout="rows"``.
        column: The packed column, ``tokens`` above.
    """
    tokens = batch[column]
    if tokens.ndim != 2:
        raise ValueError('layout="flat": Grain\'s packs are rows of one length, so use layout="rows"')
    ids = batch["segment_ids"].astype(np.int32)
    positions = np.where(ids == 0, 0, batch["position_ids"]).astype(np.int32)
    return {column: tokens.astype(np.int32), f"{column}_segment_ids": ids, f"{column}_positions": positions}


def maxtext(batch: dict[str, Any], column: str = "tokens") -> dict[str, Any]:
    """Packs as MaxText trains on them, int32, of shape ``(packs, capacity)``: ``inputs`` and ``targets``, with
    ``_position`` and ``_segmentation`` of each. Targets are the labels of the next tokens; where there is none, the
    target and its segmentation are 0, and the loss leaves it out.

    Args:
        batch: As :func:`segments` has it, with labels.
        column: The packed column.
    """
    tokens, ids, positions = segments(batch, column).values()
    labels = labels_of(batch)
    there = labels != IGNORED
    return {
        "inputs": tokens,
        "inputs_position": positions,
        "inputs_segmentation": ids,
        "targets": np.where(there, labels, 0).astype(np.int32),
        "targets_position": positions,
        "targets_segmentation": np.where(there, ids, 0),
    }
