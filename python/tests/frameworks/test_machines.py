"""Four machines with two ranks each, which torchrun starts; the dataset is in a bucket of an S3 server on a fifth one.
``tools/frameworks.sh frameworks/test_machines.py -s`` shows the figures.
"""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .. import stores
from .machines import Program, connected, need_namespaces, wait_until
from .need import need

need("torch")

from .machines_program import BATCH_SIZE, STEPS_BETWEEN_CHECKPOINTS, WIDTH  # noqa: E402

pytestmark = pytest.mark.skipif(not os.environ.get("ROWDEX_MACHINES"), reason="ROWDEX_MACHINES=1 starts four machines")

PROGRAM = pathlib.Path(__file__).with_name("machines_program.py")
NODES = ["node0", "node1", "node2", "node3"]
# Small files, because this server computes a checksum of the whole object for each request. But none is smaller than
# 64 KiB: a build requests the last 64 KiB of each file, and the server fails for a smaller object.
SIZES = (*range(1_000, 1_195, 13), 607)
ROWS = sum(SIZES)


class Rank(NamedTuple):
    """What a rank has recorded: where it began, its steps, and its weights at the end."""

    start: dict[str, Any]
    steps: list[dict[str, Any]]
    weights: Any


class Cluster:
    """The machines, the server, and jobs."""

    def __init__(self, folder: pathlib.Path, ends: contextlib.ExitStack) -> None:
        self.folder = folder
        machines = connected([*NODES, "store"], folder, ends)
        self._nodes = [machines[name] for name in NODES]
        self._store = machines["store"]
        self._environment = {
            "AWS_ENDPOINT_URL": "http://store:8014", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": stores.KEY, "AWS_SECRET_ACCESS_KEY": stores.SECRET, "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        data = folder / "store/bucket/data"
        write_dataset(data)
        keys = ["--access-key", stores.KEY, "--secret-key", stores.SECRET]
        server = [stores.server_program(), "--host", "0.0.0.0", "--port", "8014", *keys, f"{folder}/store"]
        self._store.start("store.log", *server)
        # The build repeats its requests until the server listens.
        build = [sys.executable, "-m", "rowdex", "build", "s3://bucket/data/", "-o", "s3://bucket/train.rdx"]
        self._nodes[0].start("build.log", *build, **self._environment).wait()
        size = sum(file.stat().st_size for file in data.iterdir())
        print(f"\n{ROWS:,} rows in {len(SIZES)} files of {size:,} bytes in all")

    def run(
        self, records: str, machines: int, share: str = "", kill_after: int | None = None
    ) -> tuple[list[Rank], int]:
        """Runs a job on this number of machines. The last machine is killed when its last rank has recorded
        `kill_after` steps. Returns what the ranks have recorded, and the bytes that the store has sent.
        """
        folder, world = self.folder / records, 2 * machines
        folder.mkdir(exist_ok=True)
        before, began = self._traffic(), time.monotonic()
        programs = [self._start(folder, machines, number, share) for number in range(machines)]
        if kill_after is not None:
            last = folder / f"{world}-{world - 1}.jsonl"
            wait_until(lambda: programs[-1].has_ended() or last.exists() and len(lines(last)) > kill_after, last)
            programs[-1].kill()
        for program in programs:
            program.wait(succeeds=kill_after is None)
        seconds = time.monotonic() - began
        *received, sent = (now - earlier for now, earlier in zip(self._traffic(), before))
        ranks = [rank_of(folder / f"{world}-{rank}.jsonl") for rank in range(world)]
        counted = [0] * len(NODES)
        for rank in ranks:
            counted[NODES.index(rank.start["machine"])] += rank.steps[-1]["bytes_fetched"]
        print(f"{records}: {world} ranks, steps {[len(rank.steps) for rank in ranks]}, {seconds:.0f} s")
        print(f"  bytes: the store sent {sent}, machines received {received}, their ranks counted {counted}")
        assert all(map(int.__le__, counted, received)) and sum(counted) <= sent <= sum(received)
        if not share and kill_after is None:
            assert sent < 1.25 * sum(counted), "the counters miss what the store has sent"
        assert [rank.start["machine"] for rank in ranks] == sorted(NODES[:machines] * 2)
        return ranks, sent

    def _start(self, records: pathlib.Path, machines: int, number: int, share: str) -> Program:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--master-addr=node0", "--master-port=29500"]
        world = ["--nproc-per-node=2", f"--nnodes={machines}", f"--node-rank={number}"]
        command = [*torchrun, *world, str(PROGRAM), "s3://bucket/train.rdx", str(records)]
        log = f"{records.name}-{number}-of-{machines}.log"
        return self._nodes[number].start(log, *command, **self._environment, SHARE=share)

    def _traffic(self) -> list[int]:
        """Bytes that each of the four machines has received so far, and that the store has sent."""
        return [*(node.traffic("rx") for node in self._nodes), self._store.traffic("tx")]


def write_dataset(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    noise, first = np.random.default_rng(1), 0
    for number, rows in enumerate(SIZES):
        ids = np.arange(first, first + rows)
        x = pa.FixedSizeListArray.from_arrays(noise.random(rows * WIDTH, dtype=np.float32), WIDTH)
        table = pa.table({"id": ids, "x": x, "y": ids % 5})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=1_000, use_dictionary=False)
        first += rows


@pytest.fixture()
def cluster(tmp_path: pathlib.Path) -> Iterator[Cluster]:
    need_namespaces()
    with contextlib.ExitStack() as ends:
        yield Cluster(tmp_path, ends)


def lines(file: pathlib.Path) -> list[str]:
    return file.read_text().splitlines()


def rank_of(records: pathlib.Path) -> Rank:
    start, *steps = map(json.loads, lines(records))
    weights = steps.pop()["weights"] if "weights" in steps[-1] else None
    return Rank(start, steps, weights)


def rows_of(ranks: list[Rank], last_step: float = math.inf) -> tuple[collections.Counter[int], int]:
    """How often each row was served up to a step, and how many of these were marked as repeated."""
    steps = [step for rank in ranks for step in rank.steps if step["step"] <= last_step]
    return collections.Counter(row for step in steps for row in step["ids"]), sum(sum(s["repeated"]) for s in steps)


def check_end(ranks: list[Rank], rows: int) -> None:
    """All ranks have taken the number of steps that these rows need, and have the same weights."""
    steps = math.ceil(rows / (len(ranks) * BATCH_SIZE))
    assert [len(rank.steps) for rank in ranks] == [rank.start["steps_left"] for rank in ranks] == [steps] * len(ranks)
    assert ranks[0].weights is not None and all(rank.weights == ranks[0].weights for rank in ranks)


def test_an_epoch_on_four_machines_has_every_row_once(cluster: Cluster) -> None:
    ranks, sent = cluster.run("a loader for each rank", 4)
    check_end(ranks, ROWS)
    served, repeated = rows_of(ranks)
    assert set(served) == set(range(ROWS)) and served.total() - ROWS == repeated == -ROWS % 8

    sharing, sent_sharing = cluster.run("a reader for each machine", 4, share="machine")
    check_end(sharing, ROWS)
    for one, other in zip(ranks, sharing):
        assert [step["ids"] for step in one.steps] == [step["ids"] for step in other.steps]
    assert sent_sharing < 0.6 * sent, "a reader requests once what two loaders request"


def test_three_machines_resume_when_one_of_four_is_killed(cluster: Cluster) -> None:
    killed, _ = cluster.run("job", 4, kill_after=2 * STEPS_BETWEEN_CHECKPOINTS + 5)
    assert all(rank.weights is None for rank in killed)
    resumed, _ = cluster.run("job", 3)
    saved = {rank.start["steps_before"] for rank in resumed}
    assert len(saved) == 1 and 0 < (last_step := saved.pop()) < min(len(rank.steps) for rank in killed)
    rows_left = ROWS - 8 * BATCH_SIZE * last_step
    check_end(resumed, rows_left)

    before, after = rows_of(killed, last_step), rows_of(resumed)
    served, repeated = before[0] + after[0], before[1] + after[1]
    assert set(served) == set(range(ROWS)) and served.total() - ROWS == repeated == -rows_left % 6
    lost = rows_of(killed)[0].total() - before[0].total()
    print(f"  resumed after step {last_step}; of later steps {lost} rows were served and are served again")
