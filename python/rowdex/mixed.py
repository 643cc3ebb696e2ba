"""Several datasets as one."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from .dataset import Counters, Dataset
from .index import Index, Location, row_id
from .native.library import Handle, library


class MixedDataset(Dataset):
    """Several datasets of the same columns as one: the row ids of a dataset follow those of the ones before.

    Each keeps its own cache, threads and options. What comes how often is the business of an order,
    :class:`rowdex.order.Mixed`::

        dataset = rowdex.MixedDataset([rowdex.Dataset("web.rdx"), rowdex.Dataset("code.rdx")])
        loader = rowdex.Loader(dataset, batch_size=256, order=rowdex.order.Mixed([0.8, 0.2], size=1_000_000))

    Raises:
        SchemaError: if they do not serve columns of the same names and types in the same order.
    """

    def __init__(self, datasets: Iterable[Dataset]) -> None:
        given = list(datasets)
        if not all(type(dataset) is Dataset for dataset in given):
            raise TypeError(
                "a mixed dataset is made of rowdex.Dataset; columns side by side of mixed rows are "
                "Zipped([MixedDataset([…]), MixedDataset([…])])"
            )
        self._set({"datasets": given})
        self._opened.get()

    @property
    def datasets(self) -> list[Dataset]:
        """The datasets, in order."""
        return list(self._arguments["datasets"])

    @property
    def _parts(self) -> tuple[Dataset, ...]:
        return tuple(self._arguments["datasets"])

    def locate(self, row: int) -> tuple[int, int]:
        """Which dataset has a row, and its row id there. Negative row ids count from the end."""
        row = row_id(row, len(self))
        for number, dataset in enumerate(self._parts):
            if row < len(dataset):
                return number, row
            row -= len(dataset)
        raise AssertionError("a row of no dataset")

    def _location(self, row: int, column: str | None = None) -> Location:
        number, row = self.locate(row)
        return self.datasets[number]._location(row)

    def _open(self) -> Handle:
        parts = self._parts
        handles = [part._opened.get() for part in parts]
        pointers = (ctypes.c_void_p * len(parts))(*(handle.address for handle in handles))
        return Handle(library.dataset_mixed, pointers, len(parts))

    def __getstate__(self) -> dict[str, Any]:
        return self._arguments

    def __repr__(self) -> str:
        return f"MixedDataset({list(self._parts)!r})"

    @property
    def index(self) -> Index:
        """There is none: each of the datasets has its own."""
        raise TypeError("a mixed dataset has no single index: ask its datasets")

    @property
    def counters(self) -> Counters:
        """What its datasets have done so far, in this process, added up."""
        return Counters(*map(sum, zip(*(part.counters for part in self._parts))))

    def select(self, columns: Sequence[str]) -> MixedDataset:
        """The same datasets with these columns alone."""
        return MixedDataset(part.select(columns) for part in self._parts)

    def prefetch(self, rows: Any, **options: Any) -> Any:
        """Not there: prefetch from each of the datasets."""
        raise TypeError(
            "a mixed dataset cannot prefetch: prefetch from each of its datasets, or use a Loader with "
            "order=rowdex.order.Explicit(ids)"
        )


__all__ = ["MixedDataset"]
