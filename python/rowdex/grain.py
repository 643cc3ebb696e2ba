"""What Grain takes: rows by their id, rows by their place in a shuffle, and batches.

- :class:`Source` is a ``grain.sources.RandomAccessDataSource`` of rows by row id.
- :class:`Ordered` is a ``grain.MapDataset`` of rows in rowdex's order: reads that go forward are served at about the
  speed of a scan. It is shuffled, and refuses to be shuffled again.
- :class:`IterDataset` is a ``grain.IterDataset`` of the batches of a :class:`rowdex.Loader`.

Rows are dicts of numpy arrays and Python values, so Grain batches a list of a fixed size as one array. Lists of other
sizes need ``pad={"tokens": 128}``, because Grain batches arrays of one shape only. With ``nulls="mask"`` a value of a
row is a dict of ``values`` and ``valid``.
"""

from __future__ import annotations

import ctypes
import math
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import grain

from . import native
from .batch import Batch
from .dataset import Dataset
from .errors import SchemaError
from .loader import Convert, Loader
from .loading.options import lengths
from .native.arrays import Nulls
from .native.columns import Masked, Ragged, row_of
from .native.library import Handle, PerProcess, call, count, library, loader_options, size
from .order import Order
from .sampler import DistributedSampler, SamplerSpec, Tail, sampler_info, state_text, steps_left


class _Rows:
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
            if not isinstance(found[name], Ragged):
                raise SchemaError(f"pad: column {name!r} has no lists of different lengths", column=name)
            found[name] = found[name].padded(self.fill, length)
        return found

    def rows(self, batch: Batch) -> list[dict[str, Any]]:
        columns = self.columns(batch)
        return [{name: _value(column, row) for name, column in columns.items()} for row in range(len(batch))]

    def __repr__(self) -> str:
        return f"nulls={self.nulls!r}, pad={self.pad}, fill={self.fill!r}"


def _value(column: Any, row: int) -> Any:
    """What a column has in a row, as Grain batches it: of one shape in all rows, so that a null is told beside it."""
    if isinstance(column, Masked):
        return {"values": _value(column.values, row), "valid": column.valid[row]}
    if isinstance(column, dict):
        return {name: _value(part, row) for name, part in column.items()}
    return row_of(column, row)


