"""What a loader makes of the tokens of packs."""

from __future__ import annotations

from typing import Any

from ..batch import OF_SEQUENCES
from ..dataset import Dataset
from ..native.library import text_bytes
from ..packing import Buckets, Pack


def options(tokens: str | None) -> dict[str, Any]:
    """What the library is told of them."""
    return {} if tokens is None else {"tokens": text_bytes(tokens, "tokens")}


def arguments(pack: Any, output: str, tokens: str | None, dataset: Dataset) -> dict[str, Any] | None:
    """What is made of the tokens of packs: arguments of :meth:`Batch.sequences`."""
    if pack is None and tokens is not None:
        raise ValueError(f"tokens={tokens!r} without pack: it names the column with the tokens of packs")
    if not isinstance(pack, (Pack, Buckets)) or pack.layout is None or output not in ("torch", "numpy"):
        return None
    made = {
        "layout": pack.layout, "labels": pack.labels, "bos": pack.bos, "eos": pack.eos, "pad": pack.pad,
        # Rows of buckets are as long as the longest one, and there is none.
        "capacity": pack.capacity if isinstance(pack, Pack) else 0,
    }  # fmt: skip
    taken = [name for name in dataset.column_names if name in names(made)]
    if taken:
        raise ValueError(
            f"there is a column called {taken[0]!r}, which is also an array that is made of packs: leave it out "
            "(columns= of the Dataset), call it otherwise when the index is built, or use output='arrow'"
        )
    return made


def names(made: dict[str, Any] | None) -> frozenset[str]:
    """What the arrays are called that are made so, besides the tokens."""
    if made is None:
        return frozenset()
    return OF_SEQUENCES if made["labels"] else OF_SEQUENCES - {"labels"}
