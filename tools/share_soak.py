"""Kills, stops and restarts what shares a reader, at random, and looks whether anything is lost or left.

    python tools/share_soak.py SECONDS [SEED]

It goes on in rounds of about a minute, each of another sort: ranks with loaders, ranks with DataLoaders that have
workers, and either of them with `rowdex serve` (if ROWDEX_COMMAND names the command, or PATH has it). Ranks go to other
epochs, to states within epochs and to new loaders, each whenever it likes. Ranks, workers and servers are killed,
stopped and started again; a rank goes on from the last state that it noted. Each batch must be the one that a loader of
its own gives the rank at that place. Nothing may hang: a rank that notes nothing for two minutes writes where its
threads are, and ends the soak. No process may be left by a round, and no file. On a failure, the folder with the notes
of the ranks is kept.
"""

from __future__ import annotations

import contextlib
import faulthandler
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import rowdex

# By a signal: killed, or asked to end before it listens to signals, or asked twice.
ENDED = (-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM)
WORLD, WORKERS, EPOCHS, BATCH, ROWS = 3, 2, 3, 40, 12_000
STILL = 120
MARK = "ROWDEX_SOAK"
COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
# What a rank may be told when others die. All else is a failure.
EXPECTED = (
    "readers of this machine have ended before a batch came",
    "DataLoader worker",
    "Connection reset by peer",
    "Connection refused",
    "Broken pipe",
    "No such file or directory: '/tmp",
)


def digest(ids: list[int], names: list[str]) -> str:
    return hashlib.sha1(repr([ids, names]).encode()).hexdigest()


def is_expected(error: Exception) -> bool:
    return isinstance(error, EOFError) or any(words in str(error) for words in EXPECTED)


# A rank, in a process of its own.


