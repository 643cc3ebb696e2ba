"""The loaded library, calls that raise, and handles that belong to one process."""

from __future__ import annotations

import array
import ctypes
import inspect
import json
import operator
import os
import re
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from .. import native
from ..errors import BY_STATUS, ArgumentError, Error, InternalError

library: Any = native.load()

T = TypeVar("T")


def exception_of(told: dict[str, Any]) -> Error:
    """The exception for what is known of an error."""
    return BY_STATUS.get(told["status"], InternalError)(
        told["message"], file=told["file"], row_group=told["row_group"], column=told["column"], hint=told["hint"]
    )


# Milliseconds that a call waits for a batch.
_MAX_WAIT = 100


def loader_options(**fields: Any) -> native.LoaderOptions:
    """How a loader works whose batches :func:`call` waits for."""
    return native.LoaderOptions(max_wait=_MAX_WAIT, **fields)


def call(function: Any, *arguments: Any) -> None:
    """Calls what returns a status, and raises its error. What takes long comes back now and then, and is called again:
    Python runs signal handlers, such as that of Ctrl-C, between two calls.
    """
    error = ctypes.c_void_p()
    while status := function(*arguments, ctypes.byref(error)):
        raised = None if status == native.Status.TIMED_OUT else exception_of(_told(error))
        library.free(error)
        if raised is not None:
            try:
                raise raised
            finally:
                # An exception that is a variable of a frame in its traceback keeps all callers' variables alive.
                del raised


# A file URL names a local path.
_URL = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://")


def is_remote(*places: str | bytes | os.PathLike[str] | None) -> bool:
    """Whether any of these places is in an object store."""
    return any(_URL.match(os.fsdecode(place)) for place in places if isinstance(place, (str, bytes, os.PathLike)))


def waiting(remote: bool, work: Callable[[], T]) -> T:
    """What ``work`` returns or raises, which may wait for a store if ``remote``.

    Python runs signal handlers, such as that of Ctrl-C, in the main thread and between two calls. So a call that may
    wait long is made by another thread, while the main one listens. If a handler raises, the call is stopped: it puts
    no file in its place any more, and ends soon. What it makes is then dropped.
    """
    if not remote or threading.current_thread() is not threading.main_thread():
        return work()
    stop, done = ctypes.c_uint32(), threading.Lock()
    made: list[T] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call(library.stop_when, ctypes.byref(stop))
            made.append(work())
        except BaseException as error:  # Is raised where it is waited for.
            raised.append(error)
        finally:
            done.release()

    done.acquire()
    thread = threading.Thread(target=run, name="rowdex-wait", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # There can be no more threads, as when the interpreter ends.
        return work()
    try:
        # Not every system ends a wait for a lock when a signal comes.
        while not done.acquire(timeout=0.1):
            pass
    except BaseException:
        stop.value = 1
        done.acquire(timeout=0.2)
        raise
    if raised:
        raise raised.pop()
    return made.pop()


# Of a library object of its own, whose argument types are nobody else's.
_method = ctypes.PyDLL(None).PyInstanceMethod_New
_method.restype = ctypes.py_object
_method.argtypes = [ctypes.py_object]


class Owned:
    """What a function of the library frees when the last reference goes, and in no other way.

    That function itself is ``__del__``: the interpreter calls it with what ctypes finds in ``_as_parameter_``. No line
    of Python runs there, and so no signal handler, whose exception, such as that of Ctrl-C, would be lost. What a
    forked child inherits is not freed there.
    """

    # NULL until there is anything to free.
    _as_parameter_: Any = None
    _process: int

    def __new__(cls, free: Any, *_: Any) -> Any:
        # Functions of the library have no hash. They live as long as it does.
        kind = _kinds.get((cls, id(free)))
        if kind is None:
            members = {"__del__": _method(free), "_process": os.getpid()}
            kind = _kinds[cls, id(free)] = type(cls.__name__, (cls,), members)
        return object.__new__(kind)

    @property
    def inherited(self) -> bool:
        """Whether it belongs to the process that this one was forked from."""
        return self._process != os.getpid()


_kinds: dict[tuple[type[Owned], int], type[Owned]] = {}


def _in_child() -> None:
    for kind in _kinds.values():
        del kind.__del__  # type: ignore[attr-defined]
    _kinds.clear()


os.register_at_fork(after_in_child=_in_child)


class Handle(Owned):
    """Owns what the library made, and is what its functions are given: ctypes reads ``_as_parameter_``.

    A call has a reference to the handle for as long as it lasts, so nothing that another thread does, ``close()`` and
    the collector included, frees it under a call.
    """

    def __new__(cls, *_: Any) -> Any:
        return super().__new__(cls, library.free)

    def __init__(self, function: Any, *arguments: Any) -> None:
        # What the library makes is in here at once, whatever is raised then.
        self._as_parameter_ = ctypes.c_void_p()
        call(function, *arguments, ctypes.byref(self._as_parameter_))

    def __bool__(self) -> bool:
        """Whether there is anything: some functions give nothing."""
        return bool(self._as_parameter_)

    @property
    def address(self) -> int | None:
        """For a struct that a call is given. The caller keeps the handle until the call is over."""
        address: int | None = self._as_parameter_.value
        return address


def described(operands: Operands | None = None, /, **fields: Any) -> bytes:
    """A description as the library takes it, which says what is wrong with it."""
    return json.dumps(_plain(fields, operands), ensure_ascii=False).encode("utf-8", "surrogateescape")


def _plain(value: Any, operands: Operands | None) -> Any:
    """What JSON has for a value. A float that is a whole number is one."""
    if hasattr(value, "_operand"):
        return _plain(value._operand(operands), operands)
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, (bytes, os.PathLike)):
        return os.fsdecode(value)
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, Mapping):
        return {str(name): _plain(item, operands) for name, item in value.items()}
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, Iterable):
        return [_plain(item, operands) for item in value]
    return float(value)


