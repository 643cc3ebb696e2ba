"""Datasets for LightGBM, which samples some rows first, and then reads all of them in slices.

::

    features = rowdex.lightgbm.Sequence(dataset, label="label")
    train = lightgbm.Dataset(features, label=features.read("label"), feature_name=features.names)
    model = lightgbm.train({"objective": "regression"}, train)
"""

from __future__ import annotations

import operator
from collections.abc import Sequence as _SequenceOf
from typing import Any

import lightgbm

from .dataset import Dataset
from .frameworks import matrix as _matrix
from .index import row_id
from .loading import passes as _passes
from .native.imports import loaded

_MATRIX_BYTES = 32 << 20
_MATRIX_ROWS = 1 << 16


class Sequence(lightgbm.Sequence):
    """The features of a dataset for ``lightgbm.Dataset``: ``float64``, NaN where a value is null.

    LightGBM asks for single rows in rising order when it samples. A slice around each is read and kept until a row of
    another one is asked for, so sampling decodes each row group about once.

    Args:
        dataset: The rows.
        features: The columns to learn from: numbers, and vectors of a fixed size. Default: all but ``label`` and
            ``without``.
        label: The column to predict, which is no feature. :meth:`read` reads it.
        without: Other columns that are no features, such as weights.
        categories: Features that are categories: strings, integers, dates or booleans without nulls. Each is read once
            beforehand and takes four bytes a row. Give ``categorical_feature=sequence.categorical`` to the dataset.
            Each dataset numbers its own ones; so for rows that are validated, tested or predicted give
            :attr:`categories` of the sequence that the model was trained on, a dict of names and lists. What is not in
            a list is a missing value.
        batch_rows: Rows in a slice. Default: 65,536, or as many as make 32 MiB.
        rank, num_replicas: Serves one of so many consecutive pieces, which differ by one row at most: for distributed
            training with ``pre_partition=True``.

    Raises:
        SchemaError: if a feature has no numbers; it names the column.
    """

    def __init__(
        self,
        dataset: Dataset,
        features: _SequenceOf[str] | None = None,
        *,
        label: str | None = None,
        without: _SequenceOf[str] = (),
        categories: _matrix.Categories = (),
        batch_rows: int | None = None,
        rank: int = 0,
        num_replicas: int = 1,
    ) -> None:
        if batch_rows is not None and batch_rows < 1:
            raise ValueError(f"batch_rows is {batch_rows}: use 1 or more")
        self._matrix = _matrix.Matrix(
            dataset, _matrix.chosen(dataset, features, [label, *without]), categories, "float64"
        )
        self._whole = dataset
        self._dataset = dataset.select(self._matrix.columns)
        self._piece = _passes.piece(dataset, rank, num_replicas)
        width = max(len(self._matrix.names), 1)
        self.batch_size = max(1, min(_MATRIX_ROWS, _MATRIX_BYTES // (8 * width))) if batch_rows is None else batch_rows
        self._slice: tuple[int, Any] | None = None

    @property
    def names(self) -> list[str]:
        """What the features are called: ``"x"``, and ``"v_0"``, ``"v_1"`` for a vector ``v``."""
        return list(self._matrix.names)

    @property
    def categorical(self) -> list[str]:
        """Which of them are categories."""
        return [name for name, category in zip(self._matrix.names, self._matrix.categorical) if category]

    @property
    def categories(self) -> dict[str, list[str]]:
        """The categories of each feature that has some, in the order of their numbers."""
        return {name: list(known) for name, known in self._matrix.categories.items()}

    def __len__(self) -> int:
        return len(self._piece)

    def __getitem__(self, rows: Any) -> Any:
        """The features of a row, shape ``(features,)``, or of a slice or list of rows, shape ``(rows, features)``."""
        if isinstance(rows, slice):
            return self._read(self._piece[rows])
        if isinstance(rows, list):
            return self._read([self._piece[operator.index(row)] for row in rows])
        row = row_id(rows, len(self))
        start = row - row % self.batch_size
        kept = self._slice
        if kept is None or kept[0] != start:
            kept = self._slice = (start, self._read(self._piece[start : start + self.batch_size]))
        return kept[1][row - start].copy()

    def read(self, column: str) -> Any:
        """A column as an array of all rows that this serves: a label, weights, groups. Shape ``(rows,)``.

        Raises:
            SchemaError: if a value is null, or there are no numbers.
        """
        np = loaded("numpy")

        dataset = self._whole.select([column])
        if not _matrix.is_numbers(dataset.schema.fields[0]):
            raise TypeError(f"column {column!r} has no numbers: give its values to LightGBM yourself")
        size = _passes.batch_rows(dataset)
        starts = range(0, len(self._piece), size)
        parts = [dataset.take(self._piece[start : start + size])[column] for start in starts]
        return np.concatenate(parts) if parts else dataset.take([])[column]

    def _read(self, rows: Any) -> Any:
        return self._matrix(self._dataset.take(rows))


__all__ = ["Sequence"]
