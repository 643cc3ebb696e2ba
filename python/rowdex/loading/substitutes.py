"""Rows in the place of those whose values cannot be decoded."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

from ..batch import Batch
from ..dataset import Dataset
from ..errors import Error, TransformError
from ..native.arrays import joined
from ..native.columns import cut
from ..native.library import call, library
from ..sampler import DistributedSampler
from .functions import RowErrors, Transforms, kept

_ATTEMPTS = 64
_FIRST_EPOCH = 2**64 - 2
"""One below that of the circle of unreadable rows, see docs/loader.md. No run gets there."""


class Substitutes:
    """Replaces rows by others that can be decoded.

    The ``k``-th candidate for row ``r`` is the row at position ``r`` of order ``global``, of the number of rows, the
    seed, and epoch ``2**64 - 2 - k``. So it depends on the row, the seed and the data, and on nothing else.
    """

    def __init__(self, dataset: Dataset, seed: int) -> None:
        self._dataset = dataset
        self._orders = DistributedSampler(range(len(dataset)), 1, 0, seed=seed)
        self.errors: dict[int, TransformError] = {}
        """The rows that were replaced, and why."""
        self.served = 0
        """How many rows stand in for others so far."""
        self._counting = threading.Lock()

    def replaced(
        self,
        batch: Batch,
        found: dict[str, Any],
        decoded: dict[str, list[Any]],
        errors: dict[int, tuple[str, Exception]],
        transforms: Transforms,
        stand_in: Callable[[dict[str, Any], Batch], dict[str, Any]],
        numbers: Any,
    ) -> dict[str, Any]:
        """The columns with other rows at the places of ``errors``; ``decoded`` is changed to theirs.

        ``stand_in`` gets the columns of a row that is replaced, and the row to serve, and gives the columns of that.

        Raises:
            RowErrors: if none of 64 candidates can be decoded.
        """
        parts, at = [], 0
        for place, (column, error) in sorted(errors.items()):
            row = batch.row_ids[place]
            other = next(self._others(row, transforms, numbers, place), None)
            if other is None:
                raise RowErrors({place: (column, error)})
            single, values = other
            if numbers is not None:
                numbers.rows[place] = single.row_ids[0]
            for name, value in values.items():
                decoded[name][place] = value[0]
            parts += [cut(found, at, place), stand_in(cut(found, place, place + 1), single)]
            at = place + 1
            self.errors[row] = kept(transforms.error_of(batch, RowErrors({place: (column, error)})))
        with self._counting:
            self.served += len(errors)
        parts.append(cut(found, at, len(batch)))
        whole: dict[str, Any] = joined(parts)
        return whole

    def _others(
        self, row: int, transforms: Transforms, numbers: Any, place: int
    ) -> Iterator[tuple[Batch, dict[str, list[Any]]]]:
        for attempt in range(_ATTEMPTS):
            candidate = self._at(row, _FIRST_EPOCH - attempt)
            if candidate == row:
                continue
            try:
                single = self._dataset.take([candidate])
            except Error:
                # Unreadable, which every rank finds that can read the same files.
                continue
            own = None if numbers is None else numbers.alone(place, candidate)
            decoded, errors = transforms.decoded(single, own)
            if not errors:
                yield single, decoded

    def _at(self, position: int, epoch: int) -> int:
        found = ctypes.c_uint64()
        call(library.sampler_fill, self._orders._at(0), epoch, position, 1, ctypes.addressof(found), None)
        return found.value
