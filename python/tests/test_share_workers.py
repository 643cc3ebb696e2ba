"""Workers of DataLoaders that share a reader and are killed, under a watchdog."""

from __future__ import annotations

import json
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import rowdex

from .test_share import WATCHDOG, Job, addresses, await_nothing_but, names_in

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only")

PROGRAM = pathlib.Path(__file__).with_name("share_killed_program.py")


@pytest.fixture()
def shared(index: str, tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(index, tmp_path, 2, epochs=4, batch=10, pause=0.01)
    yield job
    job.kill()


def workers(job: Job, rank: int) -> list[int]:
    return [int(pid) for line in job.lines(rank, "workers") for pid in line.split()]


def await_(condition: Any, job: Job) -> None:
    deadline = time.monotonic() + WATCHDOG
    while not condition():
        assert time.monotonic() < deadline, [job.errors(rank) for rank in job.processes]
        time.sleep(0.01)


def lives(pid: int) -> bool:
    status = pathlib.Path(f"/proc/{pid}/status")
    try:
        return "\nState:\tZ" not in status.read_text()
    except OSError:
        return False


@pytest.mark.parametrize(
    ("victim", "on_death"), [("reader", "continue"), ("consumer", "continue"), ("consumer", "fail")]
)
def test_a_worker_that_is_killed_is_an_error_in_training_and_nothing_hangs_or_is_left(
    shared: Job, index: str, victim: str, on_death: str
) -> None:
    before = addresses()
    shared.options["on_death"] = on_death
    # It kills once the other rank is there with both of its workers.
    shared.start(0, program=PROGRAM, kill=victim, after=str(shared.note(1)))
    tasks = [pathlib.Path("/proc") / "0"]

    def is_there() -> bool:
        tasks[:] = [pathlib.Path(f"/proc/{pid}/task") for pid in workers(shared, 0)]
        return any(name.startswith("rowdex-share-ac") for folder in tasks for name in names_in(folder))

    # So that the reader is a worker of the rank that kills one.
    await_(is_there, shared)
    shared.start(1, program=PROGRAM)
    shared.wait()
    (killed,) = shared.lines(0, "killed")
    (error,) = shared.lines(0, "error")
    # PyTorch says that it was killed, unless it takes tensors from it just then.
    kind, _, words = error.partition(" ")
    assert kind != "RuntimeError" or (killed in words and "worker" in words), error
    assert "timed out" not in error
    errors = shared.lines(1, "error")
    if victim == "reader":
        assert len(errors) == 1 and f"has ended (process {killed}, rank 0)" in errors[0], errors
    else:
        # The reader is in the other worker of rank 0. PyTorch ends it, or kills it if that takes long or if it hears of
        # the death once more: so the reader may end before it has told anyone.
        gone = "the reader that this machine's ranks share has ended" in "".join(errors)
        told = on_death == "fail" and f"rank 0 (process {killed}) has died" in "".join(errors)
        assert gone or told or shared.ended(1), errors
    for rank in range(2):
        sampler = rowdex.DistributedSampler(rowdex.Dataset(index), num_replicas=2, batch_size=10, seed=7, rank=rank)
        expected = [f"{epoch} {json.dumps(b.row_ids)}" for epoch in range(4) for b in sampler.batches()]
        found = shared.lines(rank, "step")
        assert len(found) >= 4 * (1 - rank) and found == expected[: len(found)]
    left = [pid for rank in range(2) for pid in workers(shared, rank)]
    assert len(left) == 4
    await_(lambda: not any(lives(pid) for pid in left), shared)
    await_nothing_but(before)