def reported(function: Any, *arguments: Any) -> Any:
    """What a call reports."""
    report = Handle(function, *arguments)
    return json.loads(ctypes.string_at(report.address or 0))


def told_of(handle: Handle) -> dict[str, Any]:
    """What is known of a handle."""
    told: dict[str, Any] = reported(library.describe, handle)
    return told


def _told(error: ctypes.c_void_p) -> dict[str, Any]:
    """What is known of an error, also if something else fails."""
    text = ctypes.c_void_p()
    library.describe(error, ctypes.byref(text), None)
    told: dict[str, Any] = json.loads(ctypes.string_at(text.value or 0))
    library.free(text)
    return told


class PerProcess(Generic[T]):
    """A value that ``make`` makes when it is first asked for, once however many threads ask, and again in a forked
    child. An object whose method ``make`` is has this value, and is not kept alive by it.
    """

    __slots__ = ("_owner", "_make", "_made", "_locks", "_leaked")

    def __init__(self, make: Callable[[], T]) -> None:
        # Without a callback, in which the exception of a signal handler would be lost.
        self._owner = weakref.ref(make.__self__) if inspect.ismethod(make) else None
        self._make: Any = make if self._owner is None else make.__func__  # type: ignore[attr-defined]
        # The process and its value, read and replaced as one.
        self._made: tuple[int, T] | None = None
        # A lock for each process: one that is held while the process is forked is held for ever in the child.
        self._locks: dict[int, threading.RLock] = {}
        self._leaked: list[Any] = []

    def get(self) -> T:
        """The value of this process. A call that uses it keeps what this returns."""
        made, pid = self._made, os.getpid()
        if made is not None and made[0] == pid:
            return made[1]
        with self._locks.setdefault(pid, threading.RLock()):
            made = self._made
            if made is None or made[0] != pid:
                if made is not None:
                    # Of the parent: its destructor may wait for threads that are not here.
                    self._leaked.append(made)
                made = (pid, self._make() if self._owner is None else self._make(self._owner()))
                self._made = made
            return made[1]

    def made(self) -> T | None:
        """The value of this process, if there is one already."""
        made = self._made
        return made[1] if made is not None and made[0] == os.getpid() else None

    def inherited(self) -> T | None:
        """The value of the parent, while a forked child makes its own."""
        made = self._made
        return made[1] if made is not None and made[0] != os.getpid() else None

    def replace(self, value: T, other: T) -> None:
        """Puts another value in the place of this one, unless another thread did."""
        made, pid = self._made, os.getpid()
        with self._locks.setdefault(pid, threading.RLock()):
            if self._made is made and made is not None and made[1] is value:
                self._made = (pid, other)

    def forget(self) -> None:
        """Drops the value, so that it is made again when it is next asked for."""
        made = self._made
        if made is not None and made[0] == os.getpid():
            self._made = None


