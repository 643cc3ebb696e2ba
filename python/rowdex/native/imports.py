"""Modules that are imported at their first use."""

from __future__ import annotations

import datetime
import decimal
import importlib
import os
import threading
from typing import Any

_LONGEST_SECONDS = 10.0

_loaded: dict[str, Any] = {}
_arrow: Any = None
_frames: Any = None
_importing = threading.RLock()
# The threads that fork, and whether they have the lock.
_forking: dict[int, bool] = {}


def loaded(name: str) -> Any:
    """The module. A fork waits until it is imported: the child would wait without end for a thread that it has not."""
    module = _loaded.get(name)
    if module is None:
        with _importing:
            module = _loaded[name] = importlib.import_module(name)
    return module


def arrow() -> Any:
    """pyarrow that has looked for pandas. It does so when it makes its first table, under its own lock, which would
    stay locked in a child.
    """
    global _arrow
    if _arrow is None:
        with _importing:
            found = loaded("pyarrow")
            found.table(found.table({}))
            _arrow = found
    return _arrow


def frames() -> Any:
    """pyarrow that has made a data frame. The first one imports modules and makes its thread pool and other statics of
    C++, each of which would stay half made in a child.
    """
    global _frames
    if _frames is None:
        with _importing:
            found = arrow()
            moment = datetime.datetime(2000, 1, 1)
            columns = {
                "number": found.array([1, None]),
                "text": found.array(["a", None]),
                "bytes": found.array([b"a", None]),
                "class": found.array(["a", None]).dictionary_encode(),
                "date": found.array([moment.date(), None]),
                "local": found.array([moment, None]),
                "moment": found.array([moment, None], found.timestamp("us", "UTC")),
                "decimal": found.array([decimal.Decimal("1.5"), None]),
                "list": found.array([[1.0], None]),
                "struct": found.array([{"a": 1}, None]),
            }
            found.table(columns).to_pandas()
            _frames = found
    return _frames


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
