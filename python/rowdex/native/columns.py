"""Columns that are more than one array: their length is that of their rows, and an index is a row."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from .imports import loaded


class _Column:
    """What is not iterated, because two parts and two rows would look alike."""

    _parts: tuple[str, str]

    def __init__(self, first: Any, second: Any) -> None:
        for name, part in zip(self._parts, (first, second)):
            setattr(self, name, part)

    def __len__(self) -> int:
        raise NotImplementedError

    def _row(self, row: int) -> Any:
        raise NotImplementedError

    def __getitem__(self, rows: int | slice) -> Any:
        """The value of a row, or the rows of a slice."""
        if isinstance(rows, slice):
            first, last, step = rows.indices(len(self))
            if step != 1:
                raise TypeError(f"{type(self).__name__}[{rows}]: rows that follow each other are a slice")
            return cut(self, first, max(first, last))
        if not hasattr(rows, "__index__"):
            raise TypeError(f"{type(self).__name__}[{rows!r}]: use the number of a row, or a slice")
        row = rows.__index__()
        row = row + len(self) if row < 0 else row
        if not 0 <= row < len(self):
            raise IndexError(f"row {rows} of {len(self)}")
        return self._row(row)

    def __iter__(self) -> Iterator[NoReturn]:
        first, second = self._parts
        raise TypeError(
            f"a {type(self).__name__} is not iterated: take its .{first} and its .{second}, or its rows by their "
            "number; where Lightning looks for the size of a batch, give it log(…, batch_size=…)"
        )

    def __array__(self, *arguments: Any, **options: Any) -> NoReturn:
        iter(self)
        raise AssertionError("not iterated")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._parts)})"

    def each(self, function: Callable[[Any], Any]) -> Any:
        """The same of what a function makes of both parts."""
        return type(self)(*(function(getattr(self, name)) for name in self._parts))

    def to(self, *arguments: Any, **options: Any) -> Any:
        """The same with its tensors where ``torch.Tensor.to`` brings them, as frameworks move batches."""
        return _with_tensors(self, lambda tensor: tensor.to(*arguments, **options))

    def pin_memory(self, *arguments: Any) -> Any:
        """The same with its tensors in memory that a GPU copies from without waiting."""
        return _with_tensors(self, lambda tensor: tensor.pin_memory(*arguments))


class Ragged(_Column):
    """Lists of different lengths: that of row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    ``len()`` is the number of rows, ``ragged[i]`` the list of a row, and ``ragged[i:j]`` a :class:`Ragged`.
    """

    _parts = ("values", "offsets")

    values: Any
    """All items, one list after another. Shape ``(items, ...)``."""
    offsets: Any
    """Where each list begins, and the end of the last. Shape ``(rows + 1,)``, int32 or int64."""

    def __init__(self, values: Any, offsets: Any) -> None:
        super().__init__(values, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _row(self, row: int) -> Any:
        return cut(self.values, int(self.offsets[row]), int(self.offsets[row + 1]))

    def padded(self, fill: Any = 0, length: int | None = None) -> Any:
        """The lists as one array or tensor of shape ``(rows, length, ...)``, with ``fill`` after the end of each.

        Args:
            length: Default: that of the longest list.

        Raises:
            ValueError: if a list is longer, or lists hold what is no array.
        """
        if not hasattr(self.values, "shape"):
            raise ValueError("only lists of numbers are padded, and lists of arrays of one shape")
        return in_places(self, fill, length)[0]


class Codes(_Column):
    """Values of a dictionary: that of row ``i`` is ``categories[codes[i]]``.

    ``len()`` is the number of rows, ``codes[i]`` the value of a row, and ``codes[i:j]`` a :class:`Codes`. Nulls that
    are filled have a separate category, the last one.
    """

    _parts = ("codes", "categories")

    codes: Any
    """Shape ``(rows,)``."""
    categories: Any
    """The dictionary: an array, or a list of Python values. Batches may have different ones."""

    def __init__(self, codes: Any, categories: Any) -> None:
        super().__init__(codes, categories)

    def __len__(self) -> int:
        return len(self.codes)

    def _row(self, row: int) -> Any:
        # A column of nulls has no categories, and its codes mean nothing.
        return row_of(self.categories, int(self.codes[row])) if len(self.categories) else None


class Masked(_Column):
    """Values with nulls among them.

    ``len()`` is the number of rows, ``masked[i]`` the value of a row or ``None``, and ``masked[i:j]`` a
    :class:`Masked`.
    """

    _parts = ("values", "valid")

    values: Any
    """As without nulls; what is at a null is a zero, NaN, NaT or None."""
    valid: Any
    """Whether there is a value. Shape ``(rows,)``, bool."""

    def __init__(self, values: Any, valid: Any) -> None:
        super().__init__(values, valid)

    def __len__(self) -> int:
        return len(self.valid)

    def _row(self, row: int) -> Any:
        return row_of(self.values, row) if self.valid[row] else None

    def to_ma(self) -> Any:
        """The values as a ``numpy.ma.MaskedArray``, which shares their memory.

        Raises:
            TypeError: if they are no array.
        """
        np = loaded("numpy")

        if not is_tensor(self.values) and not isinstance(self.values, np.ndarray):
            raise TypeError(f"values that are a {type(self.values).__name__} are no array: take .values and .valid")
        values, valid = np.asarray(self.values), np.asarray(self.valid)
        masked = ~valid.reshape(-1, *[1] * (values.ndim - 1))
        return np.ma.MaskedArray(values, np.broadcast_to(masked, values.shape))


def in_places(
    lists: Ragged, fill: Any, length: int | None, *, left: bool = False, multiple: int = 1, cuts: bool = False
) -> tuple[Any, Any]:
    """Lists of numbers as one array or tensor, and where their items are.

    Raises:
        ValueError: for a list that is longer than ``length``, unless it ``cuts``, and a ``fill`` of another type.
    """
    np = loaded("numpy")

    of_torch = is_tensor(lists.values)
    values, offsets = (part.numpy() if of_torch else part for part in (lists.values, lists.offsets))
    lengths = offsets[1:] - offsets[:-1]
    longest = int(lengths.max()) if len(lengths) else 0
    width = longest if length is None else length
    if longest > width and not cuts:
        raise ValueError(f"a list of {longest} items is longer than {width}: choose a greater length, or cut the lists")
    kept = np.minimum(lengths, width)
    width = -(-width // multiple) * multiple
    items = np.arange(len(values)) - np.repeat(offsets[:-1] - offsets[0], lengths)
    places = np.arange(width)
    there = places >= width - kept[:, None] if left else places < kept[:, None]
    check_fill(np, fill, values.dtype)
    found = np.full((len(lengths), width, *values.shape[1:]), fill, dtype=values.dtype)
    found[there] = values[items < np.repeat(kept, lengths)]
    if not of_torch:
        return found, there
    torch = loaded("torch")

    return torch.from_numpy(found), torch.from_numpy(there)


def check_fill(np: Any, fill: Any, dtype: Any) -> None:
    """Refuses what would be another number among integers or booleans.

    Raises:
        ValueError: naming it and the type.
    """
    if dtype.kind not in "biu":
        return
    try:
        fits = float(fill).is_integer() and bool(np.array(fill).astype(dtype) == fill)
    except (TypeError, ValueError, OverflowError):
        fits = False
    if not fits:
        raise ValueError(f"fill={fill!r} is no value of {dtype}: choose another, or bring the lists to another type")


def cut(value: Any, first: int, last: int) -> Any:
    """The values of the rows from ``first`` to before ``last``. Arrays and tensors become views."""
    if isinstance(value, dict):
        return {name: cut(part, first, last) for name, part in value.items()}
    if isinstance(value, Ragged):
        offsets = value.offsets[first : last + 1]
        start, end = int(offsets[0]), int(offsets[-1])
        return Ragged(cut(value.values, start, end), offsets - offsets[0])
    if isinstance(value, Codes):
        return Codes(value.codes[first:last], value.categories)
    if isinstance(value, Masked):
        return Masked(cut(value.values, first, last), value.valid[first:last])
    return value[first:last]


def row_of(value: Any, row: int) -> Any:
    """What a column has in a row."""
    if isinstance(value, dict):
        return {name: row_of(part, row) for name, part in value.items()}
    return value[row]


def is_tensor(value: Any) -> bool:
    """Whether this is a tensor of PyTorch, which need not be installed."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _with_tensors(value: Any, function: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _with_tensors(part, function) for name, part in value.items()}
    if isinstance(value, _Column):
        return value.each(lambda part: _with_tensors(part, function))
    return function(value) if is_tensor(value) else value
