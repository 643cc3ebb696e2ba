"""Arguments of a loader that contradict each other, or that it does not have."""

from __future__ import annotations

from typing import Any

from ..zipped import Zipped


def no_dataset(given: Any) -> TypeError:
    """Why a loader of this cannot be made."""
    return TypeError(f"a Loader of {type(given).__name__}: give it a rowdex.Dataset, or what rowdex.open takes")


def check(on_error: Any, strings: Any, dataset: Any) -> None:
    """Refuses what it does not say.

    Raises:
        ValueError: saying what to write instead.
    """
    if on_error not in ("raise", "substitute"):
        raise ValueError(f"on_error={on_error!r}: use 'raise' or 'substitute'")
    if on_error == "substitute" and isinstance(dataset, Zipped):
        raise ValueError(
            "on_error='substitute' and a Zipped, each of whose datasets would serve other rows: use 'raise', or leave "
            "out the rows that cannot be read with order=rowdex.order.Subset('global', ids)"
        )
    if strings not in ("list", "offsets", "views"):
        raise ValueError(f"strings={strings!r}: use 'list', 'offsets' or 'views'")
