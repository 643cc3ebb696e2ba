"""Rows by their id, and by their place in a shuffle."""

from __future__ import annotations

import ctypes
import inspect
import math
import threading
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import grain

from ..batch import Batch
from ..dataset import Dataset
from ..loader import Loader
from ..loading import options as _options
from ..native.arrays import Nulls
from ..native.library import Handle, PerProcess, call, count, library, size
from ..order import Order
from ..sampler import DistributedSampler, Tail
from .rows import Rows, dataset_of, identity, value_of


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
        self._dataset = dataset_of(dataset)
        self._rows = Rows(nulls, pad, fill)
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
        return f"rowdex.grain.Source({identity(self._dataset)}, {self._rows!r})"


class _Chunk:
    """Rows that follow each other in a shuffle, taken apart when they are asked for."""

    def __init__(self, rows: Rows, batch: Batch, first: int) -> None:
        self.first, self.last = first, first + len(batch)
        self._columns = rows.columns(batch)

    def row(self, sample: int) -> dict[str, Any]:
        at = sample - self.first
        return {name: value_of(column, at) for name, column in self._columns.items()}


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
        **others: Any,
    ) -> None:
        super().__init__()
        _options.check(others, _OPTIONS, "Ordered")
        if world_size < 1 or epochs < 1:
            raise ValueError(f"world_size={world_size}, epochs={epochs}: use 1 or more")
        size(memory, "memory")
        count(threads, "threads")
        self._dataset = dataset_of(dataset)
        self._rows = Rows(nulls, pad, fill)
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
            f"rowdex.grain.Ordered({identity(self._dataset)}, {sampling}, world_size={self._world_size}, "
            f"tail={self._tail!r}, epochs={self._epochs}, {self._rows!r})"
        )

    __str__ = __repr__


_OPTIONS = frozenset(inspect.signature(Ordered.__init__).parameters) - {"self", "dataset", "others"}
