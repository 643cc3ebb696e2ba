"""Loaders of the ranks of a machine that share one reader."""

from __future__ import annotations

import atexit
import itertools
import multiprocessing
import multiprocessing.util
import os
import sys
import weakref
from typing import Any

from ..native.library import no_nul

_numbers = itertools.count()
_open: weakref.WeakSet[Any] = weakref.WeakSet()
_told: set[int] = set()


def options(
    share: str | None, name: str | None, job: str | None, ranks: int | None, drift: int | None, on_death: str | None
) -> dict[str, Any]:
    """The options of the library for these arguments of a loader."""
    if share is None:
        given = {
            "share_name": name, "share_job": job, "share_ranks": ranks, "share_drift": drift,
            "share_on_death": on_death,
        }  # fmt: skip
        unused = [argument for argument, value in given.items() if value is not None]
        if unused:
            raise ValueError(f"{', '.join(unused)} without share: add share='machine'")
        return {}
    if share != "machine":
        raise ValueError(f"share={share!r}: use 'machine', or None")
    if not sys.platform.startswith("linux"):
        raise ValueError("share='machine' needs Linux: leave it out, and each rank reads for itself")
    for argument, value in (("share_ranks", ranks), ("share_drift", drift)):
        if value is not None and not 0 < value < 2**31:
            raise ValueError(f"{argument} is {value}: use 1 or more")
    if on_death not in (None, "continue", "fail"):
        raise ValueError(f"share_on_death={on_death!r}: use 'continue' or 'fail'")
    # The ranks make their loaders in the same order.
    name = f"loader {next(_numbers)}" if name is None else name
    return {
        "share": b"machine",
        "share_name": no_nul(name.encode(), "share_name"),
        "share_job": None if job is None else no_nul(job.encode(), "share_job"),
        "share_ranks": ranks or 0,
        "share_drift": drift or 0,
        "share_on_death": None if on_death is None else on_death.encode(),
    }


def close_at_exit(loader: Any) -> None:
    """Lets the other ranks know when this process ends, which may read for them, so that they go on."""
    _open.add(loader)
    if multiprocessing.parent_process() is not None and os.getpid() not in _told:
        # What was registered with atexit does not run in all of these.
        _told.add(os.getpid())
        multiprocessing.util.Finalize(None, _close_all, exitpriority=100)


@atexit.register
def _close_all() -> None:
    for loader in list(_open):
        loader.close()
