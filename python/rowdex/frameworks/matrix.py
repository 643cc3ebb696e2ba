"""Columns of numbers as one matrix, for libraries that train on matrices."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Union

from ..batch import Batch
from ..dataset import Dataset, Labels
from ..errors import ArgumentError, SchemaError
from ..native.columns import Masked
from ..native.imports import loaded
from ..schema import Field

if TYPE_CHECKING:
    import numpy as np

_NUMBERS = frozenset("cCsSiIlLefgb")
_FLOATS = frozenset("efg")
_UNKNOWN = -1

Categories = Union[Iterable[str], Mapping[str, Iterable[Any]]]
"""Names of features that are categories; or of each, which categories there are, in the order of their numbers."""


class Matrix:
    """What makes a matrix of some columns of a batch: a row for each row, and a column for each number of a row.

    Vectors of a fixed size become as many columns. Nulls become NaN. Categories become their places among those that
    are given, or else among the classes of :meth:`rowdex.Dataset.labels`: the same in every batch and on every rank. A
    category that is not among those that are given becomes NaN.
    """

    def __init__(self, dataset: Dataset, columns: Sequence[str], categories: Categories, dtype: str) -> None:
        np = loaded("numpy")

        fields = {field.name: field for field in dataset.schema.fields}
        given = _given(categories, fields)
        self._dtype = np.dtype(dtype)
        self._parts = [(_known(fields, name), name in given) for name in columns]
        for name in given:
            if name not in columns:
                raise ValueError(f"categories: no feature is called {name!r}; there are {', '.join(columns)}")
        self._codes: dict[str, Any] = {}
        self.categories: dict[str, list[str]] = {}
        """The categories of each feature that has some, in the order of their numbers."""
        self.names: list[str] = []
        """What the columns of the matrix are called: ``"x"``, and ``"v_0"``, ``"v_1"`` for a vector ``v``."""
        self.categorical: list[bool] = []
        """Which of them are numbers of categories."""
        for field, is_category in self._parts:
            if is_category:
                labels = _labels(dataset, field.name)
                codes = np.frombuffer(labels.codes, dtype=np.int32)
                known = given[field.name]
                if known is not None:
                    place = {category: number for number, category in enumerate(known)}
                    codes = np.array([place.get(one, _UNKNOWN) for one in labels.classes], dtype=np.int32)[codes]
                self._codes[field.name] = codes
                self.categories[field.name] = list(labels.classes) if known is None else known
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
        numpy = loaded("numpy")

        found: np.ndarray[Any, Any] = numpy.empty((len(batch), len(self.names)), dtype=self._dtype)
        at = 0
        for field, is_category in self._parts:
            if is_category:
                codes = self._codes[field.name][numpy.asarray(batch.row_ids, dtype=numpy.int64)]
                value = numpy.where(codes == _UNKNOWN, numpy.nan, codes)
            else:
                value = numbers(batch, field)
            width = 1 if value.ndim == 1 else value.shape[1]
            found[:, at : at + width] = value.reshape(len(batch), width)
            at += width
        return found


def _given(categories: Categories, fields: dict[str, Field]) -> dict[str, list[str] | None]:
    """The features that are categories, and which ones these are, if that is given."""
    if isinstance(categories, str):
        raise TypeError(f"categories={categories!r}: give a list of names, [{categories!r}]")
    if not isinstance(categories, Mapping):
        return dict.fromkeys(categories)
    found: dict[str, list[str] | None] = {}
    for name, known in categories.items():
        if isinstance(known, str):
            raise TypeError(f"categories of {name!r}: give a list of them, not {known!r}")
        field = fields.get(name)
        found[name] = texts = [_text(category, "" if field is None else field.format) for category in known]
        if len(set(texts)) < len(texts):
            raise ValueError(f"categories of {name!r}: one is named twice")
    return found


def _text(category: Any, format: str) -> str:
    """A category as the classes of a column of this type are written."""
    if format == "b":
        return str(category).lower()
    if format == "tdD" and isinstance(category, datetime.date):
        return str((category - datetime.date(1970, 1, 1)).days)
    return category.hex() if isinstance(category, bytes) else str(category)


def _labels(dataset: Dataset, name: str) -> Labels:
    try:
        return dataset.labels(name)
    except ArgumentError as error:
        if error.column is None:
            raise
        message = f"column {name!r} of categories has nulls, and a category is a value: {error}"
        raise SchemaError(message, column=name, hint="fill them, or leave the column out") from error


def numbers(batch: Batch, field: Field) -> Any:
    """A column of numbers, or of vectors of them, with NaN for nulls. Shape ``(rows,)`` or ``(rows, size)``."""
    np = loaded("numpy")

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


def check_numbers(dataset: Dataset, names: Iterable[str]) -> None:
    """Refuses a label or the like that has no numbers.

    Raises:
        KeyError: if there is no such column; SchemaError: if it has something else.
    """
    fields = {field.name: field for field in dataset.schema.fields}
    for name in names:
        if not is_numbers(_known(fields, name)):
            raise SchemaError(f"column {name!r} has no numbers, as labels, weights and queries have", column=name)


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
