"""What Grain takes: batches in rowdex's order, and rows by their id.

- :class:`IterDataset` is a ``grain.IterDataset`` of the batches of a :class:`rowdex.Loader`: shuffled, read ahead at
  about the speed of a scan, with an exact state.
- :class:`Source` is a ``grain.sources.RandomAccessDataSource`` of rows by row id.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain
import numpy as np

from .dataset import Dataset
from .frameworks.packs import IGNORED, labels_of
from .loader import Loader


class Source:
    """The rows of a dataset by row id, as dicts of numpy arrays and Python values, which Grain may shuffle.

    Random rows need a cache that holds the data, ``Dataset(cache=...)``, or row groups are decoded again and again.
    ``repr`` has the fingerprint of the index, so a checkpoint of Grain's ``DataLoader`` is refused for other rows.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = _checked(dataset)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._dataset.take([index]).to_numpy_rows()[0]

    def __repr__(self) -> str:
        return f"rowdex.grain.Source({_identity(self._dataset)})"


class IterDataset(grain.IterDataset[Any]):
    """The batches of one rank, epoch after epoch: dicts of numpy arrays, those of a :class:`rowdex.Loader`.

    Its iterators have Grain's state, which is exact, resumes at once, and may come from another number of ranks and
    another batch size. The loader reads ahead on its own threads; ``mp_prefetch`` is refused.

    Args:
        dataset: The rows.
        batch_size: Rows per step and rank.
        epochs: How many epochs an iteration has. Default: no end.
        options: As :class:`rowdex.Loader` has them: ``seed``, ``memory``, ``nulls``, ``pad``, ``map`` and the like. For
            JAX: ``num_replicas=jax.process_count(), rank=jax.process_index()``. With ``pack``, a :class:`rowdex.Pack`
            with ``layout="rows"``, batches are what :func:`segments` and :func:`maxtext` take.
    """

    def __init__(self, dataset: Dataset, batch_size: int, *, epochs: int | None = None, **options: Any) -> None:
        super().__init__()
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs={epochs}: use 1 or more")

        def make() -> Loader:
            return Loader(_checked(dataset), batch_size=batch_size, output="numpy", **options)

        self._make = make
        self._epochs = epochs
        self._name = f"{_identity(dataset)}, {self._make().spec}, epochs={epochs}"

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        raise ValueError("mp_prefetch: leave it out; the rowdex.Loader below reads ahead on its own threads")

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _Batches(self._make(), self._epochs)

    def __str__(self) -> str:
        return f"rowdex.grain.IterDataset({self._name})"

    __repr__ = __str__


class _Batches(grain.DatasetIterator[Any]):
    """The batches of a loader."""

    def __init__(self, loader: Loader, epochs: int | None) -> None:
        super().__init__()
        self._loader, self._epochs = loader, epochs
        self._batches: Iterator[dict[str, Any]] | None = None

    def __next__(self) -> dict[str, Any]:
        while (self._epochs is None or self._loader.epoch < self._epochs) and len(self._loader) > 0:
            if self._batches is None:
                self._batches = iter(self._loader)
            found = next(self._batches, None)
            if found is not None:
                return found
            self._batches = None
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Resumes from a state. Raises a ``StateError`` if it is from another order, number of rows or seed."""
        self._loader.load_state_dict(state)
        self._batches = None

    def close(self) -> None:
        self._loader.close()
        super().close()


def segments(batch: dict[str, Any], column: str = "tokens") -> dict[str, Any]:
    """Packs of a loader with ``layout="rows"`` as Grain's own packing names them, int32: ``tokens``,
    ``tokens_segment_ids`` (from 1 in each pack) and ``tokens_positions``, 0 where there is no token.
    """
    tokens = batch[column]
    if tokens.ndim != 2:
        raise ValueError('layout="flat": Grain\'s packs are rows of one length, so use layout="rows"')
    ids = batch["segment_ids"].astype(np.int32)
    positions = np.where(ids == 0, 0, batch["position_ids"]).astype(np.int32)
    return {column: tokens.astype(np.int32), f"{column}_segment_ids": ids, f"{column}_positions": positions}


def maxtext(batch: dict[str, Any], column: str = "tokens") -> dict[str, Any]:
    """Packs as MaxText trains on them: ``inputs`` and ``targets``, with ``_position`` and ``_segmentation`` of each.
    Targets are the labels of the next tokens; where there is none, the target and its segmentation are 0.
    """
    tokens, ids, positions = segments(batch, column).values()
    labels = labels_of(batch)
    there = labels != IGNORED
    inputs = {"inputs": tokens, "inputs_position": positions, "inputs_segmentation": ids}
    targets = {"targets": np.where(there, labels, 0).astype(np.int32), "targets_position": positions}
    return {**inputs, **targets, "targets_segmentation": np.where(there, ids, 0)}


def _checked(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"{type(dataset).__name__}: give it a rowdex.Dataset")
    return dataset


def _identity(dataset: Dataset) -> str:
    """The rows and columns of a dataset, the same wherever it lies."""
    prints = ", ".join(f"{part.index.fingerprint:#018x}" for part in _checked(dataset)._parts)
    return f"fingerprint={prints}, rows={len(dataset)}, columns={dataset.column_names}"


__all__ = ["IterDataset", "Source", "maxtext", "segments"]
