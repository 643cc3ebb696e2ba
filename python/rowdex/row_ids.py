"""Row ids as callers write them."""

from __future__ import annotations

import array
from collections.abc import Iterable, Sequence
from typing import Any

from .index import row_id
from .native.imports import loaded


def row_ids(rows: Any, count: int) -> array.array[int]:
    """The row ids of a sequence or an array of integers, or of booleans for each of ``count`` rows.

    Raises:
        IndexError: for one that is not there; TypeError: for what is no row id.
    """
    if hasattr(rows, "__array__") or hasattr(rows, "__array_interface__"):
        rows = _of_array(rows, count)
    elif isinstance(rows, (str, bytes)) or not isinstance(rows, Iterable):
        raise TypeError(f"row ids {rows!r}: use a sequence of integers")
    elif not isinstance(rows, (list, tuple, range)):
        rows = list(rows)
    if not isinstance(rows, range) and rows and isinstance(rows[0], bool):
        rows = _of_mask(rows, count)
    try:
        # Refuses what is negative, or no integer, or beyond 64 bits.
        return array.array("Q", rows)
    except OverflowError:
        return array.array("Q", [row_id(row, count) for row in rows])
    except TypeError as error:
        if "interpreted as an integer" not in str(error):
            raise
        raise TypeError(f"row ids are integers: {error}") from None


def _of_mask(mask: Sequence[Any], count: int) -> list[int]:
    """The rows that a sequence of booleans chooses."""
    if len(mask) != count:
        raise IndexError(f"a mask of {len(mask)} rows for a dataset of {count}")
    if not all(isinstance(chosen, bool) for chosen in mask):
        raise TypeError("row ids and booleans in one sequence: use one or the other")
    return [row for row, chosen in enumerate(mask) if chosen]


def _of_array(rows: Any, count: int) -> Any:
    np = loaded("numpy")

    found = np.asarray(rows)
    if found.ndim != 1:
        raise IndexError(f"row ids of shape {found.shape}: use an array of one dimension")
    if found.dtype == bool:
        if len(found) != count:
            raise IndexError(f"a mask of {len(found)} rows for a dataset of {count}")
        found = np.flatnonzero(found)
    if found.dtype.kind not in "iu" and len(found):
        raise TypeError(f"row ids of type {found.dtype}: use integers")
    return found.tolist()
