"""Starts the ranks of a job, each a process of its own, and looks at them from outside."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from .registry import Told, peers_folder

PROGRAM = pathlib.Path(__file__).parents[1] / "all.py"
LOOK_SECONDS = 0.02


def resident(status: str) -> int:
    """Bytes of a process that no file has, of the text of its ``/proc/PID/status``."""
    return sum(int(size) << 10 for size in re.findall(r"^Rss(?:Anon|Shmem):\s*(\d+) kB$", status, re.M))


def tree(pid: int) -> list[int]:
    """A process and those that it started."""
    found = [pid]
    for one in found:
        for task in pathlib.Path(f"/proc/{one}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += map(int, task.read_text().split())
    return found


def memory(pid: int) -> int:
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            total += resident(pathlib.Path(f"/proc/{one}/status").read_text())
    return total


@dataclasses.dataclass
class Rank:
    process: subprocess.Popen[str]
    out: pathlib.Path
    before: int | None = None
    """Bytes before it opened anything."""
    most: int = 0
    """How many more there were at most."""

    def told(self) -> list[Told]:
        lines = [line for line in self.out.read_text().splitlines() if line.startswith('{"rank"')]
        return [json.loads(line) for line in lines]

    def look(self) -> None:
        if self.before is None:
            self.before = next((told["before"] for told in self.told() if "before" in told), None)
        if self.before is not None:
            self.most = max(self.most, memory(self.process.pid) - self.before)


@contextlib.contextmanager
def scratch() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(prefix="compare-", ignore_cleanup_errors=True) as folder:
        yield pathlib.Path(folder)


def environment(folder: pathlib.Path, distribution: str | None) -> dict[str, str]:
    """Without a network, and with nothing left behind elsewhere."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    paths = [peers_folder(distribution), os.environ.get("PYTHONPATH")]
    return {
        **os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "OMP_NUM_THREADS": "1",
        "HF_HOME": str(folder / "hub"), "HOME": str(folder), "TMPDIR": str(temporary), "JAX_PLATFORMS": "cpu",
        "DISABLE_OPTIMIZER_PROGRESS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }  # fmt: skip


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(task: str, peer: str, job: dict[str, Any], folder: pathlib.Path, common: dict[str, str]) -> list[Rank]:
    ranks, port = [], free_port()
    for rank in range(job["world"]):
        named = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["world"], "LOCAL_WORLD_SIZE": job["world"]}
        named |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        command = [sys.executable, str(PROGRAM), "rank", task, peer, json.dumps({**job, "rank": rank})]
        out = folder / f"{task}-{job['world']}-{rank}.out"
        with out.open("w") as stdout, (folder / f"{out.name}.err").open("w") as stderr:
            process = subprocess.Popen(
                command, stdout=stdout, stderr=stderr, text=True, start_new_session=True,
                env={**common, **{name: str(value) for name, value in named.items()}},
            )  # fmt: skip
        ranks.append(Rank(process, out))
    return ranks


def end(ranks: list[Rank]) -> None:
    """Kills what is left of ranks and of what they started, as ``kill -9`` does."""
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(rank.process.pid, signal.SIGKILL)
        rank.process.wait()


def run(
    task: str, peer: str, job: dict[str, Any], folder: pathlib.Path, common: dict[str, str], seconds: float,
    until: Callable[[], bool] = lambda: False,
) -> list[Told]:  # fmt: skip
    """What all ranks told. They are killed after some seconds, or as soon as ``until`` holds.

    Raises:
        RuntimeError: if a rank failed or did not end, with what it said.
    """
    ranks, began = start(task, peer, job, folder, common), time.monotonic()
    try:
        while any(rank.process.poll() is None for rank in ranks):
            for rank in ranks:
                rank.look()
            if until():
                return []
            if any(rank.process.returncode for rank in ranks):
                # The others wait for it.
                break
            if time.monotonic() - began > seconds:
                raise RuntimeError(f"no end within {seconds:.0f} seconds")
            time.sleep(LOOK_SECONDS)
    finally:
        end(ranks)
    found = []
    for rank in ranks:
        told: Told = {name: value for part in rank.told() for name, value in part.items()}
        if "error" in told:
            raise RuntimeError(told["error"])
        found.append({**told, "resident": rank.most})
    for rank in ranks:
        if rank.process.returncode:
            said = (folder / f"{rank.out.name}.err").read_text().strip().splitlines() or ["it said nothing"]
            raise RuntimeError(f"a rank ended with {rank.process.returncode}: {said[-1]}")
    return found
