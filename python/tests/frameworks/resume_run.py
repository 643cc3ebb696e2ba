"""A rank of resume_jobs.py: it trains, saves as its framework does after a number of steps, and is killed two steps
later; or it goes on from there. Every step is noted in a file.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
from collections.abc import Callable
from typing import Any

import rowdex.torch
import torch

SEED = 3


class Run:
    """What a rank is to do, and what it did."""

    def __init__(self, index: str, folder: str, size: int, stop: int, epochs: int, resumes: bool) -> None:
        self.index, self.folder, self.size, self.resumes = index, pathlib.Path(folder), size, resumes
        self.stop, self.epochs = stop, epochs
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.before = len(list(self.folder.glob("before-*")))
        self._log = (self.folder / f"{'after' if resumes else 'before'}-{self.rank}").open("a")
        self.steps = 0

    def dataset(self) -> Any:
        return rowdex.torch.Dataset(self.index, ["id", "x", "y"])

    def took(self, ids: Any) -> None:
        """Notes the rows of a step, and ends the process a little after the checkpoint."""
        print(json.dumps([int(row) for row in ids]), file=self._log, flush=True)
        self.steps += 1
        if not self.resumes and self.steps == self.stop + 2:
            os.kill(os.getpid(), signal.SIGKILL)

    def saves(self) -> bool:
        """Whether the step that was just taken is the one to save after."""
        return not self.resumes and self.steps == self.stop

    def keep(self, state: Any, name: str = "state") -> None:
        """What a loop of one's own does with a state."""
        part = self.folder / f"{name}.{self.rank}.part"
        torch.save(state, part)
        part.rename(self.folder / name)

    def kept(self, name: str = "state") -> Any:
        return torch.load(self.folder / name, weights_only=False)

    @property
    def epoch(self) -> int:
        """The epoch to begin with, which is the last but one when it goes on."""
        return self.epochs - 2 if self.resumes else 0

    @property
    def own(self) -> str:
        """The name of a state that differs between ranks. More ranks than there were take what there is."""
        return f"state-{self.rank % self.before if self.resumes else self.rank}"


def loop(run: Run, loader: Any, save: Callable[[int, int], Any], epoch: int) -> None:
    """A loop that saves the state after an epoch and a step, from an epoch on, of which the loader knows the place."""
    for current in range(epoch, run.epochs):
        for step, batch in enumerate(loader):
            run.took(batch["id"])
            if run.saves():
                save(current, step)
