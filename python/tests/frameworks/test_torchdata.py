"""torchdata over rowdex, by two ranks."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator

import pytest

from .conftest import ROWS
from .jobs import Jobs
from .need import need
from .page import script

need("torch", "torchdata.stateful_dataloader")

STEPS = 79


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, unequal: pathlib.Path) -> Iterator[Jobs]:
    jobs = Jobs("torchdata_jobs.py", tmp_path_factory.mktemp("torchdata"), unequal)
    yield jobs
    jobs.close()


@pytest.mark.parametrize("kind, workers", [("batches", 0), ("batches", 2), ("samples", 0), ("samples", 1)])
def test_ranks_go_on_in_mid_epoch_with_the_batches_of_the_plain_loader(
    jobs: Jobs, unequal: pathlib.Path, kind: str, workers: int
) -> None:
    index = str(unequal / "train.rdx")
    ranks = jobs.run("goes_on", index=index, size=64, kind=kind, workers=workers, stop=30)
    for rank in ranks:
        assert rank["found"] == rank["plain"]
        assert [len(epoch) for epoch in rank["found"]] == [STEPS] * 3
        assert rank["found"][0] != rank["found"][1] != rank["found"][2]
    for epoch in range(3):
        served = collections.Counter(row for rank in ranks for batch in rank["found"][epoch] for row in batch)
        # One row is served twice, so that both ranks have as many.
        assert set(served) == set(range(ROWS)) and sum(served.values()) == ROWS + 1


@pytest.mark.parametrize("threads", [False, True])
def test_nodes_go_on_in_mid_epoch_with_the_batches_of_the_plain_loader(jobs: Jobs, threads: bool) -> None:
    for rank in jobs.run("nodes", index="data/train.rdx", size=64, stop=30, threads=threads):
        assert rank["found"] == rank["plain"] and [len(epoch) for epoch in rank["found"]] == [STEPS] * 3


def test_an_epoch_after_one_that_was_left_is_whole(jobs: Jobs) -> None:
    for rank in jobs.run("leaves_an_epoch", index="data/train.rdx", size=64):
        assert rank["found"] == [rank["plain"][0][:3], *rank["plain"][1:]]


def test_a_distributed_checkpoint_has_the_place_of_a_loader(jobs: Jobs, tmp_path: pathlib.Path) -> None:
    options = {"index": "data/train.rdx", "size": 64, "folder": str(tmp_path)}
    before = jobs.run("checkpoints", **options, stop=30)
    for world in (2, 3):
        after = jobs.run("goes_on_from_a_checkpoint", world=world, **options)
        # Which run, and where: what was dealt to how many ranks differs.
        (was,), (now,) = ({tuple(rank["state"]["state"].split(":")[1:4]) for rank in part} for part in (before, after))
        assert now == was
        served = collections.Counter(row for rank in before for batch in rank["begun"] for row in batch)
        served.update(row for rank in after for batch in rank["rest"] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) - ROWS < world
        assert len({len(rank["next"]) for rank in after}) == 1


@pytest.mark.parametrize("kind", ["batches", "samples", "iterable"])
def test_a_state_of_another_number_of_workers_says_so(jobs: Jobs, kind: str) -> None:
    for error in jobs.run("another_number_of_workers", index="data/train.rdx", kind=kind):
        assert "a state of 1 workers, where now there are 2" in error and "(num_workers=1)" in error


def test_a_state_within_an_epoch_that_was_resumed_counts_from_there(jobs: Jobs) -> None:
    for rank in jobs.run("resumed_twice", index="data/train.rdx"):
        assert rank["found"] == rank["plain"]


def test_the_program_of_the_manual_runs(jobs: Jobs) -> None:
    for names in jobs.script(script("torchdata")):
        assert (names["rest"], names["whole"]) == (STEPS - 10, STEPS)
