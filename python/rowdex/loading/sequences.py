"""What a loader makes of the tokens of packs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..batch import OF_SEQUENCES
from ..dataset import Dataset
from ..native.library import text_bytes, texts
from ..packing import Pack
from ..schema import Field

MASKS = ("completion_mask", "assistant_masks")
"""What TRL calls the columns that have 0 for tokens without labels."""


def options(pack: Pack | None) -> dict[str, Any]:
    """What the library gets about the columns that have an item for each token."""
    if pack is None:
        return {}
    named = [text_bytes(name, "with_columns") for name in pack.with_columns]
    found: dict[str, Any] = {"with_columns": texts(named), "num_with_columns": len(named)} if named else {}
    return found if pack.tokens is None else {**found, "tokens": text_bytes(pack.tokens, "tokens")}


def beside(fields: Sequence[Field], column: str) -> list[str]:
    """The columns of labels and masks that go with one of tokens, or their paths: those that the library takes as such.
    """
    structs, dot, _ = column.rpartition(".")
    for name in structs.split(".") if dot else ():
        fields = next((field.children for field in fields if field.name == name), ())
    names = ("labels", *MASKS)
    return [structs + dot + field.name for field in fields if field.name in names and _has_integers(field)]


def _has_integers(field: Field) -> bool:
    """Whether a column has lists of integers, or of booleans where it is a mask."""
    items = "cCsSiIlL" + ("" if field.name == "labels" else "b")
    return field.format[:2] in ("+l", "+L", "+w", "+v") and field.children[0].format in items


def arguments(pack: Pack | None, output: str, dataset: Dataset) -> dict[str, Any] | None:
    """What is made of the tokens of packs: arguments of :meth:`Batch.sequences`."""
    if pack is None or pack.layout is None or output not in ("torch", "numpy"):
        return None
    made = {
        "layout": pack.layout, "labels": pack.labels, "bos": pack.bos, "eos": pack.eos, "pad": pack.pad,
        # Rows of buckets are as long as the longest one, and there is none.
        "capacity": 0 if pack._is_of_rows else pack.capacity,
    }  # fmt: skip
    own = beside(dataset.schema.fields, pack.tokens or str(pack.lengths))
    taken = [name for name in dataset.column_names if name in names(made) and name not in own]
    if taken:
        raise ValueError(
            f"there is a column called {taken[0]!r}, which is also an array that is made of packs"
            f"{_NO_LABELS if taken[0] == 'labels' else ''}: call it otherwise when the index is built, choose columns "
            "without it (columns= of the Dataset), or use output='arrow'"
        )
    return made


_NO_LABELS = ", and which has no lists of integers, one for each token"


def names(made: dict[str, Any] | None) -> frozenset[str]:
    """What the arrays are called that are made so, besides the tokens."""
    if made is None:
        return frozenset()
    return OF_SEQUENCES if made["labels"] else OF_SEQUENCES - {"labels"}