class Rank:
    """Serves from a place on, and goes to others at random, until it is killed or told that somebody else was."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options, self.note = options, open(options["note"], "a", buffering=1)
        self.random = random.Random(options["seed"])
        self.sampling = {"seed": 7, "rank": options["rank"], "num_replicas": WORLD}
        self.place, self.state = tuple(options["place"]), options["state"]
        self.seen: list[tuple[tuple[int, int], str]] = []
        self.steps = 0

    def serve(self) -> None:
        raise NotImplementedError

    def got(self, epoch: int, step: int, ids: list[int], names: list[str], state: str) -> None:
        """Notes a batch, and the place after it."""
        assert (epoch, step) == self.place, f"the batch of {epoch, step}, and not that of {self.place}"
        self.place = (epoch, step + 1) if step + 1 < self.steps else (epoch + 1, 0)
        self.state = state
        self.seen.append((self.place, state))
        print("step", epoch, step, digest(ids, names), *self.place, state, file=self.note)
        time.sleep(self.options["pause"])

    def elsewhere(self) -> tuple[str, int | str] | None:
        """Where to go, if to another place than the next one."""
        epoch, chance = self.place[0], self.random.random()
        if self.place[1] == 0 or chance > 0.03:
            return None
        print("seek", file=self.note)
        if chance < 0.015:
            # Not the epoch that it is in, which may be one that was resumed within.
            epoch = (epoch + 1 + self.random.randrange(EPOCHS - 1)) % EPOCHS
            self.place, self.state = (epoch, 0), None
            return "epoch", epoch
        # Nor what comes after the last epoch, which is the first one again.
        self.place, self.state = self.random.choice([seen for seen in self.seen[-200:] if seen[0][0] < EPOCHS])
        return "state", self.state

    def wrap(self) -> bool:
        """After the last epoch comes the first."""
        if self.place[0] >= EPOCHS:
            self.place, self.state = (0, 0), None
            return True
        return False


class LoaderRank(Rank):
    def loader(self) -> Any:
        options = self.options
        loader = rowdex.Loader(
            rowdex.Dataset(options["index"]), batch_size=BATCH, output="arrow", **self.sampling, **options["own"],
            share=rowdex.Share(**options["share"]),
        )  # fmt: skip
        self.steps = len(loader)
        self.go(loader)
        return loader

    def go(self, loader: Any) -> None:
        if self.wrap() or self.state is None:
            loader.set_epoch(self.place[0])
        else:
            loader.load_state_dict({"state": self.state})

    def serve(self) -> None:
        loader = self.loader()
        while True:
            for batch in loader:
                found = batch.to_pydict(["id", "name"])
                assert found["id"] == batch.row_ids
                self.got(batch.epoch, batch.step, found["id"], found["name"], loader.state_dict()["state"])
                if self.elsewhere() is not None:
                    break
            if self.random.random() < 0.2:
                if self.random.random() < 0.5:
                    loader.close()
                loader = self.loader()
            else:
                self.go(loader)


class WorkersRank(Rank):
    def serve(self) -> None:
        import rowdex.torch
        from torch.utils.data import DataLoader

        options = self.options
        own = {"worker_threads" if name == "threads" else name: value for name, value in options["own"].items()}
        dataset = rowdex.torch.Dataset(options["index"], **own, share=rowdex.Share(**options["share"]))
        while True:
            batches = rowdex.torch.BatchSampler(dataset, BATCH, **self.sampling)
            self.steps = batches.sampler.steps
            loader: Any = DataLoader(
                dataset, batch_sampler=batches, num_workers=WORKERS, timeout=10 * STILL,
                persistent_workers=self.random.random() < 0.7,
            )  # fmt: skip
            try:
                self.serve_with(loader, batches)
            except (RuntimeError, OSError, EOFError, rowdex.Error) as error:
                if not is_expected(error):
                    raise
                print("told", " ".join(str(error).split()), file=self.note)

    def serve_with(self, loader: Any, batches: Any) -> None:
        while True:
            if self.wrap() or self.state is None:
                batches.set_epoch(self.place[0])
            else:
                batches.load_state_dict({"state": self.state})
            served = iter(loader)
            for batch in served:
                epoch, step = self.place
                state = batches.state_after(epoch, step)["state"]
                self.got(epoch, step, batch["id"].tolist(), batch["name"], state)
                if self.random.random() < 0.004:
                    print("worker", file=self.note)
                    os.kill(self.random.choice(served._workers).pid, signal.SIGKILL)
                if self.elsewhere() is not None:
                    break


def rank(options: dict[str, Any]) -> None:
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    one = (WorkersRank if options["workers"] else LoaderRank)(options)
    try:
        one.serve()
    except (RuntimeError, OSError, EOFError, rowdex.Error) as error:
        # PyTorch raises that a worker was killed wherever the program is, also where it handles another error.
        if not is_expected(error):
            raise
        print("told", " ".join(str(error).split()), file=one.note)


# The soak.


class Round:
    """Some time with ranks of one sort."""

    def __init__(self, soak: Soak, number: int, workers: bool, served: bool) -> None:
        self.soak, self.random, self.workers, self.served = soak, soak.random, workers, served
        self.folder = soak.folder / f"round-{number}"
        self.folder.mkdir()
        self.job = f"soak-{uuid.uuid4()}"
        self.ranks: dict[int, subprocess.Popen[bytes]] = {}
        self.server: subprocess.Popen[bytes] | None = None
        self.moved: dict[int, tuple[int, float]] = {}
        # When to try to have a server again.
        self.due = 0.0

    def count(self, what: str) -> None:
        self.soak.counts[what] = self.soak.counts.get(what, 0) + 1

    def lines(self, rank: int, word: str) -> list[list[str]]:
        note = self.folder / f"rank-{rank}"
        lines = note.read_text().splitlines(keepends=True) if note.exists() else []
        # A line that a kill has cut is of a step that was not noted.
        return [line.split()[1:] for line in lines if line.startswith(word) and line.endswith("\n")]

    def start(self, rank: int) -> None:
        note = self.folder / f"rank-{rank}"
        if note.exists() and not note.read_bytes().endswith(b"\n"):
            text = note.read_text()
            note.write_text(text[: text.rfind("\n") + 1])
        seen = self.lines(rank, "step")
        place, state = ([int(seen[-1][3]), int(seen[-1][4])], seen[-1][5]) if seen else ([0, 0], None)
        options = {
            "index": self.soak.index, "rank": rank, "note": str(note), "workers": self.workers, "place": place,
            "state": state, "seed": self.random.random(), "pause": self.random.choice([0.005, 0.02]),
            "own": {} if self.served else {"memory": 1 << 18, "threads": 1},
            "share": {"job": self.job, "name": "soak", "ranks": WORLD} | ({} if self.served else {"drift": 8}),
        }  # fmt: skip
        errors = (self.folder / f"errors-{rank}").open("a")
        command = [sys.executable, __file__, "--rank", json.dumps(options)]
        self.ranks[rank] = subprocess.Popen(command, stderr=errors, env=self.soak.environment)
        self.count("start")

    def serve(self) -> None:
        command = [
            COMMAND, "serve", self.soak.index, "--job", self.job, "--name", "soak", "--ranks", str(WORLD),
            "--seed", "7", "--batch-size", str(BATCH), "--memory", "256KiB", "--threads", "1", "--drift", "8",
        ]  # fmt: skip
        with (self.folder / "server").open("a") as errors:
            self.server = subprocess.Popen(command, stdout=errors, stderr=errors, env=self.soak.environment)
        self.count("server")

    def look(self) -> None:
        """Starts what has ended, and fails if something hangs."""
        if self.served and (self.server is None or self.server.poll() is not None):
            if self.server is not None and self.server.returncode not in (0, *ENDED):
                # A rank that reads was there before.
                told = (self.folder / "server").read_text().splitlines()[-1]
                assert self.server.returncode == 1 and "reads for this job already" in told, told
            if self.due == 0:
                self.due = time.monotonic() + self.random.uniform(0, 6)
            if self.server is None or time.monotonic() > self.due:
                self.due = 0.0
                self.serve()
        for number in range(WORLD):
            process = self.ranks.get(number)
            if process is None or process.poll() is not None:
                if process is not None and process.returncode not in (0, -signal.SIGKILL):
                    raise AssertionError((self.folder / f"errors-{number}").read_text()[-4000:])
                self.start(number)
                self.moved.pop(number, None)
            note = self.folder / f"rank-{number}"
            size, (before, since) = note.stat().st_size if note.exists() else 0, self.moved.get(number, (-1, 0.0))
            if size != before:
                self.moved[number] = (size, time.monotonic())
            elif time.monotonic() - since > STILL:
                for process in self.ranks.values():
                    process.send_signal(signal.SIGUSR1)
                time.sleep(2)
                errors = [(self.folder / f"errors-{other}").read_text()[-4000:] for other in range(WORLD)]
                raise AssertionError(f"rank {number} of {self.folder.name} hangs\n" + "\n\n".join(errors))

    def written(self) -> int:
        """How many bytes the ranks have noted, about 150 for each batch."""
        return sum(note.stat().st_size for note in self.folder.glob("rank-*"))

    def harm(self) -> None:
        """Kills somebody, or stops one for a while."""
        victim, what = self.ranks[self.random.randrange(WORLD)], "rank"
        if self.server is not None and self.server.poll() is None and self.random.random() < 0.4:
            victim, what = self.server, "server"
        chance = self.random.random()
        if chance < (0.2 if self.workers else 0.5):
            victim.kill()
            victim.wait()
            self.count(f"{what} killed")
        elif chance < 0.6 and what == "server":
            victim.terminate()
            self.count("server ended")
        else:
            with contextlib.suppress(ProcessLookupError):
                victim.send_signal(signal.SIGSTOP)
                time.sleep(self.random.uniform(0.05, 1))
                victim.send_signal(signal.SIGCONT)
            self.count(f"{what} stopped")

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end:
                # However slow the machine is, something is served between two blows.
                enough, patience = self.written() + self.random.randrange(20_000), time.monotonic() + STILL
                while self.written() < enough and time.monotonic() < min(end, patience):
                    self.look()
                    time.sleep(0.2)
                self.look()
                self.harm()
        finally:
            for process in [*self.ranks.values(), *([self.server] if self.server else [])]:
                process.kill()
                process.wait()
        self.soak.nothing_left(self.folder)
        for number in range(WORLD):
            for epoch, step, found, *_ in self.lines(number, "step"):
                self.compare(number, (int(epoch), int(step)), found)
                self.count("batch")
            for what in ("seek", "told", "worker"):
                for _ in self.lines(number, what):
                    self.count({"seek": "went elsewhere", "told": "told", "worker": "worker killed"}[what])


    def compare(self, rank: int, place: tuple[int, int], found: str) -> None:
        """Fails if the batch is not that of the place, and says whose it is and what the rank did before."""
        if found == self.soak.expected[rank][place]:
            return
        whose = [(other, at) for other in range(WORLD) for at, one in self.soak.expected[other].items() if one == found]
        notes = (self.folder / f"rank-{rank}").read_text().splitlines()
        wrong = next(at for at, line in enumerate(notes) if line.startswith(f"step {place[0]} {place[1]} {found}"))
        raise AssertionError(
            f"rank {rank} of {self.folder} got another batch at {place}: "
            + (f"that of rank and place {whose}" if whose else "one that belongs nowhere, so its values are wrong")
            + f". Workers: {self.workers}, served: {self.served}. Its notes:\n"
            + "\n".join(notes[max(0, wrong - 12) : wrong + 5])
        )


class Soak:
    def __init__(self, folder: pathlib.Path, seed: int) -> None:
        self.folder, self.random, self.counts = folder, random.Random(seed), {}  # type: ignore[var-annotated]
        table = pa.table({"id": list(range(ROWS)), "name": [f"row {i}" for i in range(ROWS)]})
        pq.write_table(table, folder / "a.parquet", row_group_size=1_000)
        self.index = str(folder / "a.rdx")
        rowdex.build(folder / "a.parquet", self.index)
        self.mark = f"soak {uuid.uuid4()}"
        (folder / "tmp").mkdir()
        self.environment = {**os.environ, MARK: self.mark, "TMPDIR": str(folder / "tmp")}
        self.shm = set(os.listdir("/dev/shm"))
        self.expected: list[dict[tuple[int, int], str]] = []
        for number in range(WORLD):
            sampling = {"seed": 7, "rank": number, "num_replicas": WORLD, "batch_size": BATCH}
            batches: dict[tuple[int, int], str] = {}
            loader = rowdex.Loader(rowdex.Dataset(self.index), output="arrow", **sampling)  # type: ignore[arg-type]
            with loader:
                for _ in range(EPOCHS):
                    for batch in loader:
                        found = batch.to_pydict(["id", "name"])
                        batches[batch.epoch, batch.step] = digest(found["id"], found["name"])
            self.expected.append(batches)

    def processes(self) -> list[str]:
        """Those that this soak has started, or they have."""
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                    found.append(f"{path.name} {(path / 'cmdline').read_bytes()[:200]!r}")
        return found

    def end_orphans(self, round: pathlib.Path, processes: list[int]) -> None:
        """Ends workers that wait for PyTorch, and not in rowdex.

        A worker of PyTorch compares the number of its parent process with what that was when the worker began. If the
        rank was killed before that, the worker waits for ever for what it is to serve.
        """
        for process in processes:
            before = {path: path.stat().st_size for path in round.glob("errors-*")}
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGUSR1)
                time.sleep(1)
                written = "".join(path.read_bytes()[size:].decode(errors="replace") for path, size in before.items())
                if "in _worker_loop" in written and not re.search(r"rowdex/\w+\.py", written):
                    os.kill(process, signal.SIGKILL)
                    self.counts["orphan of PyTorch"] = self.counts.get("orphan of PyTorch", 0) + 1

    def nothing_left(self, round: pathlib.Path) -> None:
        deadline = time.monotonic() + STILL
        # Workers notice within a few seconds that their rank is gone.
        while left := self.processes():
            assert time.monotonic() < deadline, left
            if time.monotonic() > deadline - STILL / 2:
                self.end_orphans(round, [int(process.split()[0]) for process in left])
            time.sleep(0.2)
        files = [name for name in [*os.listdir(self.folder / "tmp"), *set(os.listdir("/dev/shm")) - self.shm]]
        left = [name for name in files if "rowdex" in name]
        assert not left, left

    def run(self, seconds: float) -> None:
        end, number = time.monotonic() + seconds, 0
        sorts = [(workers, served) for served in ([False, True] if COMMAND else [False]) for workers in (False, True)]
        while (left := end - time.monotonic()) > 1:
            self.random.shuffle(sorts)
            for workers, served in sorts:
                if (left := end - time.monotonic()) > 1:
                    Round(self, number, workers, served).run(min(left, self.random.uniform(20, 90 if workers else 40)))
                    number += 1
                    told = ", ".join(f"{self.counts[what]} {what}" for what in sorted(self.counts))
                    print(f"{number} rounds: {told}", flush=True)


def main() -> None:
    if sys.argv[1] == "--rank":
        rank(json.loads(sys.argv[2]))
        return
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    # Whoever ends it ends what it has started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended before its time"))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="share-soak-"))
    try:
        Soak(folder, seed).run(seconds)
    except BaseException:
        print(f"what the ranks noted is kept in {folder}; the seed was {seed}", file=sys.stderr, flush=True)
        raise
    shutil.rmtree(folder)
    print("all batches as alone, nothing hung, and nothing is left")


if __name__ == "__main__":
    main()
