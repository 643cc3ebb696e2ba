"""Random numbers that depend on the seed, the epoch and the row alone: *augment v1*, see docs/orders.md."""

from __future__ import annotations

import functools
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence

from ..batch import Batch
from ..native.library import seed_number, told_of
from ..order import Context, open_order


class _Nothing(ISeedSequence):
    """Has Philox made in a third of the time: its state is set anyway."""

    _words = np.zeros(2, np.uint64)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        return self._words


_NOTHING: Any = _Nothing()


class _Pool(threading.local):
    """What the rows of a batch draw with in this thread: each generator and what it gets its bits from, used again for
    the next batch.
    """

    def __init__(self) -> None:
        self._made: list[tuple[Any, np.random.Generator]] = []

    def at(self, place: int) -> tuple[Any, np.random.Generator]:
        while len(self._made) <= place:
            bits = np.random.Philox(_NOTHING)
            self._made.append((bits, np.random.Generator(bits)))
        return self._made[place]


_POOL = _Pool()


@functools.lru_cache(64)
def _key(seed: int) -> int:
    return int(told_of(open_order("sequential", Context(None, 1, seed)))["augment_key"])


class RowNumbers:
    """The random numbers of the rows of a batch, for one thread."""

    def __init__(self, seed: int, epoch: int, rows: list[int], positions: list[int]) -> None:
        self._seed, self._epoch, self._positions = seed, epoch, positions
        self.rows = rows
        """Which row is at each place. Substitutes have their own."""
        self._key = _key(seed_number(seed))
        self._bits = np.random.Philox(_NOTHING)
        self._generator = np.random.Generator(self._bits)

    @classmethod
    def of(cls, seed: int, batch: Batch, epoch: int) -> RowNumbers:
        """Those of a batch that was read for an epoch."""
        return cls(seed, epoch, batch.row_ids, batch.positions)

    def alone(self, place: int, row: int) -> RowNumbers:
        """Those of another row at a place."""
        return RowNumbers(self._seed, self._epoch, [row], self._positions[place : place + 1])

    def rng(self, place: int) -> np.random.Generator:
        """The generator of a row, until the next one is asked for."""
        self._set(self._bits, place, 0)
        return self._generator

    def seed(self, place: int) -> int:
        """The seed of a row."""
        return self._word(place, 1)

    def rngs(self, number: int) -> Rngs:
        """The generators for a function of the batch: number 0 has those of functions of values."""
        return Rngs(self, number)

    def _word(self, place: int, stream: int) -> int:
        return int(self._set(self._bits, place, stream).random_raw())

    def _made(self, place: int, stream: int) -> np.random.Generator:
        bits, generator = _POOL.at(place)
        self._set(bits, place, stream)
        return generator

    def _set(self, bits: Any, place: int, stream: int) -> Any:
        position = self._positions[place] if self._positions else 0
        bits.state = {
            "bit_generator": "Philox",
            "state": {"counter": (0, position, self.rows[place], self._epoch), "key": (self._key, stream)},
            "buffer": (0, 0, 0, 0),
            "buffer_pos": 4,
            "has_uint32": 0,
            "uinteger": 0,
        }
        return bits


class Rngs(Sequence[np.random.Generator]):
    """A generator for each row of a batch, made when it is asked for. The next function uses the same objects."""

    def __init__(self, numbers: RowNumbers, number: int) -> None:
        self._numbers, self._stream = numbers, 2 * number
        self._made: list[Any] = [None] * len(numbers.rows)

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[place] for place in range(len(self))[row]]
        made = self._made[row]
        if made is None:
            made = self._made[row] = self._numbers._made(range(len(self))[row], self._stream)
        return made

    @property
    def seeds(self) -> Any:
        """A seed for each row, for code that makes its own generators: shape ``(rows,)``, uint64."""
        words = [self._numbers._word(place, self._stream + 1) for place in range(len(self))]
        return np.array(words, dtype=np.uint64)