def texts(values: list[bytes]) -> Any:
    """An array of C strings."""
    return (ctypes.c_char_p * len(values))(*values)


def path_bytes(path: str | bytes | os.PathLike[str]) -> bytes:
    """A path as the library wants it."""
    return no_nul(os.fsencode(path), "path")


def no_nul(value: bytes, name: str) -> bytes:
    """C texts end with a NUL, so none may be inside."""
    if b"\0" in value:
        raise ValueError(f"a {name} with a NUL: {value!r}")
    return value


def located(path: str | os.PathLike[str]) -> str:
    """The absolute path, or a URL as it is."""
    text = os.fsdecode(path)
    return text if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) else os.path.abspath(text)


def local_list(path: str | bytes | os.PathLike[str]) -> str:
    """The absolute path of a list of rows, which every process of this machine reads itself.

    Raises:
        ArgumentError: for a URL.
    """
    if is_remote(path):
        url, hint = os.fsdecode(path), "copy it to this machine, and give its path"
        raise ArgumentError(f"{url}: a list of rows is a local file: {hint}", file=url, hint=hint)
    return os.path.abspath(os.fsdecode(path))


def optional_path(path: str | os.PathLike[str] | None) -> bytes | None:
    return None if path is None else path_bytes(path)


def optional_text(value: str | None, name: str) -> bytes | None:
    return None if value is None else text_bytes(value, name)


class RowSet:
    """A set of row ids in the library: a :class:`rowdex.order.IdSet`."""

    @property
    def _pointer(self) -> Handle:
        raise NotImplementedError

    def __len__(self) -> int:
        """How many rows are in the set."""
        return int(told_of(self._pointer)["len"])

    def _operand(self, operands: Operands) -> int:
        return operands.set(self._pointer)


class Operands:
    """What a description refers to by numbers: what has ``_operand`` adds itself."""

    def __init__(self, indexes: Iterable[Handle] = (), stream: Any = None, **handles: Handle | None) -> None:
        self._indexes, self._stream, self._handles = list(indexes), stream, handles
        self._numbers: list[array.array[Any]] = []
        self._sets: list[Handle] = []

    def numbers(self, values: array.array[Any]) -> int:
        """The number of an array."""
        self._numbers.append(values)
        return len(self._numbers) - 1

    def set(self, handle: Handle) -> int:
        """The number of a set."""
        self._sets.append(handle)
        return len(self._sets) - 1

    @property
    def indexes(self) -> list[Handle]:
        """Those that a description is of, one after the other."""
        return self._indexes

    def struct(self) -> native.Operands:
        """What the library is given. These are kept until the call is over."""
        numbers = [native.Numbers(*values.buffer_info()) for values in self._numbers]
        indexes, sets = ([handle.address for handle in handles] for handles in (self._indexes, self._sets))
        return native.Operands(
            indexes=(ctypes.c_void_p * len(indexes))(*indexes), num_indexes=len(indexes),
            numbers=(native.Numbers * len(numbers))(*numbers), num_numbers=len(numbers),
            sets=(ctypes.c_void_p * len(sets))(*sets), num_sets=len(sets),
            stream=self._stream, **{name: one.address for name, one in self._handles.items() if one is not None},
        )  # fmt: skip

    def make(self, function: Any, fields: dict[str, Any]) -> Handle:
        """What a function makes of a description."""
        return Handle(function, described(self, **fields), ctypes.byref(self.struct()))

    def run(self, tell: Any = native.Progress(), **job: dict[str, Any]) -> Any:
        """What work reports that is described by its name."""
        return reported(library.run, described(self, **job), ctypes.byref(self.struct()), tell, None)