def _of(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(f"{type(dataset).__name__}: give it a rowdex.Dataset")
    return dataset


def _identity(dataset: Dataset) -> str:
    """The rows and columns of a dataset, the same wherever it lies."""
    prints = ", ".join(f"{part.index.fingerprint:#018x}" for part in dataset._parts)
    return f"fingerprint={prints}, rows={len(dataset)}, columns={dataset.column_names}"


class Source:
    """The rows of a dataset by row id: a ``grain.sources.RandomAccessDataSource``, which Grain may shuffle.

    Random rows need a cache that holds the data, ``Dataset(cache=...)``, or row groups are decoded again and again:
    :class:`Ordered` needs none. Many threads may read at once. It is pickled by its arguments; ``repr`` has the
    fingerprint of the index, so a checkpoint of Grain's ``DataLoader`` is refused for other rows.

    Args:
        dataset: The rows.
        nulls: As :meth:`rowdex.Batch.to_numpy` has them.
        pad: For columns of lists of different lengths: the length that each list is padded to, with ``fill``.
            A longer list is an error.
    """

    def __init__(
        self, dataset: Dataset, *, nulls: Nulls = "error", pad: Mapping[str, int] | None = None, fill: Any = 0
    ) -> None:
        self._dataset = _of(dataset)
        self._rows = _Rows(nulls, pad, fill)
        self._rows.check(dataset)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> dict[str, Any]:
        """A row by its id.

        Raises:
            OutOfRangeError: which is an ``IndexError``.
        """
        return self._rows.rows(self._dataset.take([index]))[0]

    def _getitems(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        """Several rows: what Grain asks for where it batches. Each row group is decoded once in a call."""
        return self._rows.rows(self._dataset.take(indices))

    def __repr__(self) -> str:
        return f"rowdex.grain.Source({_identity(self._dataset)}, {self._rows!r})"


class _Chunk:
    """Rows that follow each other in a shuffle, taken apart when they are asked for."""

    def __init__(self, rows: _Rows, batch: Batch, first: int) -> None:
        self.first, self.last = first, first + len(batch)
        self._columns = rows.columns(batch)

    def row(self, sample: int) -> dict[str, Any]:
        at = sample - self.first
        return {name: _value(column, at) for name, column in self._columns.items()}


class _Forward:
    """The samples of one stride of positions in one direction, from a loader that reads ahead."""

    STEP = 64
    """Rows of a step of the loader. A read that begins in the middle of one wastes what is before."""
    CHUNK = 1024
    """About how many rows are converted in one go."""
    KEPT = 2
    """Chunks that are kept for threads that are behind."""

    def __init__(self, ordered: Ordered, first: int, stride: int) -> None:
        epoch, place = divmod(first, ordered._positions)
        self.stride, self.residue = stride, place % stride
        self._ordered = ordered
        sampler = DistributedSampler(
            ordered._dataset, stride, self.residue, batch_size=self.STEP, **ordered._sampling
        )
        self._samples = len(sampler)
        self._loader = Loader(
            ordered._dataset, sampler, memory=ordered._memory, threads=ordered._threads, output="arrow"
        )
        self._kept: deque[_Chunk] = deque(maxlen=self.KEPT)
        self._go_to(epoch, place // stride)

    def _go_to(self, epoch: int, sample: int) -> None:
        self._epoch, self._step = epoch, sample // self.STEP
        self._kept.clear()
        call(library.loader_seek, self._loader._loader.get(), epoch, self._step)

    def row(self, position: int) -> dict[str, Any] | None:
        """The row at a position, if it is one of these and not far from what comes next."""
        epoch, place = divmod(position, self._ordered._positions)
        sample, residue = divmod(place, self.stride)
        if residue != self.residue or sample >= self._samples:
            return None
        if epoch == self._epoch + 1 and sample < self.CHUNK and self._step * self.STEP >= self._samples:
            self._go_to(epoch, 0)
        if epoch != self._epoch:
            return None
        for chunk in self._kept:
            if chunk.first <= sample < chunk.last:
                return chunk.row(sample)
        while self._step * self.STEP <= sample < self._step * self.STEP + 4 * self.CHUNK:
            chunk = self._next()
            if sample < chunk.last:
                return chunk.row(sample)
        return None

    def _next(self) -> _Chunk:
        loader = self._loader._loader.get()
        handle = Handle(library.batch_free, library.loader_peek, loader, self._epoch, self._step, self.CHUNK)
        batch = Batch(handle, self._loader.schema)
        chunk = _Chunk(self._ordered._rows, batch, self._step * self.STEP)
        for _ in range(-(-len(batch) // self.STEP)):
            call(library.loader_advance, loader, self._epoch, self._step)
            self._step += 1
        self._kept.append(chunk)
        return chunk

    def close(self) -> None:
        self._loader.close()


class _Reader:
    """What one process knows of the positions that are asked for."""

    SEEN = 16
    """Positions that tell a stride."""

    def __init__(self, ordered: Ordered) -> None:
        # Which has this reader.
        self._ordered: Ordered = weakref.proxy(ordered)  # type: ignore[assignment]
        self._lock = threading.Lock()
        self._forward: _Forward | None = None
        self._missed: deque[int] = deque(maxlen=self.SEEN)
        self._shards: dict[int, DistributedSampler] = {}
        self.ahead = self.alone = 0

    def row(self, position: int) -> dict[str, Any]:
        with self._lock:
            found = self._forward.row(position) if self._forward is not None else None
            if found is None and self._begins(position):
                assert self._forward is not None
                found = self._forward.row(position)
            if found is not None:
                self.ahead += 1
                return found
            self.alone += 1
            row = self._row_id(position)
        return self._ordered._rows.rows(self._ordered._dataset.take([row]))[0]

    def _begins(self, position: int) -> bool:
        """Whether positions go forward by a stride, so that what comes next is known."""
        self._missed.append(position)
        if len(self._missed) < self.SEEN:
            return False
        seen = sorted(set(self._missed))
        stride = math.gcd(*(b - a for a, b in zip(seen, seen[1:])))
        if position != seen[-1] or stride == 0 or seen[-1] - seen[0] > 2 * self.SEEN * stride:
            return False
        self._missed.clear()
        if self._forward is not None:
            self._forward.close()
        self._forward = _Forward(self._ordered, position, stride)
        return True

    def _row_id(self, position: int) -> int:
        ordered = self._ordered
        epoch, place = divmod(position, ordered._positions)
        sample, rank = divmod(place, ordered._world_size)
        sampler = self._shards.get(rank)
        if sampler is None:
            if len(self._shards) >= 64:
                self._shards.clear()
            sampler = self._shards[rank] = ordered._shard(rank)
        row = ctypes.c_uint64()
        call(library.sampler_fill, sampler._at(epoch), epoch, sample, 1, ctypes.addressof(row), None)
        return row.value


class Ordered(grain.MapDataset[Any]):
    """The rows of a dataset in rowdex's order: item ``q`` is the row at position ``q % n`` of epoch ``q // n``, where
    ``n`` is ``len()``.

    What reads forward, with any stride and from any number of threads, is served by a loader that reads ahead. So this
    is the fast way to a global shuffle in Grain, and an exact one::

        rows = rowdex.grain.Ordered(dataset, seed=42, world_size=world, memory="4GiB")
        batches = rows[rank::world].repeat(10).to_iter_dataset().batch(256)

    ``rows[rank::world]`` is what :class:`rowdex.DistributedSampler` gives that rank, and ``repeat`` shuffles each epoch
    anew. Other reads give the same rows one by one, for which row groups are decoded again and again. One iteration of
    a process at a time is fast.

    A ``DataLoader``, and ``MapDataset.source`` of this, ask for positions below ``len()`` only: give ``epochs`` there.

    Args:
        dataset: The rows.
        order, seed, shuffle: As :class:`rowdex.DistributedSampler` has them.
        world_size: How many ranks take ``[rank::world_size]``: an epoch is then of a length that this divides.
        tail: How: ``"wrap"`` serves rows of the epoch twice, ``"drop"`` leaves some out, ``"uneven"`` does neither, so
            that slices of ranks differ by one row, and ``"error"`` refuses a rest.
        epochs: Makes ``len()`` that of so many epochs.
        memory, threads: As :class:`rowdex.Loader` has them.
        nulls, pad, fill: As :class:`Source` has them.
    """

    def __init__(
        self,
        dataset: Dataset,
        *,
        order: Order | None = None,
        shuffle: bool = True,
        seed: int = 0,
        world_size: int = 1,
        tail: Tail = "wrap",
        epochs: int = 1,
        memory: int | str | None = None,
        threads: int | None = None,
        nulls: Nulls = "error",
        pad: Mapping[str, int] | None = None,
        fill: Any = 0,
    ) -> None:
        super().__init__()
        if world_size < 1 or epochs < 1:
            raise ValueError(f"world_size={world_size}, epochs={epochs}: use 1 or more")
        size(memory, "memory")
        count(threads, "threads")
        self._dataset = _of(dataset)
        self._rows = _Rows(nulls, pad, fill)
        self._rows.check(dataset)
        self._world_size, self._tail, self._epochs = world_size, tail, epochs
        self._memory, self._threads = memory, threads
        # What a sampler of any stride has: no stride wraps or drops anything on its own.
        self._sampling: dict[str, Any] = {"order": order, "shuffle": shuffle, "seed": seed, "tail": "wrap"}
        whole = len(DistributedSampler(dataset, 1, 0, rotation=False, **{**self._sampling, "tail": "uneven"}))
        self._sampling["rotation"] = tail in ("wrap", "drop") and whole % world_size > 0
        shards = -(-whole // world_size) if tail == "wrap" else whole // world_size
        self._positions = whole if tail == "uneven" else shards * world_size
        self._shard(0)
        self._reader = PerProcess(self._new_reader)

    def _new_reader(self) -> _Reader:
        return _Reader(self)

    def _shard(self, rank: int) -> DistributedSampler:
        return DistributedSampler(
            self._dataset, self._world_size, rank, batch_size=1, **{**self._sampling, "tail": self._tail}
        )

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        del state["_reader"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reader = PerProcess(self._new_reader)

    def __len__(self) -> int:
        return self._positions * self._epochs

    def __getitem__(self, index: Any) -> Any:
        """The row at a position, which may be beyond ``len()``: of a later epoch. A slice is a ``MapDataset``."""
        if isinstance(index, slice):
            return self.slice(index)
        if index < 0:
            index += len(self)
        if index < 0 or self._positions == 0:
            raise IndexError(f"position {index} of {len(self)}")
        return self._reader.get().row(int(index))

    def _getitems(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        return [self[index] for index in indices]

    def shuffle(self, *, seed: int | None = None) -> Any:
        """Refused: it is shuffled, and Grain's own shuffle would have row groups decoded again and again."""
        raise TypeError(
            f"shuffle(seed={seed!r}) of what is shuffled: choose the order when it is made, rowdex.grain.Ordered("
            f"dataset, seed={seed or 0}), which repeat() shuffles anew; Grain's own shuffle is for rowdex.grain.Source"
        )

    def __repr__(self) -> str:
        sampling = ", ".join(f"{name}={value!r}" for name, value in self._sampling.items() if name != "tail")
        return (
            f"rowdex.grain.Ordered({_identity(self._dataset)}, {sampling}, world_size={self._world_size}, "
            f"tail={self._tail!r}, epochs={self._epochs}, {self._rows!r})"
        )

    __str__ = __repr__


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
            rank=jax.process_index()``.
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
        self._dataset = _of(dataset)
        self._rows = _Rows(nulls, pad, fill)
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
        return Loader(self._dataset, self._sampler, output="numpy", nulls=self._rows.nulls, **self._given)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """What ``mp_prefetch`` calls in a worker: makes this the batches of that worker."""
        if sequential_slice:
            raise ValueError("sequential_slice=True: an order has no consecutive slices; leave it out")
        if sl.stop is not None or self._worker != (0, 1):
            raise ValueError(f"a slice {sl} of batches: only mp_prefetch slices them")
        if self._given["row_ids"] or self._given["pads"]:
            raise ValueError("row_ids and pads with mp_prefetch: leave out one of them")
        self._worker = (sl.start or 0, sl.step or 1)

    def __iter__(self) -> grain.DatasetIterator[Any]:
        return _Batches(self) if self._worker == (0, 1) else _WorkerBatches(self)

    def __str__(self) -> str:
        return f"rowdex.grain.IterDataset({_identity(self._dataset)}, {self.spec}, epochs={self._epochs})"

    __repr__ = __str__


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
                return self._of._rows.padded(found)
            self._batches = None
        raise StopIteration

    def get_state(self) -> dict[str, Any]:
        """Where the run stands: after the last batch that was handed out."""
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on from a state, which may come from another number of ranks and another batch size.

        Raises:
            StateError: if it is from another order, dataset or seed; the iterator is then unchanged.
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


__all__ = ["IterDataset", "Ordered", "Source"]
