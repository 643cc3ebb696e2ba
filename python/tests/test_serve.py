"""Ranks that `rowdex serve` reads for, under a watchdog."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import rowdex

from .test_share import WATCHDOG, Job, addresses, alone, await_nothing_but

COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only"),
    pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it"),
]


class Served:
    """A server, and the job that it serves."""

    def __init__(self, job: Job, *options: str) -> None:
        self.job = job
        world, batch = job.options["world"], job.options["batch"]
        command = [COMMAND, "serve", job.options["index"], "--job", job.name, "--ranks", str(world), "--seed", "7"]
        self.process = subprocess.Popen(
            [*command, "--batch-size", str(batch), "--name", "train", "--threads", "1", *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        # If it does not say that ranks may come, it is ended, and has said why.
        watchdog = threading.Timer(WATCHDOG, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        assert f"process {self.process.pid}" in line, self.process.communicate()

    def end(self) -> tuple[int, str]:
        """Its exit status, and what it complained of."""
        told, errors = self.process.communicate(timeout=WATCHDOG)
        assert "served" in told and "served 0 rows" not in told, told
        return self.process.returncode, errors

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=WATCHDOG)


@pytest.fixture()
def served(index: str, tmp_path: pathlib.Path) -> Iterator[Any]:
    """Makes a job whose loaders choose nothing that is the server's own, and its server."""
    made: list[Any] = []

    def make(world: int, *options: str, **of_job: Any) -> tuple[Job, Served]:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        job = Job(index, folder, world, **{"memory": None, "threads": None, "pause": 0.002, **of_job})
        made.append(job)
        server = Served(job, *options)
        made.append(server)
        return job, server

    yield make
    for one in made:
        one.kill()


@pytest.fixture()
def job(index: str, tmp_path: pathlib.Path) -> Iterator[Any]:
    """Makes a job without a server."""
    made: list[Job] = []

    def make(world: int, **options: Any) -> Job:
        folder = tmp_path / f"alone-{len(made)}"
        folder.mkdir()
        made.append(Job(index, folder, world, **options))
        return made[-1]

    yield make
    for one in made:
        one.kill()


def steps(job: Job) -> list[list[str]]:
    return [job.lines(rank, "step") for rank in range(job.world)]


def test_each_rank_gets_what_it_would_have_read_itself(served: Any, job: Any) -> None:
    before = addresses()
    shared, server = served(2, "--memory", "1MiB", "--once", batch=16)
    for rank in range(2):
        shared.start(rank)
    shared.wait()
    assert steps(shared) == alone(job, 2, batch=16), shared.errors(0)
    assert all(shared.ended(rank) for rank in range(2))
    assert server.end() == (0, "")
    await_nothing_but(before)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_server_has_ended_the_ranks_go_on(served: Any, job: Any, how: int) -> None:
    before = addresses()
    shared, server = served(2, epochs=16)
    for rank in range(2):
        shared.start(rank)
    shared.await_steps(1, 5)
    # So that no rank is done before.
    shared.processes[1].send_signal(signal.SIGSTOP)
    server.process.send_signal(how)
    if how == signal.SIGTERM:
        status, errors = server.end()
        assert status == 0 and "ended while 2 loaders used it" in errors, errors
    shared.processes[1].send_signal(signal.SIGCONT)
    shared.wait()
    assert steps(shared) == alone(job, 2, epochs=16), shared.errors(0)
    await_nothing_but(before)


def test_a_rank_that_differs_is_told_in_what(served: Any) -> None:
    shared, server = served(2, "--memory", "1MiB", batch=16)
    shared.start(0, batch=32)
    shared.start(1, memory=2 << 20)
    shared.wait()
    pids = [shared.lines(rank, "pid")[0] for rank in range(2)]
    (error,) = shared.lines(0, "error")
    where = f"rank 0 (process {pids[0]}) cannot share the reader of this machine (process {server.process.pid})"
    assert where in error and "its batch size is 32, and not 16" in error and "`rowdex serve`" in error
    (error,) = shared.lines(1, "error")
    assert "its memory is 2097152, and not 1048576" in error


def test_a_loader_with_defaults_is_served_by_a_server_with_as_few_options(index: str) -> None:
    name = f"test-{os.getpid()}-defaults"
    options = ["--batch-size", "256", "--seed", "42", "--job", name, "--ranks", "2", "--memory", "1GiB"]
    with subprocess.Popen([COMMAND, "serve", index, *options], stdout=subprocess.PIPE, text=True) as server:
        watchdog = threading.Timer(WATCHDOG, server.kill)
        watchdog.start()
        try:
            assert server.stdout is not None and "serving" in server.stdout.readline()
            # The first that a process makes, as a program of a rank does.
            program = (
                "import rowdex, sys, json\n"
                "dataset = rowdex.Dataset(sys.argv[1])\n"
                "rank = dict(rank=1, num_replicas=2, output='python')\n"
                "share = dict(share=rowdex.Share(job=sys.argv[2], ranks=2))\n"
                "with rowdex.Loader(dataset, batch_size=256, seed=42, **rank, **share) as shared:\n"
                "    found = list(shared)\n"
                "assert found == list(rowdex.Loader(dataset, batch_size=256, seed=42, **rank))\n"
                "print(len(found))\n"
            )
            rank = [sys.executable, "-c", program, index, name]
            assert subprocess.check_output(rank, timeout=WATCHDOG) == b"2\n"
            server.terminate()
            rest = server.stdout.read()
            assert "served" in rest and server.wait(WATCHDOG) == 0
        finally:
            watchdog.cancel()
            server.kill()
