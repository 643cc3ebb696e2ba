"""Datasets for XGBoost, in batches: whatever the size of the data, a batch of it is in memory at a time.

::

    batches = rowdex.xgboost.DataIter(dataset, label="label")
    matrix = xgboost.QuantileDMatrix(batches)          # or ExtMemQuantileDMatrix, with cache_prefix=
    model = xgboost.train({"objective": "reg:squarederror"}, matrix, num_boost_round=100)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import xgboost

from .batch import Batch
from .dataset import Dataset
from .frameworks import matrix as _matrix
from .loading import passes as _passes
from .native.imports import loaded
from .native.library import Handle

_MATRIX_BYTES = 128 << 20
_MATRIX_ROWS = 1 << 17


class DataIter(xgboost.DataIter):
    """The batches of a dataset for ``QuantileDMatrix``, ``ExtMemQuantileDMatrix`` and ``DMatrix``.

    XGBoost goes over the data several times. Each pass serves the same batches, in the order of the rows.

    Within ``xgboost.collective`` each worker serves a consecutive piece of the rows, and pieces differ by one row at
    most. Otherwise it serves all.

    Args:
        dataset: The rows.
        label: The column to predict, or several of them; or a vector.
        features: The columns to learn from: numbers, and vectors of a fixed size. Nulls are missing values. Default:
            all that are not named here otherwise.
        weight, base_margin, label_lower_bound, label_upper_bound: Columns, as ``xgboost.DMatrix`` has them.
        qid: The column that says which rows belong to one query. They must follow each other. A batch ends with a
            query, so that no query is in two.
        categories: Features that are categories: strings, integers, dates or booleans without nulls. Each is read once
            beforehand and takes four bytes a row. Give ``enable_categorical=True`` to the matrix. Each dataset numbers
            its own ones; so for rows that are validated, tested or predicted give :attr:`categories` of the iterator
            that the model was trained on, a dict of names and lists. What is not in a list is a missing value.
        batch_rows: Rows in a batch. Default: 131,072, or as many as make 128 MiB of ``float32``.
        memory: Bytes of decoded rows to hold at most, besides the batch. Default: 1 GiB.
        threads: Threads that read ahead. Default: 2.
        rank, num_replicas: Which piece of how many. Default: those of ``xgboost.collective``.
        options: ``cache_prefix``, ``release_data``, ``on_host`` and the like, as ``xgboost.DataIter`` has them.

    Raises:
        SchemaError: if a feature, label or weight has no numbers, or a label or weight is null; it names the column.
    """

    def __init__(
        self,
        dataset: Dataset,
        label: str | Sequence[str] | None = None,
        *,
        features: Sequence[str] | None = None,
        weight: str | None = None,
        base_margin: str | None = None,
        label_lower_bound: str | None = None,
        label_upper_bound: str | None = None,
        qid: str | None = None,
        categories: _matrix.Categories = (),
        batch_rows: int | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        rank: int | None = None,
        num_replicas: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        labels = [label] if isinstance(label, str) else list(label or ())
        self._label = labels
        self._single = isinstance(label, str)
        meta = {
            "weight": weight,
            "base_margin": base_margin,
            "label_lower_bound": label_lower_bound,
            "label_upper_bound": label_upper_bound,
        }
        self._meta = {argument: column for argument, column in meta.items() if column is not None}
        self._qid = qid
        others = [*labels, *self._meta.values(), qid]
        _matrix.check_numbers(dataset, [name for name in others if name is not None])
        self._matrix = _matrix.Matrix(dataset, _matrix.chosen(dataset, features, others), categories, "float32")
        read = [*self._matrix.columns, *(name for name in others if name is not None)]
        self._dataset = dataset.select(list(dict.fromkeys(read)))
        width = max(len(self._matrix.names), 1)
        self._rows = max(1, min(_MATRIX_ROWS, _MATRIX_BYTES // (4 * width))) if batch_rows is None else batch_rows
        rank = xgboost.collective.get_rank() if rank is None else rank
        world_size = xgboost.collective.get_world_size() if num_replicas is None else num_replicas
        if qid is not None and world_size > 1:
            raise ValueError("qid with several workers: a query could be in two pieces; give each worker a dataset")
        self._piece = (rank, world_size)
        self._reading = (memory, threads)
        # So that mistakes show here.
        self._begin()
        self._batches: Iterator[dict[str, Any]] | None = None

    @property
    def categories(self) -> dict[str, list[str]]:
        """The categories of each feature that has some, in the order of their numbers."""
        return {name: list(known) for name, known in self._matrix.categories.items()}

    def _begin(self) -> Handle:
        (rank, world_size), (memory, threads) = self._piece, self._reading
        return _passes.begin(
            self._dataset, self._rows, rank=rank, world_size=world_size, memory=memory, threads=threads
        )

    def reset(self) -> None:
        """Goes back to the first batch."""
        self._batches = None

    def next(self, input_data: Callable[..., Any]) -> bool:
        """Gives XGBoost the next batch, if there is one."""
        if self._batches is None:
            served = _passes.batches(self._begin(), self._dataset)
            made = map(self._of, served)
            self._batches = made if self._qid is None else _whole_queries(made)
        found = next(self._batches, None)
        if found is None:
            return False
        types = ["c" if is_category else "q" for is_category in self._matrix.categorical]
        input_data(feature_names=self._matrix.names, feature_types=types, **found)
        return True

    def _of(self, batch: Batch) -> dict[str, Any]:
        np = loaded("numpy")

        found = {"data": self._matrix(batch)}
        labels = [batch.to_numpy([name])[name] for name in self._label]
        if labels:
            found["label"] = labels[0] if self._single else np.column_stack(labels)
        for argument, name in self._meta.items():
            found[argument] = batch.to_numpy([name])[name]
        if self._qid is not None:
            found["qid"] = batch.to_numpy([self._qid])[self._qid]
        return found


def _whole_queries(batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same rows, cut where a query ends: the last query of a batch goes to the next one."""
    np = loaded("numpy")

    held: dict[str, Any] | None = None
    for batch in batches:
        if held is not None:
            batch = {name: np.concatenate([held[name], batch[name]]) for name in batch}
        queries = batch["qid"]
        last = int(np.flatnonzero(queries != queries[-1])[-1]) + 1 if (queries != queries[-1]).any() else 0
        held = {name: value[last:] for name, value in batch.items()}
        if last:
            yield {name: value[:last] for name, value in batch.items()}
    if held is not None and len(held["qid"]):
        yield held


__all__ = ["DataIter"]