def optional_set(of: RowSet | None) -> RowSet | None:
    """The rows that are asked for. Other objects have pointers, too, which the library would take for one of a set."""
    if of is not None and not isinstance(of, RowSet):
        raise TypeError(f"of is a {type(of).__name__}: use an IdSet, such as rowdex.order.IdSet(len(dataset), row_ids)")
    return of


def text_bytes(value: str, name: str) -> bytes:
    """A text as the library wants it."""
    if not isinstance(value, str):
        raise TypeError(f"{name} is {value!r}: use a text")
    return no_nul(value.encode(), name)


def whole(value: Any, name: str) -> int:
    """A whole number: of Python, of numpy, or a float that is one, such as ``4e9``."""
    try:
        return int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}: use a whole number") from None


def token(value: Any, name: str) -> int:
    """A token, which has 64 bits with a sign at most."""
    number = whole(value, name)
    if not -(2**63) <= number < 2**63:
        raise ValueError(f"{name} is {number}: a token is a number of 64 bits, below 2^63")
    return number


def not_pickled(message: str) -> Any:
    """What ``__reduce__`` of something ends with that is not pickled. In the thread that feeds a queue of another
    process an error is lost, and the receiver would wait without end: there the receiver raises it again.
    """
    if threading.current_thread().name == "QueueFeederThread":
        return _refused, (message,)
    raise TypeError(message)


def _refused(message: str) -> Any:
    raise TypeError(message)


def seed_number(value: Any, name: str = "seed") -> int:
    """A seed as the library wants it."""
    return whole(value, name) % 2**64


def count(value: int | None, name: str) -> int:
    """A number for an option in which 0 stands for the default: ``None`` is the default, 0 is none at all."""
    if value is None:
        return 0
    value = whole(value, name)
    if not 0 <= value < native.NONE:
        raise ValueError(f"{name} is {value}: use 0 or more")
    return native.NONE if value == 0 else value


# As on the command line: a bare "K" is a KiB.
_UNITS = {
    **{"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{
        unit: 2**power
        for power, prefix in ((10, "k"), (20, "m"), (30, "g"), (40, "t"))
        for unit in (prefix, f"{prefix}i", f"{prefix}ib")
    },
}


def size(value: int | str | None, name: str) -> int:
    """A number of bytes for an option in which 0 stands for the default: ``4 << 30``, or a text such as ``"4GiB"``.

    ``"4GB"`` is 4 * 10**9, ``"4GiB"``, ``"4Gi"`` and ``"4G"`` are 4 * 2**30.
    """
    if value is None:
        return 0
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?i?b?)\s*", value, re.IGNORECASE)
        unit = _UNITS.get(found[2].lower()) if found else None
        if found is None or unit is None:
            raise ValueError(f"{name} is {value!r}: use a number of bytes, or a text such as '4GiB' or '512MB'")
        value = round(float(found[1]) * unit)
    value = whole(value, name)
    if not 0 < value < native.NONE:
        raise ValueError(f"{name} is {value}: use a number of bytes from 1 on")
    return value
