"""Many numbers, such as the row ids of an order, that travel to other processes in a file instead of in every
pickle."""

from __future__ import annotations

import array
import contextlib
import contextvars
import multiprocessing
import multiprocessing.util
import os
import weakref
from collections.abc import Iterator
from typing import Any

from ..errors import IoError, NotFoundError
from .imports import loaded

_INLINE_BYTES = 1024
_whole: contextvars.ContextVar[bool] = contextvars.ContextVar("rowdex_whole_numbers", default=False)


@contextlib.contextmanager
def whole_in_pickles() -> Iterator[None]:
    """Has pickles that are made here have all numbers themselves, for processes of other machines."""
    token = _whole.set(True)
    try:
        yield
    finally:
        _whole.reset(token)


class Numbers:
    """Numbers of one type. A pickle has those themselves if they are few, and else the name of a file that all
    processes of the machine share.

    The file is made when it is first needed, and removed with the numbers that made it. Numbers are equal if they are
    the same ones; that is known by a hash.
    """

    __slots__ = ("code", "length", "digest", "_values", "_path", "__weakref__")

    def __init__(self, code: str, values: Any) -> None:
        self.code = code
        try:
            found = _array(code, values)
        except OverflowError as error:
            raise ValueError(f"a number that is negative or too large: {error}") from None
        self._values: array.array[Any] | None = found
        self.length = len(found)
        self.digest = _digest(code, found)
        self._path: str | None = None

    @property
    def values(self) -> array.array[Any]:
        """The numbers; read from the file, if these are from another process."""
        if self._values is None:
            assert self._path is not None
            values = array.array(self.code)
            try:
                with open(self._path, "rb") as file:
                    values.fromfile(file, self.length)
            except (OSError, EOFError) as error:
                raise NotFoundError(
                    f"{self._path}: the numbers of an order are not there any more, "
                    f"as the process that made it has ended: {error}",
                    file=self._path,
                ) from error
            self._values = values
        return self._values

    def __len__(self) -> int:
        return self.length

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Numbers) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"{self.length} numbers"

    def _operand(self, operands: Any) -> Any:
        return operands.numbers(self.values)

    def __reduce__(self) -> Any:
        if _whole.get() or (self._path is None and self.length * self.values.itemsize <= _INLINE_BYTES):
            return Numbers, (self.code, self.values.tobytes())
        return _from_file, (self.code, self._file(), self.length, self.digest)

    def _file(self) -> str:
        if self._path is None:
            values = self.values
            tempfile = loaded("tempfile")
            path = tempfile.gettempdir()
            try:
                number, path = tempfile.mkstemp(prefix="rowdex-", suffix=".numbers")
                try:
                    with open(number, "wb") as file:
                        values.tofile(file)
                except BaseException:
                    _remove(path, os.getpid())
                    raise
            except OSError as error:
                hint = "make room there, or set TMPDIR to a folder that has room"
                size = len(values) * values.itemsize
                raise IoError(
                    f"{path}: cannot write the {size} bytes of a list that other processes are to read: "
                    f"{error.strerror or error}; {hint}",
                    file=path,
                    hint=hint,
                ) from error
            self._path = path
            weakref.finalize(self, _remove, path, os.getpid())
            if multiprocessing.parent_process() is not None:
                # What weakref runs at the end of a program does not run in these.
                multiprocessing.util.Finalize(self, _remove, (path, os.getpid()), exitpriority=-10)
        return self._path


def _array(code: str, values: Any) -> array.array[Any]:
    if isinstance(values, bytes):
        found = array.array(code)
        found.frombytes(values)
        return found
    if isinstance(values, array.array):
        return array.array(code, values)
    if hasattr(values, "__array__") or hasattr(values, "__array_interface__"):
        np = loaded("numpy")

        given = np.asarray(values)
        if given.ndim != 1:
            raise ValueError(f"numbers of shape {given.shape}: use an array of one dimension")
        if code != "d" and len(given):
            if given.dtype.kind not in "iu":
                raise TypeError(f"numbers of type {given.dtype}: use integers")
            if int(given.min()) < 0 or int(given.max()) >= 2 ** (8 * array.array(code).itemsize):
                raise OverflowError(f"numbers from {given.min()} to {given.max()}")
        found = array.array(code)
        found.frombytes(given.astype({"Q": "uint64", "I": "uint32", "d": "float64"}[code]).tobytes())
        return found
    if code == "Q" and not isinstance(values, (range, str)):
        values = list(values)
        # A mask would be the rows 0 and 1.
        if any(isinstance(value, bool) for value in values):
            raise TypeError("numbers that are booleans: use integers")
    return array.array(code, values)


def _digest(code: str, values: array.array[Any]) -> str:
    hashed = loaded("hashlib").blake2b(memoryview(values).cast("B"), digest_size=16, person=code.encode())
    digest: str = hashed.hexdigest()
    return digest


def _from_file(code: str, path: str, length: int, digest: str) -> Numbers:
    numbers = object.__new__(Numbers)
    numbers.code, numbers.length, numbers.digest = code, length, digest
    numbers._values, numbers._path = None, path
    return numbers


def _remove(path: str, pid: int) -> None:
    # A forked child has the same finalizers, and not the same file to remove.
    if os.getpid() == pid:
        try:
            os.unlink(path)
        except OSError:
            pass
