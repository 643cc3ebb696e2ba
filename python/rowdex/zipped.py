"""Columns of several datasets side by side."""

from __future__ import annotations

import array
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from . import native
from .batch import Batch
from .dataset import Counters, Dataset, VerifyReport
from .errors import ArgumentError, ZipError
from .index import Index, Location, row_id
from .loading import passes
from .loading.engine import LibraryLoader
from .loading.lockstep import Lockstep, SideBySide, ZippedBatch, summed
from .mixed import MixedDataset
from .native.imports import loaded
from .native.library import Handle, RowSet, call, described, library
from .progress import Progress
from .schema import Schema, column_list

_COMPARED = 64
"""Rows whose keys are compared when it is made."""
_LEAST_MEMORY = 16 << 20
"""Of a loader, however few bytes its dataset has."""
_CHUNK = 1 << 16
"""Rows that are compared at once."""


class Zipped(Dataset):
    """Several datasets of the same number of rows as one: row ``i`` has the columns of row ``i`` of each.

    **Without** ``on`` **only the numbers of rows are compared.** Each dataset keeps its own cache, threads and options.
    Orders go by the row groups of the first, and the state of a run is the one that the first alone would have::

        loader = rowdex.Loader(rowdex.Zipped([images, embeddings], on="id"), batch_size=256, seed=42)

    Args:
        datasets: A list of :class:`Dataset` or :class:`MixedDataset`, or a dict of them by name. With names, columns
            are called ``name.column``.
        columns: The columns to serve, in this order. Default: all, in the order of the datasets.
        on: A column of all of them whose values must be equal: those of 64 rows when this is made, those of each
            batch, and all of them in :meth:`verify`. It is served once, by this name.
        memory_weights: How the memory of a loader is divided among the datasets, after a few MiB for each: a number for
            each. Default: their decoded bytes.

    Raises:
        ArgumentError: if the numbers of rows differ, or the names of two columns do not. ZipError: for different keys.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset] | Mapping[str, Dataset],
        columns: Sequence[str] | None = None,
        *,
        on: str | None = None,
        memory_weights: Sequence[float] | None = None,
    ) -> None:
        prefixes = [f"{name}." for name in datasets] if isinstance(datasets, Mapping) else None
        given = list(datasets.values() if isinstance(datasets, Mapping) else datasets)
        if not given or any(type(dataset) not in (Dataset, MixedDataset) for dataset in given):
            raise TypeError(
                "a Zipped is made of rowdex.Dataset or rowdex.MixedDataset: give all datasets to one Zipped; a "
                "DataLoader takes a rowdex.torch.Zipped of these"
            )
        if memory_weights is not None and len(memory_weights) != len(given):
            raise ValueError(f"memory_weights={memory_weights!r}: give a number for each of the {len(given)} datasets")
        self._set(
            {
                "index": given,
                "prefixes": prefixes or [""] * len(given),
                "columns": None if columns is None else column_list(columns),
                "on": on,
                "memory_weights": memory_weights,
            }
        )
        for dataset in given[1:]:
            _check_rows(given[0], dataset)
        self._compare([random.Random(0).sample(range(len(self)), min(_COMPARED, len(self)))])

    @property
    def datasets(self) -> list[Dataset]:
        """The datasets, in order."""
        return list(self._arguments["index"])

    @property
    def _beside(self) -> Any:
        return self._opened.get()

    def _open(self) -> Any:
        on, columns, names = self._arguments["on"], self._arguments["columns"], self._names()
        paths = [_routed(path, names) for path in (names if columns is None else columns)]
        parts = []
        for number, dataset in enumerate(self.datasets):
            read = [path for part, path in paths if part == number]
            if on is not None and on not in read:
                read.append(on)
            parts.append(dataset if read == dataset.column_names else dataset.select(read))
        places = [{name: (place, name) for place, name in enumerate(part.column_names)} for part in parts]
        served = {}
        for number, path in paths:
            place, _ = _routed(path, places[number])
            served[number, place] = "" if path == on else self._arguments["prefixes"][number]
        return SideBySide(parts, [(prefix, *place) for place, prefix in served.items()], on)

    def _names(self) -> dict[str, tuple[int, str]]:
        """Which dataset serves each column, and what it is called there."""
        found: dict[str, tuple[int, str]] = {}
        for number, (prefix, dataset) in enumerate(zip(self._arguments["prefixes"], self.datasets)):
            for own in dataset.column_names:
                name = own if own == self._arguments["on"] else prefix + own
                if found.setdefault(name, (number, own))[0] != number and name != self._arguments["on"]:
                    hint = (
                        "name the datasets, Zipped({'first': a, 'second': b}), whose columns are then called "
                        f"'first.{name}' and 'second.{name}', or choose columns, b.select([…])"
                    )
                    raise ArgumentError(f"two datasets have a column called {name!r}: {hint}", column=name, hint=hint)
        return found

    def _compare(self, chunks: Iterable[Any]) -> None:
        """Compares the keys of lists of rows; without keys it does nothing."""
        beside = self._beside
        keys = [] if beside.key is None else [part.select([beside.key]) for part in beside.parts]
        for rows in chunks if keys else ():
            beside.check_keys([part.take(rows) for part in keys])

    def verify(
        self, level: Literal["off", "stat", "footer", "deep"] = "footer", *, progress: Progress = None
    ) -> VerifyReport:
        """Checks the files of each dataset as :meth:`Dataset.verify` does, and then compares all keys. The first row
        with different ones is among the problems.
        """
        files, rows, problems = zip(*(dataset.verify(level, progress=progress) for dataset in self.datasets))
        found = [problem for each in problems for problem in each]
        try:
            self._compare(range(len(self))[at : at + _CHUNK] for at in range(0, len(self), _CHUNK) if not found)
        except ZipError as error:
            found.append(error)
        return VerifyReport(sum(files), sum(rows), found)

    @property
    def _parts(self) -> tuple[Dataset, ...]:
        return tuple(part for dataset in self.datasets for part in dataset._parts)

    @property
    def _in_turn(self) -> tuple[Dataset, ...]:
        return self.datasets[0]._parts

    def _loading(self, sampler: Handle, options: dict[str, Any], changes_columns: bool = False) -> LibraryLoader:
        each = self._divided(options)
        return Lockstep([part._loading(sampler, own, changes_columns) for part, own in each], self._beside)

    def _estimated(self, sampler: Handle, options: dict[str, Any]) -> dict[str, Any]:
        found = summed([part._estimated(sampler, own) for part, own in self._divided(options)])
        groups = sum(part.index.num_row_groups for part in self._parts)
        for epochs in ("", "first_"):
            found[f"{epochs}passes"] = found[f"{epochs}decodes"] / max(groups, 1)
        return found

    def _divided(self, options: dict[str, Any]) -> Iterator[tuple[Dataset, dict[str, Any]]]:
        """The datasets, and the options of the loader of each."""
        parts = self._beside.parts
        weights = self._arguments["memory_weights"] or [part.decoded_bytes for part in parts]
        memory = options["memory"] or 1 << 30
        least = min(_LEAST_MEMORY, memory // (2 * len(parts)))
        rest = (memory - least * len(parts)) / (sum(weights) or 1)
        for number, (part, weight) in enumerate(zip(parts, weights)):
            own = {**options, "memory": max(1, least + int(rest * weight))}
            if "share" in options:
                share = json.loads(options["share"])
                own["share"] = described(**{**share, "name": f"{share['name']} {number}"})
            yield part, own

    def locate(self, row: int) -> list[Location]:
        """Where a row is in each dataset. Negative row ids count from the end."""
        row = row_id(row, len(self))
        return [dataset._location(row) for dataset in self.datasets]

    def _location(self, row: int, column: str | None = None) -> Location:
        return self.datasets[_routed(column or "", self._names())[0]]._location(row)

    def take(self, rows: Any) -> Batch:
        """Rows in the order asked, as :meth:`Dataset.take` has them."""
        beside, ids = self._beside, self._row_ids(rows)
        return ZippedBatch([part.take(ids) for part in beside.parts], self.schema, beside)._checked()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """An ``arrow_array_stream`` capsule: all rows in their order, by way of pyarrow. Choose columns with
        :meth:`select`.
        """
        arrow, step = loaded("pyarrow"), passes.batch_rows(self)
        batches = (self.take(range(len(self))[at : at + step]).to_arrow() for at in range(0, len(self), step))
        return arrow.RecordBatchReader.from_batches(arrow.schema(self.schema), batches).__arrow_c_stream__()

    def _of_column(self, what: str, column: str, of: RowSet | None) -> Any:
        number, path = _routed(column, self._names())
        return self.datasets[number]._of_column(what, path, of)

    @property
    def _pointer(self) -> Handle:
        raise TypeError("a Zipped is several datasets: give this one of its datasets, which have the same row ids")

    @property
    def index(self) -> Index:
        """There is none: each of the datasets has its own."""
        raise TypeError("a Zipped has no single index: ask its datasets, which have the same row ids")

    @property
    def schema(self) -> Schema:
        """The columns served."""
        if self._schema is None:
            self._schema = self._beside.schema(self._beside.parts)
        return self._schema

    @property
    def decoded_bytes(self) -> int:
        """About how many bytes the columns of all rows take when decoded, according to the footers."""
        return sum(part.decoded_bytes for part in self._beside.parts)

    @property
    def counters(self) -> Counters:
        """What its datasets have done so far for it, in this process, added up."""
        return Counters(*map(sum, zip(*(part.counters for part in self._beside.parts))))

    def __getstate__(self) -> dict[str, Any]:
        return self._arguments

    def __len__(self) -> int:
        return len(self.datasets[0])


def _routed(path: str, names: dict[str, tuple[int, str]]) -> tuple[int, str]:
    """The number of a column or of one with a field at this path, and the path with its other name."""
    name = path if path in names else next((name for name in names if path.startswith(f"{name}.")), None)
    if name is None:
        raise ArgumentError(f"no column is called {path!r}; there are {', '.join(names)}", column=path)
    number, own = names[name]
    return number, own + path[len(name) :]


def _check_rows(first: Dataset, other: Dataset) -> None:
    """Refuses datasets that cannot have the same rows."""
    counts = [[len(part) for part in dataset._parts] for dataset in (first, other)]
    if counts[0] != counts[1]:
        raise ArgumentError(
            f"{first!r} and {other!r}: datasets of {counts[0]} and {counts[1]} rows; zip those of the same rows, and "
            "of mixed ones the same number in each dataset"
        )
    for one, two in zip(first._parts, other._parts):
        if all(len(part) == part.index._told["source_rows"] for part in (one, two)):
            continue
        if any((mine != theirs).any() for mine, theirs in zip(_places(one.index), _places(two.index))):
            raise ArgumentError(
                f"{first!r} and {other!r} are views of different rows: zip indexes of all rows, and choose rows with "
                "order=rowdex.order.Subset('global', ids)"
            )


def _places(index: Index) -> Iterator[Any]:
    """The places of rows among all rows of the files of an index, in chunks."""
    np = loaded("numpy")

    files = index._files(0, index._told["files"], True)
    before = np.cumsum([0, *(group["source_rows"] for file in files for group in file["row_groups"])], dtype=np.uint64)
    for start in range(0, len(index), _CHUNK):
        ids = array.array("Q", range(start, min(start + _CHUNK, len(index))))
        found = (native.Location * len(ids))()
        call(library.index_locate, index._handle.get(), *ids.buffer_info(), found)
        located = np.frombuffer(found, dtype=np.dtype(native.Location))
        yield before[located["row_group"]] + located["row"]


__all__ = ["Zipped"]
