"""Real DDP jobs, with gloo, under a watchdog."""

from __future__ import annotations

import collections
import json
import os
import pathlib
import re
import runpy
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from .conftest import REPOSITORY, ROWS

pytest.importorskip("torch", reason="PyTorch is not installed")

PROGRAM = pathlib.Path(__file__).with_name("ddp_program.py")
WATCHDOG = 240
# A job hangs if it stands still for this long after its first step; a step takes about a millisecond.
STILL = 10


class Job:
    """The ranks of a job, until they end or stand still."""

    def __init__(self, how: str, index: str, world: int, size: int, folder: pathlib.Path, **options: Any) -> None:
        folder.mkdir()
        self.notes = [folder / f"rank-{rank}" for rank in range(world)]
        arguments = [how, index, str(world), str(size), str(folder), json.dumps(options)]
        errors = (folder / "errors").open("w")
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        for name in ("RANK", "WORLD_SIZE"):
            environment.pop(name, None)
        process = subprocess.Popen(
            [sys.executable, PROGRAM, *arguments], stderr=errors, start_new_session=True, env=environment
        )
        self.hung = False
        before, since, deadline = -1, time.monotonic(), time.monotonic() + WATCHDOG
        try:
            while process.poll() is None:
                time.sleep(0.1)
                written = sum(note.stat().st_size for note in self.notes if note.exists())
                if written != before:
                    before, since = written, time.monotonic()
                begun = all(note.exists() and note.stat().st_size for note in self.notes)
                if (begun and time.monotonic() - since > STILL) or time.monotonic() > deadline:
                    self.hung = True
                    break
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.code = process.returncode
        self.errors = (folder / "errors").read_text()

    def steps(self, rank: int) -> list[list[list[int]]]:
        """The row ids of each step, by epoch."""
        epochs: list[list[list[int]]] = [[]]
        for line in self.notes[rank].read_text().splitlines():
            word, *rest = line.split()
            if word == "step":
                epochs[-1].append(list(map(int, rest)))
            elif word == "epoch":
                epochs.append([])
        return epochs[:-1]

    def ended(self, rank: int) -> bool:
        return self.notes[rank].read_text().endswith("end\n")


@pytest.mark.parametrize("world", [2, 4])
def test_row_groups_dealt_round_robin_hang(index: str, world: int, tmp_path: pathlib.Path) -> None:
    job = Job("row-groups", index, world, 16, tmp_path / "job")
    assert job.hung, job.errors
    assert not any(job.ended(rank) for rank in range(world))


@pytest.mark.parametrize(("world", "size"), [(2, 16), (4, 16), (4, 1)])
def test_rowdex_finishes_where_they_hang(index: str, world: int, size: int, tmp_path: pathlib.Path) -> None:
    assert ROWS % world != 0
    job = Job("rowdex", index, world, size, tmp_path / "job")
    assert not job.hung and job.code == 0, job.errors
    epochs = [job.steps(rank) for rank in range(world)]
    assert all(job.ended(rank) for rank in range(world))
    assert len({tuple(map(len, steps)) for steps in epochs}) == 1
    for epoch in range(2):
        counted = collections.Counter(row for steps in epochs for step in steps[epoch] for row in step)
        assert set(counted) == set(range(ROWS)) and sum(counted.values()) - ROWS == -ROWS % world
    weights = {line for note in job.notes for line in note.read_text().splitlines() if line.startswith("weights")}
    assert len(weights) == 1


def test_a_job_goes_on_from_its_state_with_another_number_of_ranks(index: str, tmp_path: pathlib.Path) -> None:
    before = Job("rowdex", index, 4, 16, tmp_path / "before", stop=7)
    assert not before.hung and before.code == 0, before.errors
    states = {
        line.split()[2] for note in before.notes for line in note.read_text().splitlines() if line.startswith("epoch")
    }
    assert len(states) == 1
    after = Job("rowdex", index, 2, 16, tmp_path / "after", state=states.pop())
    assert not after.hung and after.code == 0, after.errors
    served = [step for job, world in [(before, 4), (after, 2)] for rank in range(world) for step in job.steps(rank)[0]]
    counted = collections.Counter(row for step in served for row in step)
    assert set(counted) == set(range(ROWS)) and sum(counted.values()) - ROWS < 2


def test_replicas_get_the_same_global_batch(index: str, tmp_path: pathlib.Path) -> None:
    job = Job("rowdex", index, 4, 16, tmp_path / "job", replicas=2)
    assert not job.hung and job.code == 0, job.errors
    steps = [job.steps(rank) for rank in range(4)]
    assert steps[0] == steps[1] and steps[2] == steps[3] and steps[0] != steps[2]


def test_the_example_goes_on_from_its_checkpoint(tmp_path: pathlib.Path) -> None:
    example = REPOSITORY / "examples/ddp.py"
    index = runpy.run_path(str(example))["example"](tmp_path)
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}

    def run(ranks: int) -> list[str]:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        done = subprocess.run(
            [*command, example, index], capture_output=True, text=True, timeout=WATCHDOG, env=environment
        )
        assert done.returncode == 0, done.stderr
        return [re.sub(", loss.*", "", line) for line in done.stdout.splitlines()]

    # 6,003 rows in batches of 64.
    left = "a run that resumes from the checkpoint has 23 steps left in epoch 1"
    assert run(2) == [f"epoch {epoch}: 47 steps on each of 2 ranks" for epoch in range(2)] + [left]
    assert run(2) == ["epoch 1: 47 steps on each of 2 ranks", left]
