"""Kills, stops and restarts ranks that share a reader, at random, and looks whether anything is lost or left.

    python tools/share_soak.py SECONDS [SEED]

Each rank goes on from the last state that it noted. At the end every rank has got exactly the batches that a loader of
its own gives it. Nothing may hang: a rank that notes no batch for a minute, while nobody is stopped, ends the soak.
"""

from __future__ import annotations

import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import rowdex

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "python" / "tests" / "share_program.py"
WORLD, STILL = 4, 60
ROWS = 40_000


def leftovers() -> list[str]:
    """Where loaders meet, and memory files of batches that processes have open."""
    found = [line for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if "@rowdex-share" in line]
    for link in pathlib.Path("/proc").glob("[0-9]*/fd/*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if "memfd:rowdex-batch" in target:
            found.append(f"{link} {target}")
    return found


class Soak:
    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        self.folder, self.random = folder, random.Random(seed)
        table = pa.table({"id": list(range(ROWS)), "name": [f"row {i}" for i in range(ROWS)]})
        pq.write_table(table, folder / "a.parquet", row_group_size=2_000)
        self.index = str(folder / "a.rdx")
        rowdex.build(folder / "a.parquet", self.index)
        self.job = f"soak {uuid.uuid4()}"
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.counts = {"kill": 0, "stop": 0, "start": 0, "told": 0}

    def note(self, name: str) -> pathlib.Path:
        return self.folder / name

    def steps(self, name: str) -> list[str]:
        note = self.note(name)
        lines = note.read_text().splitlines(keepends=True) if note.exists() else []
        # A line that a kill has cut is of a step that was not noted.
        return [line[5:].rstrip("\n") for line in lines if line.startswith("step ") and line.endswith("\n")]

    def start(self, rank: int, epochs: int, *, shared: bool) -> subprocess.Popen[bytes]:
        name = f"{'shared' if shared else 'alone'}-{rank}"
        note, seen = self.note(name), self.steps(name)
        if note.exists():
            note.write_text("".join(f"step {line}\n" for line in seen))
        share = {"share": "machine", "share_job": self.job, "share_ranks": WORLD, "share_drift": 8}
        options = {
            "index": self.index, "rank": rank, "world": WORLD, "epochs": epochs, "batch": 40, "memory": 1 << 18,
            "note": str(note), "pause": 0.002 if shared else 0, "more": share if shared else {},
            "state": seen[-1].split()[-1] if seen else None,
        }  # fmt: skip
        errors = self.note(f"errors-{rank}").open("a")
        return subprocess.Popen([sys.executable, PROGRAM, json.dumps(options)], stderr=errors)

    def run(self, seconds: float) -> None:
        epochs = 1_000_000
        end, moved = time.monotonic() + seconds, time.monotonic()
        before = -1
        while time.monotonic() < end:
            for rank in range(WORLD):
                process = self.processes.get(rank)
                if process is None or process.poll() is not None:
                    self.counts["told"] += process is not None and process.returncode == 0
                    self.processes[rank] = self.start(rank, epochs, shared=True)
                    self.counts["start"] += 1
            time.sleep(self.random.uniform(0.05, 3))
            notes = [self.note(f"shared-{rank}") for rank in range(WORLD)]
            written = sum(note.stat().st_size for note in notes if note.exists())
            if written != before:
                before, moved = written, time.monotonic()
            assert time.monotonic() - moved < STILL, "nothing moves"
            process = self.processes[self.random.randrange(WORLD)]
            if self.random.random() < 0.6:
                process.kill()
                self.counts["kill"] += 1
            else:
                process.send_signal(signal.SIGSTOP)
                time.sleep(self.random.uniform(0.05, 1))
                process.send_signal(signal.SIGCONT)
                self.counts["stop"] += 1

    def check(self) -> int:
        for process in self.processes.values():
            process.kill()
            process.wait()
        steps = [self.steps(f"shared-{rank}") for rank in range(WORLD)]
        most = max(int(found[-1].split()[0]) for found in steps if found) + 1
        for process in [self.start(rank, most, shared=False) for rank in range(WORLD)]:
            process.wait(600)
        for rank, found in enumerate(steps):
            expected = self.steps(f"alone-{rank}")
            assert found == expected[: len(found)], f"rank {rank} got other batches"
        return sum(map(len, steps))


def main() -> None:
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    before = leftovers()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(pathlib.Path(name), seed)
        try:
            soak.run(seconds)
            batches = soak.check()
        finally:
            for process in soak.processes.values():
                process.kill()
                process.wait()
        print(f"{batches} batches, all as alone; {soak.counts}")
    left = [line for line in leftovers() if line not in before]
    assert not left, left
    print("nothing is left")


if __name__ == "__main__":
    main()
