"""Arguments of a loader that contradict each other, or that are none of it."""

from __future__ import annotations

import os
from typing import Any

from ..native.library import count
from .convert import Added


def no_dataset(given: Any) -> TypeError:
    """Why a loader of this cannot be made."""
    if isinstance(given, (str, os.PathLike)):
        return TypeError(f"Loader({given!r}): give it a dataset, rowdex.Dataset({os.fspath(given)!r})")
    return TypeError(f"a Loader of {type(given).__name__}: give it a rowdex.Dataset")


def check(on_fault: Any, fault_seed: int, views: bool, strings: str) -> None:
    """Refuses what would do nothing, or not what it says.

    Raises:
        ValueError: saying what to write instead.
    """
    if on_fault not in ("fail", "substitute"):
        raise ValueError(f"on_fault={on_fault!r}: use 'fail' or 'substitute'")
    if fault_seed and on_fault != "substitute":
        raise ValueError(f"fault_seed={fault_seed} with on_fault={on_fault!r}: it chooses substitutes")
    if views and strings == "offsets":
        raise ValueError("views=True and strings='offsets': views have no offsets; leave out one of them")


def check_stream(kind: str, added: Added, mapped: bool, is_own: bool) -> None:
    """Refuses an Arrow stream that would lack what a loader of this class does with its batches.

    Raises:
        TypeError: naming it.
    """
    names = [name for name, column in added._asdict().items() if column is not None]
    if mapped:
        names.append("map, decode, collate or pad")
    if names:
        raise TypeError(f"a Loader with {', '.join(names)} is no Arrow stream: leave these out")
    if is_own:
        raise TypeError(f"a {kind} is no Arrow stream: use rowdex.Loader")


def map_threads(given: int | None, have_work: bool) -> int:
    """How many threads do what follows on the conversion of batches.

    Raises:
        ValueError: if there is nothing that they could do.
    """
    count(given, "map_threads")
    if given is not None and not have_work:
        raise ValueError("map_threads without map, decode, collate, pad or pin_memory: there is nothing to do")
    return 2 if given is None else given
