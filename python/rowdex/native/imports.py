"""Modules that are imported at their first use."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any

_LONGEST_SECONDS = 10.0

_loaded: dict[str, Any] = {}
_arrow: Any = None
_importing = threading.RLock()
# The threads that fork, and whether they have the lock.
_forking: dict[int, bool] = {}


def loaded(name: str) -> Any:
    """The module. A fork waits until it is imported: the child would wait for ever for a thread that it has not."""
    module = _loaded.get(name)
    if module is None:
        with _importing:
            module = _loaded[name] = importlib.import_module(name)
    return module


def arrow() -> Any:
    """pyarrow that has looked for pandas. It does so when it makes its first table, under a lock of its own, which a
    child would find taken for ever.
    """
    global _arrow
    if _arrow is None:
        with _importing:
            found = loaded("pyarrow")
            found.table(found.table({}))
            _arrow = found
    return _arrow


def _before() -> None:
    # The import may wait for the thread that forks.
    _forking[threading.get_ident()] = _importing.acquire(timeout=_LONGEST_SECONDS)


def _after() -> None:
    if _forking.pop(threading.get_ident(), False):
        _importing.release()


def _in_child() -> None:
    global _importing
    _importing = threading.RLock()
    _forking.clear()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
