"""Updates of a run whose epochs differ in their numbers of steps, as those of packs do, for what counts updates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable


class Epochs:
    """How many updates of the optimizer each epoch has.

    Args:
        steps: How many batches an epoch has, as the library says. Each epoch is asked for once.
        every: How many of them an update takes; the last one of an epoch may have fewer.
    """

    def __init__(self, steps: Callable[[int], int], every: int) -> None:
        self.steps, self.every = functools.cache(steps), max(1, every)

    def updates(self, epoch: int) -> int:
        """How many updates an epoch has; one at least, as frameworks count."""
        return max(1, -(-self.steps(epoch) // self.every))

    def until(self, epochs: float) -> int:
        """How many updates so many epochs have; a part of the last one is rounded up."""
        whole = int(epochs)
        part = math.ceil((epochs - whole) * self.updates(whole)) if epochs > whole else 0
        return sum(map(self.updates, range(whole))) + part

    def place(self, updates: int) -> tuple[int, int]:
        """The epoch in which so many updates end, and how many of them are of that epoch. The end of an epoch is the
        beginning of the next one.
        """
        epoch = 0
        while updates >= self.updates(epoch):
            updates -= self.updates(epoch)
            epoch += 1
        return epoch, updates
