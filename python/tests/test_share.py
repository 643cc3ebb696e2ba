"""Ranks that share one reader, as real processes, under a watchdog."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import ROWS

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only")

PROGRAM = pathlib.Path(__file__).with_name("share_program.py")
WORKERS = pathlib.Path(__file__).with_name("share_workers_program.py")
# A machine may be busy, and import PyTorch in several processes at a time.
WATCHDOG = 300
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RUN_ID")


class Job:
    """Ranks on one machine that share a reader."""

    def __init__(self, index: str, folder: pathlib.Path, world: int, **options: Any) -> None:
        self.world, self.folder = world, folder
        self.name = f"test {uuid.uuid4()}"
        self.options = {"index": index, "world": world, "epochs": 2, "batch": 20, "memory": 1 << 20, **options}
        self.processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(
        self, rank: int, *, shared: bool = True, environment: dict[str, str] | None = None,
        program: pathlib.Path = PROGRAM, **more: Any,
    ) -> None:  # fmt: skip
        share = {"job": self.name, "name": "train", "ranks": self.world}
        share |= {name: self.options[name] for name in ("drift",) if name in self.options}
        # A launcher says all of it.
        share = share if environment is None else {}
        own = {"rank": rank, "note": str(self.note(rank)), "share": share if shared else None}
        around = {name: value for name, value in os.environ.items() if name not in LAUNCHERS} | (environment or {})
        self.processes[rank] = subprocess.Popen(
            [sys.executable, program, json.dumps({**self.options, **own, **more})], env=around,
            stderr=(self.folder / f"errors-{rank}").open("w"),
        )  # fmt: skip

    def note(self, rank: int) -> pathlib.Path:
        return self.folder / f"rank-{rank}"

    def wait(self, *ranks: int) -> None:
        deadline = time.monotonic() + WATCHDOG
        for rank in ranks or list(self.processes):
            self.processes[rank].wait(max(deadline - time.monotonic(), 0.1))

    def lines(self, rank: int, word: str) -> list[str]:
        if not self.note(rank).exists():
            return []
        found = (line.partition(" ") for line in self.note(rank).read_text().splitlines())
        return [rest for first, _, rest in found if first == word]

    def await_steps(self, rank: int, steps: int) -> None:
        deadline = time.monotonic() + WATCHDOG
        while len(self.lines(rank, "step")) < steps:
            assert time.monotonic() < deadline and self.processes[rank].poll() is None, self.errors(rank)
            time.sleep(0.01)

    def reader(self) -> int:
        """The process that reads, once one of the ranks has started it."""
        deadline = time.monotonic() + WATCHDOG
        while not (found := self.readers()):
            assert time.monotonic() < deadline, self.errors(0)
            time.sleep(0.01)
        return found[0]

    def readers(self) -> list[int]:
        """Those that the ranks have started and that live."""
        ranks, found = {process.pid for process in self.processes.values()}, []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                state, parent = (process / "stat").read_text().rpartition(")")[2].split()[:2]
                if b"--socket" in (process / "cmdline").read_bytes() and int(parent) in ranks and state != "Z":
                    found.append(int(process.name))
        return found

    def errors(self, rank: int) -> str:
        return (self.folder / f"errors-{rank}").read_text() + "\n".join(self.lines(rank, "error"))

    def ended(self, rank: int) -> bool:
        return self.note(rank).read_text().endswith("end\n")

    def kill(self) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        for rank in self.processes:
            for child in self.lines(rank, "child"):
                # It ends by itself after a while.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child.split()[0]), signal.SIGKILL)


@pytest.fixture()
def job(index: str, tmp_path: pathlib.Path) -> Iterator[Any]:
    jobs: list[Job] = []

    def make(world: int, **options: Any) -> Job:
        folder = tmp_path / str(len(jobs))
        folder.mkdir()
        jobs.append(Job(options.pop("index", index), folder, world, **options))
        return jobs[-1]

    yield make
    for made in jobs:
        made.kill()


def alone(job: Any, world: int, **options: Any) -> list[list[str]]:
    """What each rank gets from a loader of its own."""
    separate = job(world, **options)
    for rank in range(world):
        separate.start(rank, shared=False)
    separate.wait()
    steps = [separate.lines(rank, "step") for rank in range(world)]
    assert all(steps), separate.errors(0)
    return steps


def addresses() -> list[str]:
    """Where loaders of this machine meet."""
    return [line for line in pathlib.Path("/proc/net/unix").read_text().splitlines() if "@rowdex-share" in line]


def await_nothing_but(before: list[str]) -> None:
    """Waits until no address is there that was not there before."""
    deadline = time.monotonic() + WATCHDOG
    while set(addresses()) - set(before):
        assert time.monotonic() < deadline, addresses()
        time.sleep(0.01)


@pytest.mark.parametrize(("world", "batch"), [(2, 16), (4, 7)])
def test_each_rank_gets_what_it_would_have_read_itself(job: Any, world: int, batch: int) -> None:
    before = addresses()
    shared = job(world, batch=batch)
    for rank in range(world):
        shared.start(rank)
    shared.wait()
    expected = alone(job, world, batch=batch)
    assert [shared.lines(rank, "step") for rank in range(world)] == expected, shared.errors(1)
    assert all(shared.ended(rank) for rank in range(world))
    await_nothing_but(before)


def test_ranks_of_torchrun_find_each_other(job: Any) -> None:
    shared = job(2)
    for rank in range(2):
        environment = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"}
        shared.start(rank, environment={**environment, "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": shared.name})
    shared.wait()
    assert [shared.lines(rank, "step") for rank in range(2)] == alone(job, 2), shared.errors(1)


def test_readers_that_are_killed_are_started_again_and_no_rank_misses_a_step(job: Any) -> None:
    shared = job(3, pause=0.002, epochs=8)
    for rank in range(3):
        shared.start(rank)
    killed = set()
    for steps in (5, 40, 80):
        for rank in range(3):
            shared.await_steps(rank, steps)
        killed.add(shared.reader())
        os.kill(shared.reader(), signal.SIGKILL)
    shared.wait()
    assert len(killed) == 3
    assert [shared.lines(rank, "step") for rank in range(3)] == alone(job, 3, epochs=8), shared.errors(1)


@pytest.mark.parametrize("how", ["kill", "leave", "fail"])
def test_the_reader_outlives_the_rank_that_has_started_it(job: Any, how: str) -> None:
    shared = job(2, pause=0.002, epochs=4)
    shared.start(0, **{how: 8})
    reader = shared.reader()
    shared.start(1)
    shared.wait(0)
    os.kill(reader, 0)
    shared.wait()
    assert shared.lines(1, "step") == alone(job, 2, epochs=4)[1], shared.errors(1)
    assert ("as planned" in shared.errors(0)) == (how == "fail")


@pytest.fixture(scope="session")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of 64 KiB."""
    folder = tmp_path_factory.mktemp("wide")
    rows = [bytes([row % 251]) * (64 << 10) for row in range(512)]
    pq.write_table(pa.table({"wide": pa.array(rows, pa.binary())}), folder / "a.parquet", row_group_size=64)
    rowdex.build(folder / "a.parquet", folder / "a.rdx")
    return str(folder / "a.rdx")


