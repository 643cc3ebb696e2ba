"""Arguments of a loader that contradict each other, or that are none of it."""

from __future__ import annotations

import os
from typing import Any

from .convert import Added


def no_dataset(given: Any) -> TypeError:
    """Why a loader of this cannot be made."""
    if isinstance(given, (str, os.PathLike)):
        return TypeError(f"Loader({given!r}): give it a dataset, rowdex.Dataset({os.fspath(given)!r})")
    return TypeError(f"a Loader of {type(given).__name__}: give it a rowdex.Dataset")


def check(on_error: Any, strings: Any) -> None:
    """Refuses what it does not say.

    Raises:
        ValueError: saying what to write instead.
    """
    if on_error not in ("raise", "substitute"):
        raise ValueError(f"on_error={on_error!r}: use 'raise' or 'substitute'")
    if strings not in ("list", "offsets", "views"):
        raise ValueError(f"strings={strings!r}: use 'list', 'offsets' or 'views'")


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
