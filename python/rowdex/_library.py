"""The loaded library, calls that raise, and handles that belong to one process."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from . import _ffi
from .errors import exception_of

library: Any = _ffi.load()

T = TypeVar("T")


def call(function: Any, *arguments: Any) -> None:
    """Calls what returns a status, and raises its error."""
    error = ctypes.c_void_p()
    if function(*arguments, ctypes.byref(error)):
        raised = exception_of(error)
        library.error_free(error)
        raise raised


class Handle:
    """Owns what the library made. In a forked child it is left alone: it is neither used nor freed there."""

    __slots__ = ("pointer", "_free", "_pid")

    def __init__(self, free: Callable[[int], None], function: Any, *arguments: Any) -> None:
        out = ctypes.c_void_p()
        self.pointer: int | None = None
        self._free = free
        self._pid = os.getpid()
        call(function, *arguments, ctypes.byref(out))
        self.pointer = out.value

    @property
    def inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._pid != os.getpid()

    def close(self) -> None:
        """Frees it, now rather than when nobody refers to it any more."""
        pointer, self.pointer = self.pointer, None
        if pointer is not None and self._pid == os.getpid():
            self._free(pointer)

    # The default keeps the function alive until the last handle is gone, while the interpreter ends.
    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if getattr(self, "pointer", None) is not None and self._pid == getpid():
            self._free(self.pointer)  # type: ignore[arg-type]


class PerProcess(Generic[T]):
    """A value made by ``make`` when it is first asked for, and again in a forked child, which leaks what it inherited."""

    __slots__ = ("_make", "_pid", "_value", "_leaked")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._pid: int | None = None
        self._value: T | None = None
        self._leaked: list[T] = []

    def get(self) -> T:
        value = self._value
        if value is not None and self._pid == os.getpid():
            return value
        if value is not None:
            self._leaked.append(value)
        made = self._make()
        self._value, self._pid = made, os.getpid()
        return made

    def made(self) -> T | None:
        """The value of this process, if there is one already."""
        return self._value if self._pid == os.getpid() else None

    def forget(self) -> None:
        """Drops the value, so that it is made again when it is next asked for."""
        self._value = None


def texts(values: list[bytes]) -> Any:
    """An array of C strings."""
    return (ctypes.c_char_p * len(values))(*values)


def path_bytes(path: str | os.PathLike[str]) -> bytes:
    """A path as the library wants it."""
    return no_nul(os.fsencode(path), "path")


def no_nul(value: bytes, name: str) -> bytes:
    """C texts end with a NUL, so none may be inside."""
    if b"\0" in value:
        raise ValueError(f"a {name} with a NUL: {value!r}")
    return value


def located(path: str | os.PathLike[str]) -> str:
    """The absolute path, or a URL as it is."""
    text = os.fspath(path)
    return text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else os.path.abspath(text)


def optional_path(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else path_bytes(path)


def optional_text(value: str | None, name: str) -> bytes | None:
    return None if value is None else no_nul(value.encode(), name)


def count(value: int | None, name: str) -> int:
    """A number for an option in which 0 stands for the default: ``None`` is the default, 0 is none at all."""
    if value is None:
        return 0
    if not 0 <= value < _ffi.NONE:
        raise ValueError(f"{name} is {value}: use 0 or more")
    return _ffi.NONE if value == 0 else value


def size(value: int | None, name: str) -> int:
    """A number of bytes for an option in which 0 stands for the default."""
    if value is None:
        return 0
    if not 0 < value < _ffi.NONE:
        raise ValueError(f"{name} is {value}: use a number of bytes from 1 on")
    return value
