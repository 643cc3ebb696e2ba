"""torchdata over rowdex, by two ranks."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest


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


def test_an_epoch_after_one_that_was_left_is_whole(jobs: Jobs) -> None:
    for rank in jobs.run("leaves_an_epoch", index="data/train.rdx", size=64):
        assert rank["found"] == [rank["plain"][0][:3], *rank["plain"][1:]]


@pytest.mark.parametrize("kind", ["batches", "samples", "iterable"])
def test_a_state_of_another_number_of_workers_says_so(jobs: Jobs, kind: str) -> None:
    for error in jobs.run("another_number_of_workers", index="data/train.rdx", kind=kind):
        assert "a state of 1 workers, where now there are 2" in error and "(num_workers=1)" in error


def test_a_state_within_an_epoch_that_was_resumed_counts_from_there(jobs: Jobs) -> None:
    for rank in jobs.run("resumed_twice", index="data/train.rdx"):
        assert rank["found"] == rank["plain"]


def test_the_program_of_the_manual_runs(jobs: Jobs) -> None:
    for names in jobs.script(script("frameworks/pytorch")):
        assert (names["rest"], names["whole"]) == (STEPS - 10, STEPS)