@pytest.mark.parametrize(
    ("resource", "words"), [("files", "raise the number of files"), ("memory", "may have no more memory")]
)
def test_a_rank_that_runs_out_of_files_or_memory_is_told_so_and_the_other_one_goes_on(
    job: Any, wide: str, resource: str, words: str
) -> None:
    # Batches of 8 MiB.
    options = {"index": wide, "batch": 128, "memory": 64 << 20, "output": "arrow", "drift": 2, "epochs": 3}
    shared = job(2, **options)
    shared.start(0)
    shared.reader()
    shared.start(1, limited=3, resource=resource)
    shared.wait()
    (error,) = shared.lines(1, "error")
    assert words in error and not shared.ended(1), error
    assert len(shared.lines(1, "step")) < 6
    expected = alone(job, 2, **options)
    assert shared.lines(0, "step") == expected[0] and shared.ended(0), shared.errors(0)
    shared.start(1, state=shared.lines(1, "step")[-1].split()[-1])
    shared.wait()
    assert shared.lines(1, "step") == expected[1], shared.errors(1)


def test_a_rank_that_is_stopped_holds_the_others_up_and_nothing_is_lost(job: Any) -> None:
    shared = job(2, epochs=6, batch=4)
    for rank in range(2):
        shared.start(rank)
    shared.await_steps(1, 20)
    shared.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    ahead = len(shared.lines(0, "step")) - len(shared.lines(1, "step"))
    time.sleep(0.5)
    assert ahead <= 32 + 16 + 16 and shared.processes[0].poll() is None
    shared.processes[1].send_signal(signal.SIGCONT)
    shared.wait()
    assert [shared.lines(rank, "step") for rank in range(2)] == alone(job, 2, epochs=6, batch=4), shared.errors(0)


