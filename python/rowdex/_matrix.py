"""Columns of numbers as one matrix, for libraries that train on matrices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ._arrays import Masked
from .batch import Batch
from .dataset import Dataset
from .errors import SchemaError
from .schema import Field

if TYPE_CHECKING:
    import numpy as np

_NUMBERS = frozenset("cCsSiIlLefgb")
_FLOATS = frozenset("efg")


class Matrix:
    """What makes a matrix of some columns of a batch: a row for each row, and a column for each number of a row.

    Vectors of a fixed size become as many columns. Nulls become NaN. Categories become the numbers of the classes of
    :meth:`rowdex.Dataset.labels`, which are the same in every batch and on every rank.
    """

    def __init__(self, dataset: Dataset, columns: Sequence[str], categories: Iterable[str], dtype: str) -> None:
        import numpy as np

        fields = {field.name: field for field in dataset.schema.fields}
        self._dtype = np.dtype(dtype)
        self._parts = [(_known(fields, name), name in set(categories)) for name in columns]
        self._codes: dict[str, Any] = {}
        self.names: list[str] = []
        """What the columns of the matrix are called: ``"x"``, and ``"v_0"``, ``"v_1"`` for a vector ``v``."""
        self.categorical: list[bool] = []
        """Which of them are numbers of categories."""
        for field, is_category in self._parts:
            if is_category:
                self._codes[field.name] = np.frombuffer(dataset.labels(field.name).codes, dtype=np.uint32)
            width = 1 if is_category else _width(field)
            single = is_category or not field.format.startswith("+w:")
            self.names += [field.name] if single else [f"{field.name}_{i}" for i in range(width)]
            self.categorical += [is_category] * width
        twice = [name for name in self.names if self.names.count(name) > 1]
        if twice:
            raise ValueError(f"two features would be called {twice[0]!r}: leave out one of their columns")
        self.columns = [field.name for field, is_category in self._parts if not is_category]
        """The columns of a batch that are read for it."""

    def __call__(self, batch: Batch) -> np.ndarray[Any, Any]:
        """Shape ``(rows, len(names))``."""
        import numpy as np

        found = np.empty((len(batch), len(self.names)), dtype=self._dtype)
        at = 0
        for field, is_category in self._parts:
            if is_category:
                value = self._codes[field.name][np.asarray(batch.row_ids, dtype=np.int64)]
            else:
                value = numbers(batch, field)
            width = 1 if value.ndim == 1 else value.shape[1]
            found[:, at : at + width] = value.reshape(len(batch), width)
            at += width
        return found


def numbers(batch: Batch, field: Field) -> Any:
    """A column of numbers, or of vectors of them, with NaN for nulls. Shape ``(rows,)`` or ``(rows, size)``."""
    import numpy as np

    name = field.name
    if field.format.startswith("+w:"):
        # Integers have no NaN, so that a null in a vector of them would become a number.
        nulls = "fill" if field.children[0].format in _FLOATS else "error"
        return batch.to_numpy([name], nulls=nulls)[name]  # type: ignore[arg-type]
    found = batch.to_numpy([name], nulls="mask")[name]
    assert isinstance(found, Masked)
    if found.valid.all():
        return found.values
    return np.where(found.valid, found.values.astype(np.float64), np.nan)


def is_numbers(field: Field) -> bool:
    """Whether a column has numbers, or vectors of them."""
    if field.dictionary is not None:
        return False
    if field.format.startswith("+w:"):
        return field.children[0].format in _NUMBERS and field.children[0].dictionary is None
    return field.format in _NUMBERS


def chosen(dataset: Dataset, features: Sequence[str] | None, others: Iterable[str | None]) -> list[str]:
    """The columns that are features: those that were named, or all that are nothing else."""
    if isinstance(features, str):
        raise TypeError(f"features={features!r}: give a list of names")
    taken = set(others)
    return [name for name in dataset.column_names if name not in taken] if features is None else list(features)


def _known(fields: dict[str, Field], name: str) -> Field:
    if name not in fields:
        raise KeyError(f"no column is called {name!r}; there are {', '.join(fields)}")
    return fields[name]


def _width(field: Field) -> int:
    if is_numbers(field):
        return int(field.format[3:]) if field.format.startswith("+w:") else 1
    raise SchemaError(
        f"column {field.name!r} has no numbers: name the features, or give categories=[{field.name!r}]",
        column=field.name,
        hint=f"name the features, or give categories=[{field.name!r}]",
    )
