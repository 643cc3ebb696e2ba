"""Batches of a loader."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

import grain

from .. import native
from ..batch import Batch
from ..dataset import Dataset
from ..loader import Loader
from ..native.arrays import Nulls
from ..native.library import Handle, call, count, library, loader_options, size
from ..sampler import DistributedSampler
from ..spec import SamplerSpec, sampler_info, state_text, steps_left
from .rows import Rows, dataset_of, identity


class IterDataset(grain.IterDataset[Any]):
    """The batches of one rank, epoch after epoch: dicts of numpy arrays, those of a :class:`rowdex.Loader`.

    Its iterators have Grain's state, which is exact, takes no time to go on from, and may come from another number of
    ranks and another batch size. With ``mp_prefetch`` worker ``w`` of ``K`` makes every ``K``-th batch, and the state
    needs as many workers; a loader has threads of its own, so that pays off only for costly ``map`` steps.

    Args:
        dataset: The rows.
        batch_size: Rows per step and rank.
        epochs: How many epochs an iteration has. Default: no end.
        memory, threads: As :class:`rowdex.Loader` has them, in each process.
        nulls: As :meth:`rowdex.Batch.to_numpy` has them.
        pad: For columns of lists of different lengths: the length that each list is padded to, with ``fill``. Others
            come as :class:`rowdex.Ragged`.
        row_ids, pads: As :class:`rowdex.Loader` has them.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes. For JAX: ``num_replicas=jax.process_count(),
            rank=jax.process_index()``. With ``pack``, a :class:`rowdex.Pack` with ``layout="rows"``, batches are what
            :func:`segments` and :func:`maxtext` take.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        *,
        epochs: int | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        nulls: Nulls = "error",
        pad: Mapping[str, int] | None = None,
        fill: Any = 0,
        row_ids: str | None = None,
        pads: str | None = None,
        **sampling: Any,
    ) -> None:
        super().__init__()
        if epochs is not None and epochs < 1:
            raise ValueError(f"epochs={epochs}: use 1 or more")
        self._dataset = dataset_of(dataset)
        self._rows = Rows(nulls, pad, fill)
        self._rows.check(dataset)
        self._sampler = DistributedSampler(dataset, batch_size=batch_size, **sampling)
        self._options = (size(memory, "memory"), count(threads, "threads"))
        self._given: dict[str, Any] = {"memory": memory, "threads": threads, "row_ids": row_ids, "pads": pads}
        self._epochs = epochs
        self._worker = (0, 1)

    @property
    def spec(self) -> SamplerSpec:
        """All that decides which rows come when."""
        return self._sampler.spec

    def _loader(self) -> Loader:
        return _Padded(self._rows, self._dataset, self._sampler, output="numpy", nulls=self._rows.nulls, **self._given)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """What ``mp_prefetch`` calls in a worker: makes this the batches of that worker."""
        if sequential_slice:
            raise ValueError("sequential_slice=True: an order has no consecutive slices; leave it out")
        if sl.stop is not None or self._worker != (0, 1):
            raise ValueError(f"a slice {sl} of batches: only mp_prefetch slices them")
        if self._given["row_ids"] or self._given["pads"]:
            raise ValueError("row_ids and pads with mp_prefetch: leave out one of them")
        if self.spec.pack is not None:
            raise ValueError("packs with mp_prefetch: leave it out; the threads of the rowdex.Loader below make packs")
        self._worker = (sl.start or 0, sl.step or 1)

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _Batches(self) if self._worker == (0, 1) else _WorkerBatches(self)

    def __str__(self) -> str:
        return f"rowdex.grain.IterDataset({identity(self._dataset)}, {self.spec}, epochs={self._epochs})"

    __repr__ = __str__


class _Padded(Loader):
    """A loader whose lists are padded before their step is over."""

    def __init__(self, rows: Rows, *arguments: Any, **options: Any) -> None:
        self._rows = rows
        super().__init__(*arguments, **options)

    def _finish(self, batch: Any) -> Any:
        return self._rows.padded(batch)


_Padded.__name__ = "Loader"  # What errors call it.


