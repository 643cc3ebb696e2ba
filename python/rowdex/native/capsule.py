"""Arrow structs in PyCapsules, which their consumers move out of. What stays in one is released here.

A capsule may be dropped while an exception is on its way, as when a consumer fails. A destructor written in Python
cannot run then: it would replace the exception. So capsules have no destructor. They and their structs are kept here;
those without another reference are dropped when the next one is made.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, NamedTuple

from ..native import ArrowArrayStream

# Not ctypes.pythonapi, whose argument types belong to the whole process: others set them as they need them.
_new = ctypes.PyDLL(None).PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

# Names must live as long as the capsules.
_NAMES = {name: ctypes.c_char_p(name) for name in (b"arrow_schema", b"arrow_array", b"arrow_array_stream")}
_SWEPT_EACH_TIME = 64


class _Kept(NamedTuple):
    capsule: Any
    struct: Any
    pid: int


_kept: dict[int, _Kept] = {}
_sweep_at = 0


# Of a library object of its own, whose argument types are nobody else's.
_given = ctypes.PyDLL(None).PyCapsule_GetPointer
_given.restype = ctypes.c_void_p
_given.argtypes = [ctypes.py_object, ctypes.c_char_p]


def stream_of(source: Any) -> tuple[object, ArrowArrayStream]:
    """The capsule of an Arrow stream, which must live while it is read, and its struct."""
    owner = source.__arrow_c_stream__()
    return owner, ArrowArrayStream.from_address(_given(owner, b"arrow_array_stream"))


def capsule(struct: Any, name: bytes) -> object:
    """A capsule that owns ``struct``."""
    global _sweep_at
    if len(_kept) >= _sweep_at:
        _sweep()
        # Many that are in use at once are not looked at for each new one.
        _sweep_at = 2 * len(_kept) if len(_kept) > _SWEPT_EACH_TIME else 0
    address = ctypes.addressof(struct)
    made = _new(address, _NAMES[name], None)
    _kept[address] = _Kept(made, struct, os.getpid())
    return made


def live() -> int:
    """How many capsules there are with another reference."""
    _sweep()
    return len(_kept)


def _references(kept: _Kept) -> int:
    return sys.getrefcount(kept.capsule)


# How many references are counted where there is no other than that in `_Kept`, which differs between Pythons.
_ALONE = _references(_Kept(_new(ctypes.addressof(_NAMES[b"arrow_schema"]), _NAMES[b"arrow_schema"], None), None, 0))


def _sweep() -> None:
    unused = [address for address, kept in list(_kept.items()) if _references(kept) == _ALONE]
    for address in unused:
        # Another thread may have been faster.
        kept = _kept.pop(address, None)
        # What belongs to the parent of a forked process is not released in the child.
        if kept is not None and kept.struct.release and kept.pid == os.getpid():
            kept.struct.release(address)