def test_a_forked_child_is_told_to_make_its_own_and_nobody_waits_for_it(job: Any) -> None:
    shared = job(2, pause=0.002)
    shared.start(0, fork=4, kill=9)
    shared.reader()
    shared.start(1)
    # The child has the sockets of its parent, and lives on.
    shared.wait()
    deadline = time.monotonic() + WATCHDOG
    while not shared.lines(0, "child"):
        assert time.monotonic() < deadline, shared.errors(0)
        time.sleep(0.01)
    (child,) = shared.lines(0, "child")
    assert "forked" in child and "make a loader in the forked process" in child
    os.kill(int(child.split()[0]), 0)
    shared.start(0, state=shared.lines(0, "step")[-1].split()[-1])
    shared.wait()
    assert [shared.lines(rank, "step") for rank in range(2)] == alone(job, 2), shared.errors(1)


def test_nobody_waits_for_a_rank_that_has_closed_its_loader_because_of_its_child(job: Any) -> None:
    shared = job(2, pause=0.002)
    shared.start(0, fork=4, close=8)
    shared.start(1)
    shared.wait(1)
    assert shared.lines(1, "step") == alone(job, 2)[1], shared.errors(1)
    assert shared.lines(0, "child") and "closed" in shared.note(0).read_text()
    assert shared.processes[0].poll() is None


def test_signal_handlers_run_while_a_batch_is_waited_for_and_the_loader_goes_on(index: str) -> None:
    class Late(BaseException):
        pass

    def handler(*_: Any) -> None:
        raise Late

    dataset = rowdex.Dataset(index, columns=["id"])
    shared = rowdex.Share(name="it", job=f"signals-{os.getpid()}", ranks=2)
    ranks = [
        rowdex.Loader(dataset, batch_size=100, num_replicas=2, rank=rank, output="numpy", share=shared)
        for rank in range(2)
    ]
    assert ranks[0].stats["rows"] == 0  # it is made, and has begun nothing
    before = signal.signal(signal.SIGALRM, handler)
    try:
        for _ in range(2):
            signal.setitimer(signal.ITIMER_REAL, 1)
            with pytest.raises(Late):
                next(iter(ranks[0]))  # for which the other rank is missing
    finally:
        signal.signal(signal.SIGALRM, before)
    alone = rowdex.Loader(dataset, batch_size=100, num_replicas=2, rank=0, output="numpy")
    for epoch in range(2):
        other = threading.Thread(target=lambda: [None for _ in ranks[1]])
        other.start()
        assert ranks[0].epoch == alone.epoch == epoch
        assert [batch["id"].tolist() for batch in ranks[0]] == [batch["id"].tolist() for batch in alone]
        other.join()
    for loader in (*ranks, alone):
        loader.close()


