"""The epoch that comes next, which an iterable dataset and its copies in the workers of a ``DataLoader`` agree on.

A dataset does not learn when a ``DataLoader`` with workers begins an epoch. Each worker has a copy of it, and PyTorch
draws a seed for all workers of an iteration: the first of them that begins takes the next epoch, and the others, which
find their seed, take the same one.
"""

from __future__ import annotations

from typing import Any

import torch

# How many iterations are remembered that may be on their way at a time, and the words of each: its name, its epoch, and
# which process began it for each worker.
_ITERATIONS, _WORKERS = 8, 256
_SIZE = 2 + _WORKERS


class Turns:
    """Which epoch the next iteration serves, and which the last few ones began with, in shared memory."""

    def __init__(self, words: Any = None) -> None:
        # The next epoch, how many iterations were begun, how many states were loaded, and then the iterations.
        self._words = torch.zeros(3 + _ITERATIONS * _SIZE, dtype=torch.int64) if words is None else words
        self._words.share_memory_()

    def __reduce__(self) -> Any:
        return Turns, (self._words,)

    @property
    def next(self) -> int:
        """The epoch that the next iteration serves."""
        return int(self._words[0])

    @next.setter
    def next(self, epoch: int) -> None:
        self._words[0] = epoch

    @property
    def loaded(self) -> int:
        """How many states of a run were loaded, which workers that persist have not seen."""
        return int(self._words[2])

    def load(self, epoch: int) -> None:
        """Resumes from a state of a run, at this epoch."""
        self._words[0], self._words[2] = epoch, self.loaded + 1

    def take(self) -> int:
        """The epoch of an iteration that has no workers."""
        epoch = self.next
        self.next = epoch + 1
        return epoch

    def take_in_worker(self, worker: Any, number: int) -> int:
        """The epoch of an iteration in one of its workers.

        Args:
            worker: What PyTorch says of the worker.
            number: How many iterations this process has begun before.
        """
        name = (worker.seed - worker.id + number * 0x9E3779B97F4A7C15) % (1 << 62) + 1
        while True:
            place = self._place(name)
            if place is None:
                begun, epoch = int(self._words[1]), self.next
                place = self._place(name)
                if place is None:
                    # Whatever workers of one iteration write here at a time is the same. Its name makes it seen.
                    place = 3 + begun % _ITERATIONS * _SIZE
                    self._words[place + 2 : place + _SIZE] = 0
                    self._words[place + 1], self._words[place] = epoch, name
                    self._words[0], self._words[1] = epoch + 1, begun + 1
            own = place + 2 + worker.id % _WORKERS
            if int(self._words[own]) == 0:
                self._words[own] = 1
                return int(self._words[place + 1])
            # This worker has begun it before: a generator was seeded as before.
            name += 1

    def _place(self, name: int) -> int | None:
        names = self._words[3::_SIZE].tolist()
        return 3 + names.index(name) * _SIZE if name in names else None
