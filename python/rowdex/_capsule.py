"""Arrow structs in PyCapsules, which their consumers move out of, or which release them when they are dropped."""

from __future__ import annotations

import ctypes
from typing import Any

# Not ctypes.pythonapi, whose argument types belong to the whole process: others set them as they need them.
_api = ctypes.PyDLL(None)
_new = _api.PyCapsule_New
_new.restype = ctypes.py_object
_new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
# The capsule is being destroyed while these are called, so it goes by its address: nothing may count references to it
# any more.
_name = _api.PyCapsule_GetName
_name.restype = ctypes.c_void_p
_name.argtypes = [ctypes.c_void_p]
_pointer = _api.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.c_void_p, ctypes.c_void_p]

# Names must live as long as the capsules.
_NAMES = {name: ctypes.c_char_p(name) for name in (b"arrow_schema", b"arrow_array", b"arrow_array_stream")}
_structs: dict[int, Any] = {}


def capsule(struct: Any, name: bytes) -> object:
    """A capsule that owns ``struct``."""
    address = ctypes.addressof(struct)
    _structs[address] = struct
    return _new(address, _NAMES[name], _destructor)


def live() -> int:
    """How many structs there are that nobody has released or moved out of yet, as far as is known here."""
    return len(_structs)


def _destroy(
    capsule: int,
    pointer: Any = _pointer,
    name: Any = _name,
    structs: dict[int, Any] = _structs,
    cast: Any = ctypes.addressof,
) -> None:
    struct = structs.pop(pointer(capsule, name(capsule)), None)
    if struct is not None and struct.release:
        struct.release(cast(struct))


_destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(_destroy)
# A capsule may be dropped after this module is.
_api.Py_IncRef(ctypes.py_object(_destructor))
