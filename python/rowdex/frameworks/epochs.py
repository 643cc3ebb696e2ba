"""Updates of a run whose epochs differ in their numbers of steps, as those of packs do, for what counts updates."""

from __future__ import annotations

import math
from collections.abc import Callable


class Epochs:
    """How many updates of the optimizer each epoch has.

    Args:
        total_steps: How many batches so many epochs have, as the library says.
        every: How many of them an update takes; the last one of an epoch may have fewer.
    """

    def __init__(self, total_steps: Callable[[int], int], every: int) -> None:
        self._total_steps, self.every = total_steps, max(1, every)
        self._totals = [0]

    def steps(self, epoch: int) -> int:
        """How many batches an epoch has."""
        while len(self._totals) < epoch + 2:
            self._totals.append(self._total_steps(len(self._totals)))
        return self._totals[epoch + 1] - self._totals[epoch]

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
