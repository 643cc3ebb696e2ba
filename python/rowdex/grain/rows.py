"""Rows and columns as Grain is given them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


from ..batch import Batch
from ..dataset import Dataset
from ..errors import SchemaError
from ..loading.convert import Convert
from ..loading.options import lengths
from ..native.arrays import Nulls
from ..native.columns import Masked, Ragged, row_of


class Rows:
    """How batches become what Grain is given."""

    def __init__(self, nulls: Nulls, pad: Mapping[str, int] | None, fill: Any) -> None:
        self.nulls, self.pad, self.fill = nulls, lengths(pad), fill
        self._convert = Convert("numpy", nulls, "list")

    def check(self, dataset: Dataset) -> None:
        unknown = set(self.pad) - set(dataset.column_names)
        if unknown:
            raise ValueError(f"pad: no column is called {min(unknown)!r}; there are {', '.join(dataset.column_names)}")

    def columns(self, batch: Batch) -> dict[str, Any]:
        """The columns of a batch as numpy arrays, lists padded where that was asked for."""
        return self.padded(self._convert(batch))

    def padded(self, found: dict[str, Any]) -> dict[str, Any]:
        for name, length in self.pad.items():
            given = found[name]
            lists = given.values if isinstance(given, Masked) else given
            if not isinstance(lists, Ragged):
                raise SchemaError(f"pad: column {name!r} has no lists of different lengths", column=name)
            padded = lists.padded(self.fill, length)
            found[name] = Masked(padded, given.valid) if isinstance(given, Masked) else padded
        return found

    def rows(self, batch: Batch) -> list[dict[str, Any]]:
        columns = self.columns(batch)
        return [{name: value_of(column, row) for name, column in columns.items()} for row in range(len(batch))]

    def __repr__(self) -> str:
        return f"nulls={self.nulls!r}, pad={self.pad}, fill={self.fill!r}"


def value_of(column: Any, row: int) -> Any:
    """What a column has in a row, as Grain batches it: of one shape in all rows, so that a null is told beside it."""
    if isinstance(column, Masked):
        return {"values": value_of(column.values, row), "valid": column.valid[row]}
    if isinstance(column, dict):
        return {name: value_of(part, row) for name, part in column.items()}
    return row_of(column, row)


def dataset_of(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"{type(dataset).__name__}: give it a rowdex.Dataset")
    return dataset


def identity(dataset: Dataset) -> str:
    """The rows and columns of a dataset, the same wherever it lies."""
    prints = ", ".join(f"{part.index.fingerprint:#018x}" for part in dataset._parts)
    return f"fingerprint={prints}, rows={len(dataset)}, columns={dataset.column_names}"