def test_workers_of_all_ranks_share_a_reader_and_serve_what_they_would_alone(job: Any, index: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    before = addresses()
    cases = [("persistent", "fork", True), ("others each epoch", "fork", False), ("iterable", "forkserver", True)]
    shared = job(2, epochs=3, cases=cases)
    for rank in range(2):
        shared.start(rank, program=WORKERS)
    shared.wait()
    for rank in range(2):
        sampler = rowdex.DistributedSampler(rowdex.Dataset(index), num_replicas=2, batch_size=20, seed=7, rank=rank)
        epochs = [[json.dumps(batch.row_ids) for batch in sampler.batches()] for _ in range(3)]
        rows = [f"{epoch} {step} {ids}" for epoch, batches in enumerate(epochs) for step, ids in enumerate(batches)]
        expected = [f"{name} {batch}" for name, *_ in cases for batch in rows]
        assert shared.lines(rank, "step") == expected and shared.ended(rank), shared.errors(rank)
    await_nothing_but(before)


def test_a_dataset_of_workers_takes_the_options_of_a_shared_reader(index: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    import rowdex.torch

    with pytest.raises(ValueError, match="share='rack': use 'machine', a rowdex.Share, or None"):
        rowdex.torch.Dataset(index, share="rack")

    def first(memory: str) -> Any:
        share = rowdex.Share(job=f"test {os.getpid()}", name="one", ranks=1)
        own = rowdex.torch.Dataset(index, memory=memory, share=share)
        batches = rowdex.torch.BatchSampler(own, 16, num_replicas=1, rank=0)
        return own, own.__getitems__(next(iter(batches))).batch.row_ids

    kept, rows = first("1MiB")
    assert len(rows) == 16
    # So it is shared indeed.
    with pytest.raises(rowdex.Error, match="its memory is 2097152, and not 1048576"):
        first("2MiB")
    del kept


def test_arguments_that_make_no_sense_are_refused(index: str) -> None:
    dataset = rowdex.Dataset(index)

    def refused(kind: type[Exception], words: str, **options: Any) -> None:
        with pytest.raises(kind, match=words):
            len(rowdex.Loader(dataset, batch_size=8, rank=0, num_replicas=2, **options))

    refused(ValueError, "use 'machine'", share="rack")
    refused(TypeError, r"share_drift: Loader has no such option; write share=rowdex.Share\(drift=…\)", share_drift=3)
    with pytest.raises(ValueError, match="ranks of a Share is 0: use 1 or more"):
        rowdex.Share(ranks=0)
    with pytest.raises(TypeError, match="give the words of a command line"):
        rowdex.Share(program="rowdex")
    share = rowdex.Share(job=f"test {uuid.uuid4()}", ranks=1, program=["/no/such/program"])
    with pytest.raises(rowdex.Error, match="cannot start the reader that ranks share, /no/such/program"):
        next(iter(rowdex.Loader(dataset, batch_size=8, rank=0, num_replicas=1, share=share)))
    with pytest.raises(ValueError, match="a name of a Share with a NUL"):
        rowdex.Share(name="a\0b")
    refused(rowdex.Error, "no launcher has named the job.*give `job` of the share", share=rowdex.Share(ranks=2))


def pipes() -> set[str]:
    """Those that this process has open."""
    opened = pathlib.Path("/proc/self/fd").iterdir()
    return {target for file in opened if (target := os.path.realpath(file)).split("/")[-1].startswith("pipe:")}


def test_a_rank_alone_needs_no_launcher_and_keeps_nothing_of_a_reader_that_ends_later(index: str) -> None:
    before = pipes()
    with rowdex.Loader(
        rowdex.Dataset(index), batch_size=8, num_replicas=1, rank=0, share="machine", output="python"
    ) as loader:
        assert sorted(row for batch in loader for row in batch["id"]) == list(range(ROWS))
        assert pipes() - before, "what the reader says"
    assert pipes() == before


def test_one_rank_alone_has_a_state_and_stats_as_without(index: str) -> None:
    dataset = rowdex.Dataset(index)

    def loader(**options: Any) -> rowdex.Loader:
        return rowdex.Loader(dataset, batch_size=16, seed=3, num_replicas=1, rank=0, output="python", **options)

    name = f"test {uuid.uuid4()}"
    with loader() as one, loader(share=rowdex.Share(job=name, ranks=1)) as shared:
        assert len(shared) == len(one)
        for step, (a, b) in enumerate(zip(one, shared)):
            assert a == b and one.state_dict() == shared.state_dict()
            if step == 30:
                break
        assert shared.stats.decodes > 0 and shared.stats.drift == 0 and shared.stats.rows >= 31 * 16
        state = shared.state_dict()
        shared.close()
        assert shared.state_dict() == state
        with loader(share=rowdex.Share(job=name + "x", ranks=1)) as other:
            with loader() as again:
                other.load_state_dict(state)
                again.load_state_dict(state)
                assert list(other) == list(again)
        # What is left of the epoch is not served by another iteration.
        assert list(shared) == list(one)
        shared.set_epoch(5)
        one.set_epoch(5)
        assert list(shared) == list(one)
    assert not any(thread.startswith("rowdex-share") for thread in names_in(pathlib.Path("/proc/self/task")))


def names_in(tasks: pathlib.Path) -> list[str]:
    """The names of the threads of a process, in /proc."""
    names = []
    for path in tasks.glob("*/comm"):
        # Some end meanwhile.
        with contextlib.suppress(OSError):
            names.append(path.read_text())
    return names
