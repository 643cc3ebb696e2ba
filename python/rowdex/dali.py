"""What NVIDIA DALI takes as the ``source`` of ``fn.external_source``: batches.

::

    source = rowdex.dali.Batches(dataset, batch_size=64, seed=42, num_replicas=world, rank=rank)

    @pipeline_def(batch_size=64, num_threads=4, device_id=0)
    def pipeline():
        images, labels = fn.external_source(source, num_outputs=2, batch=True, batch_info=True)
        ...

Outputs are the columns of the dataset, in their order: numbers as arrays, strings and binary as arrays of their bytes,
lists of any length as arrays of their items. At the end of an epoch there is a ``StopIteration``, as DALI wants it;
``pipeline.reset()`` begins the next one, shuffled again.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from .batch import Batch
from .dataset import Dataset
from .errors import SchemaError
from .loader import Loader
from .loading.convert import Convert
from .native.arrays import Nulls
from .native.columns import Ragged
from .native.library import PerProcess
from .sampler import DistributedSampler


class Batches:
    """A source of whole batches: ``fn.external_source(source, num_outputs=…, batch=True, batch_info=True)``.

    It makes any batch of any epoch, so it works with ``parallel=True`` and any number of worker processes. Batches that
    are asked for one after the other come from a :class:`rowdex.Loader`, which reads ahead on its own threads. Worker
    processes skip what others make, and get their rows by :meth:`rowdex.Dataset.take`: use them only for columns that
    cost much to convert, with ``Dataset(cache=…)`` for the data.

    Args:
        dataset: The rows. Its columns are the outputs.
        batch_size: Rows per step and rank: at most the pipeline's.
        memory, threads, nulls: As :class:`rowdex.Loader` has them.
        sampling: ``seed``, ``num_replicas``, ``rank``, and all else that :class:`rowdex.DistributedSampler` takes.
    """

    def __init__(
        self, dataset: Dataset, batch_size: int, *, memory: int | str | None = None, threads: int | None = None,
        nulls: Nulls = "error", **sampling: Any,
    ) -> None:  # fmt: skip
        self._dataset = dataset
        self._sampler = DistributedSampler(dataset, batch_size=batch_size, **sampling)
        self._sampler.spec.check_serves_rows("rowdex.dali")
        self._convert = Convert("numpy", nulls, "list")
        self._reading: dict[str, Any] = {"memory": memory, "threads": threads}
        self._reader = PerProcess(_Reader)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reader = PerProcess(_Reader)

    def __len__(self) -> int:
        """How many batches every epoch has, on every rank."""
        return self._sampler.steps

    @property
    def epoch(self) -> int:
        """The epoch that DALI counts as 0; after a resume, that of the state."""
        return self._sampler.epoch

    def _steps(self, epoch_idx: int) -> tuple[int, range]:
        epoch = self._sampler.epoch + epoch_idx
        return epoch, self._sampler._steps(epoch)

    def state_after(self, epoch_idx: int, iteration: int) -> dict[str, str]:
        """The state once every rank has trained on this iteration, both counted as DALI counts them: from 0."""
        epoch, steps = self._steps(epoch_idx)
        return self._sampler.state_after(epoch, steps[iteration])

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        """Resumes from a state, which may come from another number of ranks and another batch size: DALI's epoch 0
        begins there. Call it before the pipeline is built. Raises a ``StateError`` if it is of other rows.
        """
        self._sampler.load_state_dict(state_dict)
        self._reader = PerProcess(_Reader)

    def __call__(self, info: Any) -> tuple[Any, ...]:
        """The batch of an iteration of an epoch: a ``BatchInfo`` says which. A ``StopIteration`` ends the epoch."""
        if not hasattr(info, "epoch_idx"):
            raise TypeError("only an iteration, and no epoch: give batch_info=True to fn.external_source")
        if hasattr(info, "idx_in_batch"):
            raise TypeError("a single sample of a source of batches: give batch=True to fn.external_source")
        epoch, steps = self._steps(info.epoch_idx)
        if info.iteration >= len(steps):
            raise StopIteration
        batch = self._reader.get().batch(self, epoch, steps, info.iteration)
        return tuple(_items(name, column, len(batch)) for name, column in self._convert(batch).items())


def _items(name: str, column: Any, rows: int) -> Any:
    """An array of all rows, or a list of an array for each row."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return column
    if isinstance(column, Ragged) and isinstance(column.values, np.ndarray):
        return [column.values[column.offsets[row] : column.offsets[row + 1]] for row in range(rows)]
    if isinstance(column, list) and all(isinstance(value, (str, bytes)) for value in column):
        return [np.frombuffer(value.encode() if isinstance(value, str) else value, dtype=np.uint8) for value in column]
    raise SchemaError(
        f"column {name!r} is nothing that DALI takes: leave it out of the columns of the dataset", column=name
    )


class _Reader:
    """What one process knows of what comes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loader: Loader | None = None
        self._batches: Iterator[Batch] = iter(())
        # What was asked for last is before this, and what these batches go on with is this.
        self._next: tuple[int, int] | None = None
        self._at: tuple[int, int] | None = None

    def batch(self, source: Batches, epoch: int, steps: range, iteration: int) -> Batch:
        step = steps[iteration]
        with self._lock:
            is_next, self._next = self._next == (epoch, step), (epoch, step + 1)
            if step + 1 == steps.stop:
                self._next = (epoch + 1, 0)
            if is_next and self._loader is None:
                self._loader = Loader(source._dataset, source._sampler, output="arrow", **source._reading)
            if is_next and self._loader is not None:
                if self._at != (epoch, step):
                    self._batches = self._loader._from(epoch, step)
                self._at = self._next if self._next[0] == epoch else None
                found = next(self._batches, None)
                if found is not None:
                    return found
        return source._dataset.take(source._sampler.batch(epoch, step).row_ids)


__all__ = ["Batches"]
