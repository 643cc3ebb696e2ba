"""What becomes of a batch before it is handed out: columns decoded, collated and padded, then functions of the batch.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from ..batch import Batch
from ..dataset import Dataset
from ..errors import TransformError
from ..native.arrays import to_torch
from ..native.columns import Codes, Masked, Ragged, is_tensor
from ..native.imports import loaded
from ..spec import SamplerSpec
from ..transforms import Image, Pad
from .named import asked, called

Function = Callable[[Any], Any]
_Error = TypeVar("_Error", bound=Exception)
_NAMED_ROWS = 8
_BATCH_FAILED = "its __cause__ has the line that failed, and row_ids are the rows of the batch"
_TEXTS = ("u", "U", "z", "Z", "vu", "vz")


class RowErrors(Exception):
    """Which rows could not be decoded: the column and the error by the place in the batch."""

    def __init__(self, errors: dict[int, tuple[str, Exception]]) -> None:
        super().__init__(errors)
        self.errors = errors


class Transforms:
    """The functions, and the order in which they are called. May be called from many threads at once."""

    def __init__(
        self,
        dataset: Dataset,
        output: str,
        spec: SamplerSpec,
        *,
        decode: Mapping[str, Function] | None,
        collate: Mapping[str, Function] | None,
        pad: Any,
        map: Function | Sequence[Function] | None,
        pin: bool,
    ) -> None:
        self._dataset, self._output, self._pin = dataset, output, pin
        self.decode = _functions("decode", decode, dataset)
        self._collate = _functions("collate", collate, dataset)
        self._pads, self._pad_all = _pads(pad, dataset)
        self._map = functions(map)
        for function in self._map:
            if not callable(function):
                raise TypeError(f"map={function!r}: give a function of a batch, or a list of them")
        self._asks = {name: asked(f"decode[{name!r}]", function, "rng") for name, function in self.decode.items()}
        self._map_asks = [asked("map", function, "rngs") for function in self._map]
        self._seed = spec.seed
        self._draws = any([*self._asks.values(), *self._map_asks])
        if self._draws:
            spec.check_draws()
        lists = any(field.format in ("+l", "+L", "+vl", "+vL") for field in dataset.schema.fields)
        if self._pad_all is not None and not lists and not self.decode:
            raise ValueError(f"pad={pad!r}: no column has lists of different lengths")
        if output == "arrow" and (self.decode or self._collate or pad is not None):
            raise ValueError("decode, collate and pad with output='arrow': use 'torch' or 'numpy', or map=")
        if output == "python" and pad is not None:
            raise ValueError("pad with output='python': use 'torch' or 'numpy'")
        if pin and output != "torch":
            raise ValueError(f"pin_memory with output={output!r}: only tensors are pinned, use output='torch'")
        if pin and not _has_device():
            warnings.warn("pin_memory=True, and there is no accelerator: tensors are not pinned", stacklevel=3)
            self._pin = False

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.decode or self._collate or self._pads or self._pad_all or self._map or self._pin)

    def entering(self) -> Callable[[], None]:
        """What a thread does first, to work for the thread that asks here: pinning uses the device that is current."""
        if not self._pin:
            return lambda: None
        torch = loaded("torch")

        device = torch.accelerator.current_device_index()
        return lambda: torch.accelerator.set_device_index(device)

    def numbers(self, batch: Batch) -> Any:
        """The random numbers of the rows of a batch, if a function asks for some."""
        if not self._draws:
            return None
        return loaded("rowdex.loading.random_numbers").RowNumbers.of(self._seed, batch, batch.epoch)

    def decoded(
        self, batch: Batch, numbers: Any
    ) -> tuple[dict[str, list[Any]], dict[int, tuple[str, Exception]]]:
        """The values of the columns that are decoded, row by row, and what went wrong, by the place of the row."""
        if not self.decode:
            return {}, {}
        given = batch.to_pydict(list(self.decode))
        found: dict[str, list[Any]] = {name: [] for name in self.decode}
        errors: dict[int, tuple[str, Exception]] = {}
        for name, function in self.decode.items():
            asks = self._asks[name]
            for place, value in enumerate(given[name]):
                try:
                    found[name].append(called(function, asks, value, numbers, place))
                except Exception as error:
                    errors.setdefault(place, (name, error))
                    found[name].append(None)
        try:
            return found, errors
        finally:
            # An error has this frame.
            del errors

    def finish(self, found: Any, decoded: dict[str, list[Any]], numbers: Any) -> Any:
        """The batch to hand out, of its converted columns and those that were decoded."""
        for name, values in decoded.items():
            found[name] = values if name in self._collate else stacked(values, self._output, name)
        for name, function in self._collate.items():
            found[name] = function(found[name])
        for name, pad in self._pads_of(found):
            given = found[name]
            try:
                padded, there = pad(given.values if isinstance(given, Masked) else given)
            except ValueError as error:
                raise ValueError(f"column {name!r}: {error}") from None
            found[name] = Masked(padded, given.valid) if isinstance(given, Masked) else padded
            if pad.mask is not None:
                if pad.mask in found:
                    raise ValueError(f"there is a column called {pad.mask!r}: choose another name for the mask")
                found[pad.mask] = there
        # None draws the same numbers as another.
        first = int(any(self._asks.values()))
        for number, (function, asks) in enumerate(zip(self._map, self._map_asks), first):
            found = function(found) if asks is None else function(found, rngs=numbers.rngs(number))
        return pinned(found) if self._pin else found

    def _pads_of(self, found: dict[str, Any]) -> list[tuple[str, Pad]]:
        pads = dict(self._pads)
        if self._pad_all is not None:
            # Text as offsets and bytes is no list of numbers.
            texts = {field.name for field in self._dataset.schema.fields if field.format in _TEXTS}
            plain = {name: value.values if isinstance(value, Masked) else value for name, value in found.items()}
            names = (name for name, value in plain.items() if isinstance(value, Ragged))
            pads |= {name: self._pad_all for name in names if name not in texts or name in self.decode}
        return list(pads.items())

    def error_of(self, batch: Batch, error: Exception) -> TransformError:
        """Which row it was, in which file and row group; or which rows, if a function of a whole batch failed."""
        step = f"epoch {batch.epoch}, step {batch.step}"
        ids = batch.row_ids
        if isinstance(error, RowErrors):
            place, (column, cause) = min(error.errors.items())
            more = f" (and {len(error.errors) - 1} more of this batch)" if len(error.errors) > 1 else ""
            failed = [ids[place] for place in sorted(error.errors)]
            found = row_failed(self._dataset, "decode", ids[place], f"{more}, {step}", cause, column, failed)
        else:
            cause = error
            named = ", ".join(map(str, ids[:_NAMED_ROWS])) + (", …" if len(ids) > _NAMED_ROWS else "")
            found = TransformError(
                f"a function of the loader failed for the batch of {step}, row ids {named}: {_told(error)}; "
                f"{_BATCH_FAILED}",
                row_ids=ids,
                hint=_BATCH_FAILED,
            )
        found.epoch, found.step = batch.epoch, batch.step
        found.__cause__ = cause
        return found


def row_failed(
    dataset: Dataset, what: str, row: int, when: str, cause: Exception, column: str | None, failed: list[int]
) -> TransformError:
    """That a function failed for a row, and perhaps for others."""
    file, group, at = dataset._location(row, column)
    where = f"{file}, row group {group}, row {at}" + ("" if column is None else f", column {column!r}")
    message = f"{where}: {what} failed for row id {row}{when}: {_told(cause)}"
    return TransformError(message, file=file, row_group=group, column=column, row_ids=failed)


def kept(error: _Error) -> _Error:
    """The same error to keep: without a traceback, whose frames hold the loader and the batch."""
    try:
        found = copy.copy(error)
    except Exception:
        return RuntimeError(_told(error))  # type: ignore[return-value]
    try:
        found.__cause__ = copy.copy(error.__cause__)
    except Exception:
        # It cannot be made of its arguments. What it says is in the message.
        found.__cause__ = None
    return found


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _functions(argument: str, given: Mapping[str, Function] | None, dataset: Dataset) -> dict[str, Function]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise TypeError(f"{argument}={given!r}: give a dict of a function for each column, {{'name': function}}")
    for name, function in given.items():
        if name not in dataset.column_names:
            raise KeyError(f"{argument}: no column is called {name!r}{_meant(argument, name, dataset)}")
        if not callable(function):
            raise TypeError(f"{argument}[{name!r}] is {function!r}: give a function")
        if isinstance(function, Image):
            _check_bytes(argument, name, dataset)
    return dict(given)


def _meant(argument: str, name: str, dataset: Dataset) -> str:
    """What to write instead: the column, for the path of one of its fields."""
    above = max((column for column in dataset.column_names if name.startswith(f"{column}.")), key=len, default=None)
    if above is None:
        return f"; there are {', '.join(dataset.column_names)}"
    return f", which is a field: write {argument}={{{above!r}: …}}, and the function gets a dict of the fields served"


def _check_bytes(argument: str, name: str, dataset: Dataset) -> None:
    """Without its bytes no row of a column is an image, which need not be found out row by row."""
    field = next(field for field in dataset.schema.fields if field.name == name)
    fields = [child.name for child in field.children]
    if field.format == "+s" and not {"bytes", "inline"}.intersection(fields):
        raise ValueError(
            f"{argument}: column {name!r} is served with its {', '.join(fields)} only, and an image needs its bytes: "
            f"add {name + '.bytes'!r} to columns"
        )


def _pads(pad: Any, dataset: Dataset) -> tuple[dict[str, Pad], Pad | None]:
    """How columns are padded by name, and how all others are."""
    if pad is None:
        return {}, None
    if isinstance(pad, Mapping):
        unknown = [name for name in pad if name not in dataset.column_names]
        if unknown:
            raise KeyError(f"pad: no column is called {unknown[0]!r}; there are {', '.join(dataset.column_names)}")
        return {name: length if isinstance(length, Pad) else Pad(length) for name, length in pad.items()}, None
    if isinstance(pad, Pad) and pad.mask is not None:
        raise ValueError("pad with a mask for all columns: give one for each, pad={'tokens': Pad(mask=…)}")
    return {}, pad if isinstance(pad, Pad) else Pad(pad)


def stacked(values: list[Any], output: str, name: str) -> Any:
    """Values of rows as one: numbers and arrays of one shape as an array or tensor, lists of numbers and arrays of one
    dimension as a :class:`Ragged`, and all else as a list."""
    if output == "python" or not values:
        return values
    np = loaded("numpy")

    first = values[0]
    if isinstance(first, (bool, int, float, np.generic)) and not isinstance(first, (np.str_, np.bytes_)):
        try:
            numbers = np.asarray(values)
        except ValueError:  # There are lists among them.
            return values
        # Integers that no 64 bits have room for together would be rounded.
        rounded = numbers.dtype.kind == "f" and all(isinstance(value, (int, np.integer)) for value in values)
        if numbers.dtype.kind not in "biuf" or rounded:
            return values
        return to_torch(numbers) if output == "torch" else numbers
    if all(map(is_tensor, values)):
        return _of_tensors(values, output, name)
    lists = isinstance(first, list) and all(isinstance(value, list) for value in values)
    if not lists and not _is_array(first):
        return values
    if any(isinstance(value, np.ma.MaskedArray) for value in values):
        raise _no_batch(name, "masked arrays, whose masks a batch has no place for")
    try:
        arrays = [value.numpy() if is_tensor(value) else np.asarray(value) for value in values]
    except ValueError:
        raise _no_batch(name, "nested lists of different lengths") from None
    if any(array.dtype.kind not in ("biuf" if lists else "biufcmM") for array in arrays):
        return values
    if _rounded(values, arrays):
        return values
    if all(array.ndim == 1 for array in arrays):
        return _ragged(arrays, output, np.int64 if lists else arrays[0].dtype)
    _check_shapes(arrays, name)
    return to_torch(np.stack(arrays)) if output == "torch" else np.stack(arrays)


def _rounded(values: list[Any], arrays: list[Any]) -> bool:
    """Whether these arrays, which were made of values of rows, are of integers, and one array of them is not."""
    np = loaded("numpy")

    # Empty ones have no type of their own.
    full = [(value, array) for value, array in zip(values, arrays) if array.size]
    if not full or np.result_type(*(array.dtype for _, array in full)).kind != "f":
        return False
    return all(
        array.dtype.kind in "biu"
        or (isinstance(value, list) and all(isinstance(item, (int, np.integer)) for item in _items(value)))
        for value, array in full
    )


def _items(value: Any) -> Iterator[Any]:
    for item in value:
        yield from _items(item) if isinstance(item, list) else [item]


def _of_tensors(tensors: list[Any], output: str, name: str) -> Any:
    """Tensors as they are, with any types and devices."""
    torch = loaded("torch")

    if all(tensor.ndim == 1 for tensor in tensors):
        lengths = torch.tensor([0, *map(len, tensors)])
        # Empty ones have no type of their own.
        full = [tensor for tensor in tensors if len(tensor)] or tensors[:1]
        found = Ragged(torch.cat(full), lengths.cumsum(0))
        return found.each(lambda part: part.numpy()) if output == "numpy" else found
    _check_shapes(tensors, name)
    return torch.stack(tensors).numpy() if output == "numpy" else torch.stack(tensors)


def _check_shapes(arrays: list[Any], name: str) -> None:
    shapes = {tuple(array.shape) for array in arrays}
    if len(shapes) > 1:
        raise _no_batch(name, f"arrays of shapes {' and '.join(map(str, sorted(shapes, key=str)[:2]))}")


def _no_batch(name: str, what: str) -> ValueError:
    return ValueError(
        f"column {name!r} was decoded to {what}, which are no batch: make them alike, as Image(size=…) does, or keep "
        f"a list, collate={{{name!r}: list}}"
    )


def _ragged(arrays: list[Any], output: str, otherwise: Any) -> Any:
    """``otherwise`` is the type of the values where there are none."""
    np = loaded("numpy")

    lengths = [len(array) for array in arrays]
    offsets = np.zeros(len(arrays) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    # An empty list has no type of its own.
    full = [array for array in arrays if len(array)]
    found = Ragged(np.concatenate(full) if full else np.empty(0, dtype=otherwise), offsets)
    return to_torch(found) if output == "torch" else found


def _is_array(value: Any) -> bool:
    np = loaded("numpy")

    return hasattr(value, "__array__") and hasattr(value, "shape") and not isinstance(value, np.generic)


def _has_device() -> bool:
    torch = loaded("torch")

    return bool(torch.accelerator.is_available())


def functions(map: Any) -> list[Any]:
    """One function or several as a list. A function may be iterable, too, as torch.nn.Sequential is."""
    return [] if map is None else list(map) if isinstance(map, Iterable) and not callable(map) else [map]


def pinned(value: Any) -> Any:
    """The same with its tensors in memory that a GPU copies from without waiting."""
    if isinstance(value, dict):
        return {name: pinned(part) for name, part in value.items()}
    if isinstance(value, (Ragged, Codes, Masked)):
        return value.each(pinned)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(pinned(part) for part in value)
    pin = getattr(value, "pin_memory", None)
    return value if pin is None else pin()

