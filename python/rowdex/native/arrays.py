"""Arrow arrays as numpy arrays and torch tensors.

For each column a *reader* is made once; it turns the column of one batch after another.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ..errors import SchemaError
from ..schema import Field
from . import values as _values
from .columns import Codes, Masked, Ragged, cut, is_tensor
from .imports import loaded

if TYPE_CHECKING:
    import numpy as np

Nulls = Literal["error", "fill", "mask"]
"""What becomes of nulls, see :meth:`rowdex.Batch.to_numpy`."""


Reader = Callable[[Any, Any, int, int], Any]
"""``(array, owner, start, count)`` to the values of the rows from ``start`` on. ``owner`` keeps the buffers alive."""

_DTYPES = {
    "c": "int8", "C": "uint8", "s": "int16", "S": "uint16", "i": "int32", "I": "uint32", "l": "int64", "L": "uint64",
    "e": "float16", "f": "float32", "g": "float64", "tts": "int32", "ttm": "int32", "ttu": "int64", "ttn": "int64",
    "tdm": "datetime64[ms]", "tDs": "timedelta64[s]", "tDm": "timedelta64[ms]", "tDu": "timedelta64[us]",
    "tDn": "timedelta64[ns]",
}  # fmt: skip
_UNITS = {"s": "s", "m": "ms", "u": "us", "n": "ns"}


def reader(
    field: Field, nulls: Nulls, strings: str, column: str | None = None, items: Nulls | None = None
) -> Reader:
    """How to read a column, or a part of one that is called ``column``. Nulls within lists are as ``items`` says."""
    np = loaded("numpy")

    if nulls not in ("error", "fill", "mask"):
        raise ValueError(f"nulls={nulls!r}: use 'error', 'fill' or 'mask'")
    if strings not in ("list", "offsets"):
        raise ValueError(f"strings={strings!r}: use 'list' or 'offsets'")
    column = field.name if column is None else column
    if items is None:
        # Items under a null list may be null or not: only a mask of the whole row says what counts.
        items = "error" if nulls == "error" else "fill"
    present = _present(field, np, nulls, strings, column, items)

    def read(array: Any, owner: Any, start: int, count: int) -> Any:
        if array.null_count == 0 and nulls != "mask" and field.format != "n":
            return present(array, owner, start, count)
        valid = np.zeros(count, dtype=bool) if field.format == "n" else _valid(np, array, start, count)
        # Before what is inside, where anything may be under a null.
        if nulls == "error" and not valid.all():
            raise SchemaError(
                f"column {column!r}: {count - int(valid.sum())} of {count} values are null; "
                "ask for nulls='mask' or nulls='fill', or take the column as Arrow",
                column=column,
                hint="ask for nulls='mask' or nulls='fill', or take the column as Arrow",
            )
        found = _fill(np, present(array, owner, start, count), valid, nulls == "mask")
        return Masked(found, valid) if nulls == "mask" else found

    return read


def _valid(np: Any, array: Any, start: int, count: int) -> Any:
    if array.null_count == 0 or array.n_buffers == 0 or not array.buffers[0]:
        return np.ones(count, dtype=bool)
    return _bits(np, array, 0, array.offset + start, count)


def _bits(np: Any, array: Any, buffer: int, start: int, count: int) -> Any:
    first = start // 8
    data = _view(np, array, buffer, np.dtype(np.uint8), None, first, (start + count + 7) // 8 - first)
    return np.unpackbits(data, bitorder="little")[start % 8 : start % 8 + count].view(bool)


def _fill(np: Any, found: Any, valid: Any, masked: bool = False) -> Any:
    """The values with NaN, NaT, zeros, None or empty lists at the nulls. Never in the buffers that others may share.

    Where a mask marks the nulls, their codes are 0. Elsewhere a null gets a separate category, because the first one is
    a value.
    """
    if valid.all():
        return found
    if isinstance(found, np.ndarray):
        kind = found.dtype.kind
        none = np.nan if kind == "f" else np.array("NaT", dtype=found.dtype) if kind in "mM" else 0
        at = valid.reshape(-1, *[1] * (found.ndim - 1))
        return np.where(at, found, np.asarray(none, dtype=found.dtype))
    if isinstance(found, Ragged):
        # What is under a null may be a list that is not empty: leave out its items.
        lengths = np.diff(found.offsets)
        if (lengths[~valid] == 0).all():
            return found
        return Ragged(
            _picked(np, found.values, np.flatnonzero(np.repeat(valid, lengths))),
            _ends(np, np.where(valid, lengths, 0), found.offsets.dtype),
        )
    if isinstance(found, Codes):
        at, categories = (0, found.categories) if masked else _with_null(np, found.categories)
        return Codes(np.where(valid, found.codes, np.asarray(at, dtype=found.codes.dtype)), categories)
    if isinstance(found, dict):
        return {name: _fill(np, part, valid, masked) for name, part in found.items()}
    if isinstance(found, Masked):
        return Masked(_fill(np, found.values, valid, True), found.valid & valid)
    return [value if there else None for value, there in zip(found, valid)]


def _with_null(np: Any, categories: Any) -> tuple[int, Any]:
    """The categories with one more, which is what fills a null, and its code."""
    count = len(categories)
    if isinstance(categories, Ragged):
        return count, Ragged(categories.values, np.append(categories.offsets, categories.offsets[-1:]))
    if isinstance(categories, np.ndarray):
        more = np.concatenate([categories, np.zeros((1, *categories.shape[1:]), dtype=categories.dtype)])
        return count, _fill(np, more, np.arange(count + 1) < count)
    return count, [*categories, None]


def _ends(np: Any, lengths: Any, dtype: Any) -> Any:
    """The offsets of lists of these lengths."""
    offsets = np.zeros(len(lengths) + 1, dtype=dtype)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


class _Memory:
    """Memory of the library as numpy takes it. The array that is made of it keeps it, and so the owner, alive.

    Making a ctypes array type for every length takes ten times as long.
    """

    __slots__ = ("__array_interface__", "owner")
    __array_interface__: dict[str, Any]
    owner: Any


def _view(np: Any, array: Any, buffer: int, dtype: Any, owner: Any, start: int, count: int) -> Any:
    width = dtype.itemsize
    address = array.buffers[buffer]
    if not address or count == 0:
        return np.empty(count, dtype=dtype)
    memory = _Memory()
    memory.owner = owner
    memory.__array_interface__ = {
        "data": (address + start * width, False),
        "shape": (count,),
        "typestr": dtype.str,
        "version": 3,
    }
    return np.asarray(memory)


def _present(field: Field, np: Any, nulls: Nulls, strings: str, column: str, items: Nulls) -> Reader:
    kind = field.format
    if field.dictionary is not None:
        return _codes(field, np, strings)
    name = _DTYPES.get(kind)
    if kind.startswith("ts"):
        name = f"datetime64[{_UNITS[kind[2]]}]"
    if name is not None:
        dtype = np.dtype(name)

        def numbers(array: Any, owner: Any, start: int, count: int) -> Any:
            return _view(np, array, 1, dtype, owner, array.offset + start, count)

        return numbers
    if kind == "b":
        return lambda array, owner, start, count: _bits(np, array, 1, array.offset + start, count)
    if kind == "tdD":
        days = np.dtype("int32")

        def dates(array: Any, owner: Any, start: int, count: int) -> Any:
            # numpy counts days in 64 bits.
            return _view(np, array, 1, days, owner, array.offset + start, count).astype("datetime64[D]")

        return dates
    if kind.startswith("w:"):
        width = int(kind[2:])

        def fixed(array: Any, owner: Any, start: int, count: int) -> Any:
            data = _view(np, array, 1, np.dtype("uint8"), owner, (array.offset + start) * width, count * width)
            return data.reshape(count, width)

        return fixed
    if kind.startswith("+w:"):
        return _fixed_lists(field, np, items, strings, column)
    if kind in ("+l", "+L"):
        return _lists(field, np, items, strings, column)
    if kind in ("+vl", "+vL"):
        return _list_views(field, np, items, strings, column)
    if kind in ("u", "U", "z", "Z") and strings == "offsets":
        return _text_offsets(field, np)
    if kind in ("vu", "vz") and strings == "offsets":
        return lambda array, owner, start, count: _joined(np, array, start, count)
    if kind == "+s":
        readers = [
            (child.name, reader(child, nulls, strings, f"{column}.{child.name}", items)) for child in field.children
        ]

        def parts(array: Any, owner: Any, start: int, count: int) -> Any:
            at = array.offset + start
            return {name: read(array.children[i].contents, owner, at, count) for i, (name, read) in enumerate(readers)}

        return parts
    # Strings, binary, decimals, maps and the like: nulls are None already.
    return lambda array, owner, start, count: _values.values(field, array, start, count)


def _codes(field: Field, np: Any, strings: str) -> Reader:
    dtype = np.dtype(_DTYPES[field.format])
    assert field.dictionary is not None
    categories = reader(field.dictionary, "fill", strings)

    def codes(array: Any, owner: Any, start: int, count: int) -> Codes:
        known = array.dictionary.contents
        found = _view(np, array, 1, dtype, owner, array.offset + start, count)
        return Codes(found, categories(known, owner, 0, known.length))

    return codes


def _fixed_lists(field: Field, np: Any, nulls: Nulls, strings: str, column: str) -> Reader:
    width = int(field.format[3:])
    items = reader(field.children[0], nulls, strings, f"{column}.{field.children[0].name}")

    def fixed(array: Any, owner: Any, start: int, count: int) -> Any:
        child = array.children[0].contents
        found = items(child, owner, (array.offset + start) * width, count * width)
        if isinstance(found, np.ndarray):
            return found.reshape(count, width, *found.shape[1:])
        return _values.values(field, array, start, count)

    return fixed


def _lists(field: Field, np: Any, nulls: Nulls, strings: str, column: str) -> Reader:
    dtype = np.dtype("int32" if field.format == "+l" else "int64")
    items = reader(field.children[0], nulls, strings, f"{column}.{field.children[0].name}")

    def ragged(array: Any, owner: Any, start: int, count: int) -> Ragged:
        offsets = _offsets(np, array, dtype, owner, array.offset + start, count)
        first, last = int(offsets[0]), int(offsets[-1])
        found = items(array.children[0].contents, owner, first, last - first)
        return Ragged(found, offsets - dtype.type(first) if first else offsets)

    return ragged


def _list_views(field: Field, np: Any, nulls: Nulls, strings: str, column: str) -> Reader:
    """Lists that may lie in any order, or share items: they are copied one after another."""
    dtype = np.dtype("int32" if field.format == "+vl" else "int64")
    items = reader(field.children[0], nulls, strings, f"{column}.{field.children[0].name}")

    def ragged(array: Any, owner: Any, start: int, count: int) -> Ragged:
        starts = _view(np, array, 1, dtype, owner, array.offset + start, count)
        # What is under a null may be any list.
        lengths = np.where(
            _valid(np, array, start, count), _view(np, array, 2, dtype, owner, array.offset + start, count), 0
        )
        offsets = _ends(np, lengths, dtype)
        at = np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1], dtype=dtype)
        first, last = (int(at.min()), int(at.max()) + 1) if len(at) else (0, 0)
        found = items(array.children[0].contents, owner, first, last - first)
        return Ragged(_picked(np, found, at - first), offsets)

    return ragged


def _picked(np: Any, value: Any, at: Any) -> Any:
    """The values of these rows, in this order."""
    if isinstance(value, np.ndarray):
        return value[at]
    if isinstance(value, dict):
        return {name: _picked(np, part, at) for name, part in value.items()}
    if isinstance(value, Ragged):
        lengths = np.diff(value.offsets)[at]
        offsets = _ends(np, lengths, value.offsets.dtype)
        items = np.repeat(value.offsets[:-1][at] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Ragged(_picked(np, value.values, items), offsets)
    if isinstance(value, Codes):
        return Codes(value.codes[at], value.categories)
    if isinstance(value, Masked):
        return Masked(_picked(np, value.values, at), value.valid[at])
    return [value[row] for row in at.tolist()]


def _offsets(np: Any, array: Any, dtype: Any, owner: Any, start: int, count: int) -> Any:
    # An array of no rows may come without offsets.
    return _view(np, array, 1, dtype, owner, start, count + 1) if array.buffers[1] else np.zeros(1, dtype=dtype)


def _text_offsets(field: Field, np: Any) -> Reader:
    dtype = np.dtype("int32" if field.format in "uz" else "int64")

    def texts(array: Any, owner: Any, start: int, count: int) -> Ragged:
        offsets = _offsets(np, array, dtype, owner, array.offset + start, count)
        first, last = int(offsets[0]), int(offsets[-1])
        data = _view(np, array, 2, np.dtype("uint8"), owner, first, last - first)
        return Ragged(data, offsets - dtype.type(first) if first else offsets)

    return texts


def _joined(np: Any, array: Any, start: int, count: int) -> Ragged:
    # The bytes of views are in several places, so they are copied into one.
    pieces = _values.views(array, start, count)
    offsets = _ends(np, [len(piece) for piece in pieces], np.dtype("int64"))
    narrow = offsets[-1] <= np.iinfo("int32").max
    return Ragged(
        np.frombuffer(bytearray(b"".join(pieces)), dtype=np.uint8), offsets.astype("int32") if narrow else offsets
    )


def to_torch(value: Any) -> Any:
    """Arrays as tensors that share their memory, also within dicts and columns of several arrays. Dates and times
    become their integers."""
    np = loaded("numpy")
    torch = loaded("torch")

    if isinstance(value, np.ndarray):
        if value.dtype.kind in "mM":
            value = value.view("int64")
        elif value.dtype.char in "qQ":
            # Another name of numpy's for the same integers of 64 bits, which PyTorch does not know.
            value = value.view(value.dtype.str)
        return torch.from_numpy(value)
    if isinstance(value, dict):
        return {name: to_torch(part) for name, part in value.items()}
    if isinstance(value, (Ragged, Codes, Masked)):
        return value.each(to_torch)
    return value


def split(value: Any, size: int, rows: int) -> list[Any]:
    """Values of ``rows`` rows, as values of ``size`` rows each, the last ones fewer. Arrays and tensors become
    views."""
    return _split(value, [slice(start, min(start + size, rows)) for start in range(0, rows, size)])


def _split(value: Any, cuts: list[slice]) -> list[Any]:
    # This runs for every column: what is asked for most comes first, and nothing is asked for each cut.
    if isinstance(value, dict):
        parts = [_split(part, cuts) for part in value.values()]
        return [dict(zip(value, row)) for row in zip(*parts)] if parts else [{} for _ in cuts]
    if isinstance(value, Ragged):
        return _split_lists(value, cuts)
    if isinstance(value, Codes):
        return [Codes(codes, value.categories) for codes in _split(value.codes, cuts)]
    if isinstance(value, Masked):
        return list(map(Masked, _split(value.values, cuts), _split(value.valid, cuts)))
    if is_tensor(value) and cuts:
        lengths = [cut.stop - cut.start for cut in cuts]
        return list(value[cuts[0].start : cuts[-1].stop].split(lengths))
    return [value[cut] for cut in cuts]


def _split_lists(value: Ragged, cuts: list[slice]) -> list[Any]:
    np = loaded("numpy")

    if not cuts:
        return []
    of_torch = is_tensor(value.offsets)
    offsets = value.offsets.numpy() if of_torch else value.offsets
    ends = [*offsets[[cut.start for cut in cuts]].tolist(), int(offsets[cuts[-1].stop])]
    items = _split(value.values, [slice(first, last) for first, last in zip(ends, ends[1:])])
    size = cuts[0].stop - cuts[0].start
    full = cuts if cuts[-1].stop - cuts[-1].start == size else cuts[:-1]
    pieces: list[Any] = []
    if all(cut.stop - cut.start == size for cut in full):
        # The offsets of all pieces of one size in one go.
        known = offsets[cuts[0].start : full[-1].stop + 1]
        windows = np.lib.stride_tricks.sliding_window_view(known, size + 1)[:: max(size, 1)]
        pieces += list(windows - windows[:, :1])
    pieces += [offsets[cut.start : cut.stop + 1] - offsets[cut.start] for cut in cuts[len(pieces) :]]
    if of_torch:
        torch = loaded("torch")

        pieces = [torch.from_numpy(piece) for piece in pieces]
    return list(map(Ragged, items, pieces))


def joined(parts: list[Any]) -> Any:
    """Values of rows that follow each other, as one. The parts are of the same kinds."""
    np = loaded("numpy")

    first = parts[0]
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts]) for name in first}
    if isinstance(first, Masked):
        return Masked(joined([part.values for part in parts]), joined([part.valid for part in parts]))
    if isinstance(first, Codes):
        return _joined_codes(parts)
    if isinstance(first, Ragged):
        pieces, end = [first.offsets[:1] * 0], 0
        for part in parts:
            pieces.append(part.offsets[1:] - part.offsets[0] + end)
            end += int(part.offsets[-1] - part.offsets[0])
        # A slice of offsets keeps the values before it.
        values = [cut(part.values, int(part.offsets[0]), int(part.offsets[-1])) for part in parts]
        return Ragged(joined(values), joined(pieces))
    if is_tensor(first):
        torch = loaded("torch")

        return torch.cat(parts)
    return np.concatenate(parts) if isinstance(first, np.ndarray) else list(itertools.chain.from_iterable(parts))


def _joined_codes(parts: list[Codes]) -> Codes:
    """One code for one value, in the order in which they come. What fills nulls is the last, if it is no value."""
    np = loaded("numpy")

    keys = [list(map(_known_by, in_rows(part.categories, len(part.categories)))) for part in parts]
    first: dict[Any, Any] = {}
    for part, known in zip(parts, keys):
        for at, key in enumerate(known):
            if key not in first:
                first[key] = cut(part.categories, at, at + 1)
    if None in first:
        first[None] = first.pop(None)
    places = {key: place for place, key in enumerate(first)}
    codes = []
    for part, known in zip(parts, keys):
        # The codes below nulls that are masked are 0, also where there is no category.
        lookup = np.array([places[key] for key in known] or [0])
        if is_tensor(part.codes):
            torch = loaded("torch")

            codes.append(torch.from_numpy(lookup)[part.codes.long()].to(part.codes.dtype))
        else:
            codes.append(lookup[part.codes].astype(part.codes.dtype))
    return Codes(joined(codes), joined(list(first.values()) or [parts[0].categories]))


def _known_by(value: Any) -> Any:
    """What equal categories have in common; ``None``, NaN and NaT fill nulls."""
    value = value.numpy() if is_tensor(value) else value
    if not hasattr(value, "tobytes"):
        return value
    return None if value.ndim == 0 and value != value else value.tobytes()


def samples(field: Field, array: Any, owner: Any, start: int, count: int) -> list[Any]:
    """The values of rows one by one, as :func:`in_rows` has them, and as Python has them in a row that has a null
    within a list.
    """
    read = reader(field, "mask", "list", items="error")

    def of(first: int, rows: int) -> list[Any]:
        try:
            return in_rows(read(array, owner, first, rows), rows)
        except SchemaError:
            if rows == 1:
                return _values.values(field, array, first, 1)
            # What a row becomes does not depend on the rows beside it.
            return [value for row in range(first, first + rows) for value in of(row, 1)]

    return of(start, count)


def in_rows(value: Any, rows: int) -> list[Any]:
    """The values of ``rows`` rows one by one: scalars and views of arrays, and ``None`` where one is masked."""
    if isinstance(value, dict):
        parts = [in_rows(part, rows) for part in value.values()]
        return [dict(zip(value, row)) for row in zip(*parts)] if parts else [{} for _ in range(rows)]
    if isinstance(value, Masked):
        return [part if there else None for part, there in zip(in_rows(value.values, rows), value.valid)]
    if isinstance(value, Codes):
        names = in_rows(value.categories, len(value.categories))
        return [names[code] if names else None for code in value.codes]
    if isinstance(value, Ragged):
        ends = value.offsets.tolist()
        return [cut(value.values, start, end) for start, end in zip(ends, ends[1:])]
    return list(value)