class _Batches(grain.DatasetIterator[Any]):
    """The batches of a rank."""

    def __init__(self, batches: IterDataset) -> None:
        super().__init__()
        self._of = batches
        self._loader = batches._loader()
        self._batches: Iterator[dict[str, Any]] | None = None

    def __next__(self) -> dict[str, Any]:
        self._assert_not_closed()
        epochs = self._of._epochs
        while (epochs is None or self._loader.epoch < epochs) and len(self._loader) > 0:
            if self._batches is None:
                self._batches = iter(self._loader)
            found = next(self._batches, None)
            if found is not None:
                return found
            self._batches = None
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        """Where the run stands: after the last batch that was handed out."""
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state, which may come from another number of ranks and another batch size.

        Raises:
            StateError: if it is from another order, number of rows or seed; the iterator is then unchanged.
        """
        self._loader.load_state_dict(state)
        self._batches = None

    def start_prefetch(self) -> None:
        """Starts the threads of the loader, which read ahead."""
        call(library.loader_seek, self._loader._loader.get(), self._loader.epoch, self._loader._info().step)

    def close(self) -> None:
        """Ends the threads of the loader."""
        if not self._closed and hasattr(self, "_loader"):
            self._loader.close()
        super().close()

    def __str__(self) -> str:
        return f"iterator of {self._of}"


class _WorkerBatches(grain.DatasetIterator[Any]):
    """The batches of one worker. Those of all workers are numbered ``epoch * steps + step``, and dealt in turn."""

    def __init__(self, batches: IterDataset) -> None:
        super().__init__()
        self._of = batches
        self._worker, self._workers = batches._worker
        self._open(batches._sampler.spec)

    def _open(self, spec: SamplerSpec) -> None:
        """Begins with the first batch of a sampler, which may be one that was resumed."""
        self._spec, self._opened = spec, spec.open(self._of._dataset)
        # The loader, which steps it has, and whether its epoch is one that was resumed.
        self._loader: tuple[Handle, range, bool] | None = None
        self._epoch = self._opened.epoch
        self._enter(steps_left(self._sampler()).start)

    @property
    def _resumed(self) -> bool:
        return self._epoch == self._opened.resumed_epoch

    def _sampler(self) -> Handle:
        return self._opened.sampler(self._resumed)

    def _enter(self, step: int) -> None:
        """Goes to the first step from here on that is this worker's."""
        while True:
            steps = int(sampler_info(self._sampler()).steps)
            self._step = step + (self._worker - self._epoch * steps - step) % self._workers
            if self._step < steps or steps == 0:
                return
            self._epoch, step = self._epoch + 1, 0

    def __next__(self) -> dict[str, Any]:
        self._assert_not_closed()
        epochs = self._of._epochs
        if (epochs is not None and self._epoch >= epochs) or int(sampler_info(self._sampler()).steps) == 0:
            raise StopIteration
        found = self._of._rows.columns(self._read())
        self._enter(self._step + 1)
        return found

    def _read(self) -> Batch:
        loader, steps, resumed = self._loader or (None, range(0), False)
        if loader is None or self._step not in steps or resumed != self._resumed:
            loader, steps = self._begin()
        place = steps.index(self._step)
        call(library.loader_seek, loader, self._epoch, place)
        handle = Handle(library.batch_free, library.loader_peek, loader, self._epoch, place, 1)
        if not handle:
            # A step in which this rank has no rows.
            return self._of._dataset.take([])
        call(library.loader_advance, loader, self._epoch, place)
        return Batch(handle, self._of._dataset.schema)

    def _begin(self) -> tuple[Handle, range]:
        """A loader of every so many-th of the steps that are left, this one among them."""
        if self._loader is not None:
            library.loader_close(self._loader[0])
            self._loader = None
        sampler, left = self._sampler(), steps_left(self._sampler())
        first = (self._step - left.start) % self._workers
        memory, threads = self._of._options
        options = loader_options(memory=memory, threads=threads, epochs=self._epoch + 1 if self._resumed else 0)
        own = Handle(library.sampler_free, library.sampler_worker, sampler, first, self._workers)
        loader = Handle(
            library.loader_free, library.loader_new, self._of._dataset._pointer, own, ctypes.byref(options)
        )
        steps = left[first :: self._workers]
        self._loader = (loader, steps, self._resumed)
        return loader, steps

    def get_state(self) -> dict[str, Any]:
        """Before the next batch of this worker."""
        text = ctypes.create_string_buffer(native.STATE_CAPACITY)
        call(library.sampler_state, self._sampler(), self._epoch, self._step, text, len(text))
        return {"state": text.value.decode()}

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state of the same worker of as many."""
        self._open(self._spec._replace(resumed=state_text(state).decode()))

    def close(self) -> None:
        """Ends the threads of the loader."""
        loader = getattr(self, "_loader", None)
        if not self._closed and loader is not None:
            library.loader_close(loader[0])
        super().close()

    def __str__(self) -> str:
        return f"iterator of worker {self._worker} of {self._workers} of {self._of}"
