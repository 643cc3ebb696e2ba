"""Hugging Face Accelerate over rowdex, by two ranks and more."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import ROWS
from .jobs import Jobs
from .need import need
from .page import script

need("torch", "accelerate")

STEPS = 79
# Row groups of the five files.
GROUPS = 8 + 7 + 5 + 2 + 1


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, unequal: pathlib.Path) -> Iterator[Jobs]:
    jobs = Jobs("accelerate_jobs.py", tmp_path_factory.mktemp("accelerate"), unequal)
    yield jobs
    jobs.close()


INDEX = "data/train.rdx"


def check_epochs(ranks: list[Any], epochs: int) -> None:
    """That the epochs are the plain loader's, equal in steps, whole, and shuffled anew."""
    for rank in ranks:
        assert rank["found"] == rank["plain"]
        assert [len(epoch) for epoch in rank["found"]] == [STEPS] * epochs
        assert len({str(epoch) for epoch in rank["found"]}) == epochs
    for epoch in range(epochs):
        served = collections.Counter(row for rank in ranks for batch in rank["found"][epoch] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) == ROWS + 1


@pytest.mark.parametrize(
    "kind, options",
    [
        ("loader", {}),
        ("loader", {"dispatch_batches": True, "split_batches": True}),
        ("global", {"even_batches": True}),
        ("global", {"even_batches": False, "workers": 2}),
        ("global", {"split_batches": True}),
        ("global", {"dispatch_batches": True}),
        ("global", {"split_batches": True, "even_batches": False, "use_seedable_sampler": True}),
    ],
)
def test_prepared_loaders_serve_the_batches_of_the_plain_one(jobs: Jobs, kind: str, options: dict[str, Any]) -> None:
    ranks = jobs.run("epochs", index=INDEX, kind=kind, number=3, **options)
    check_epochs(ranks, 3)
    assert all(rank["len"] == STEPS for rank in ranks)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_nobody_splits_for_one_rank_are_its_own(jobs: Jobs, workers: int) -> None:
    case = {"index": INDEX, "kind": "global", "number": 2, "split_batches": True, "workers": workers}
    (rank,) = jobs.run("epochs", world=1, **case)
    for epoch in rank["found"]:
        assert sorted(row for batch in epoch for row in batch) == list(range(ROWS))


def test_steps_of_a_loader_that_go_to_workers_are_an_error(jobs: Jobs) -> None:
    (error,) = jobs.errors("epochs", world=1, index=INDEX, kind="steps", number=1, workers=1)
    assert "a rowdex.Loader serves its steps in its own process: use num_workers=0" in error


def test_a_global_sampler_reads_ahead_as_that_of_one_rank_does(jobs: Jobs) -> None:
    for kind in ("loader", "global"):
        for rank in jobs.run("epochs", index=INDEX, kind=kind, number=2):
            # Once for each epoch, and once more to begin with.
            assert rank["decodes"] <= 3 * GROUPS, kind


def test_what_would_be_sharded_twice_is_an_error_that_says_what_to_write(jobs: Jobs) -> None:
    kinds = ["batches", "samples", "iterable", "steps"]
    for rank in jobs.run("refused", index=INDEX, kinds=kinds):
        assert [len(rank[dispatch]) for dispatch in ("None", "True", "False")] == [4, 4, 4]
        for error in [error for errors in rank.values() for error in errors]:
            assert error.startswith("RuntimeError") and "part of its part" in error, error
            assert "rowdex.accelerate.Loader" in error and "GlobalBatchSampler" in error


def test_a_sampler_of_another_dataset_is_refused_too(jobs: Jobs) -> None:
    for error in jobs.run("refused_around_another_dataset", index=INDEX):
        assert error.startswith("RuntimeError") and "part of its part" in error, error


def test_what_is_dispatched_with_a_state_of_its_own_is_refused(jobs: Jobs) -> None:
    need("torchdata")
    for errors in jobs.run("dispatched_with_a_state", index=INDEX):
        assert len(errors) == 2 and all("part of its part" in error for error in errors), errors


def test_an_epoch_that_is_not_that_of_the_state_is_an_error(jobs: Jobs, tmp_path: pathlib.Path) -> None:
    for error in jobs.run("forgotten_epoch", index=INDEX, folder=str(tmp_path)):
        assert error.startswith("StateError") and "call set_epoch(1) of the prepared loader" in error


def test_batches_that_a_state_has_skipped_are_not_skipped_again(jobs: Jobs, tmp_path: pathlib.Path) -> None:
    for error in jobs.run("skips_twice", index=INDEX, folder=str(tmp_path)):
        assert error.startswith("RuntimeError") and "leave skip_first_batches() out after load_state()" in error


def test_a_global_sampler_that_is_not_dealt_as_it_was_told_is_an_error(jobs: Jobs) -> None:
    for split, unprepared, last_step in jobs.run("misused", index=INDEX):
        assert split.startswith("RuntimeError") and "make it with the split_batches" in split
        assert unprepared.startswith("RuntimeError") and "no framework shards them" in unprepared
        assert last_step.startswith("ValueError") and "use rowdex.accelerate.Loader" in last_step


@pytest.mark.parametrize("world", [1, 3, 4])
def test_what_a_state_has_left_is_gathered_once_by_any_world(jobs: Jobs, tmp_path: pathlib.Path, world: int) -> None:
    # A number of rows that no step of all ranks divides.
    ranks = jobs.run("goes_on", index=INDEX, folder=str(tmp_path), stop=31)
    begun = {row for rank in ranks for batch in rank["plain"][1][:31] for row in batch}
    for found in jobs.run("gathers_the_rest", world=world, index=INDEX, folder=str(tmp_path)):
        assert sorted(found) == sorted(set(range(ROWS)) - begun)


def test_substitutes_are_refused_where_ranks_would_read_rows_of_others_without(jobs: Jobs) -> None:
    assert jobs.run("substitutes", world=1, index=INDEX) == [[False, True, False, False]]


def test_a_global_sampler_deals_what_the_state_of_another_world_has_left(jobs: Jobs) -> None:
    (found,) = jobs.run("deals_the_rest", world=1, index=INDEX)
    served = collections.Counter(found["begun"] + found["rest"])
    assert set(served) == set(range(ROWS)) and sum(served.values()) - ROWS < 3


@pytest.mark.parametrize("kind", ["loader", "global", "plain"])
def test_the_first_batches_are_skipped_and_the_next_epoch_is_whole(jobs: Jobs, kind: str) -> None:
    for rank in jobs.run("skips", index=INDEX, kind=kind, number=50):
        first, second, third = rank["plain"]
        assert rank["found"] == [first, second[50:], third] and rank["len"] == STEPS - 50
        assert rank["ends"] == [False] * (STEPS - 51) + [kind != "plain"]


@pytest.mark.parametrize("kind", ["loader", "global"])
def test_gradients_are_stepped_with_at_the_end_of_an_epoch(jobs: Jobs, kind: str) -> None:
    for stepped in jobs.run("accumulates", index=INDEX, kind=kind):
        assert stepped == [10, 20, 30, 40, 50, 60, 70, 79]


@pytest.mark.parametrize("kind", ["loader", "global"])
@pytest.mark.parametrize("world", [2, 5])
def test_gathered_metrics_have_every_row_once(jobs: Jobs, kind: str, world: int) -> None:
    # With five ranks three rows are served twice, by three ranks.
    for found in jobs.run("metrics", world=world, index=INDEX, kind=kind):
        assert sorted(found) == list(range(ROWS))


def test_epochs_that_are_counted_from_0_again_after_a_state_was_loaded_are_an_error(jobs: Jobs) -> None:
    (error,) = jobs.errors("restart", world=1, index=INDEX)
    assert error.startswith("ValueError") and "call set_epoch(2)" in error and "rowdex.accelerate.Loader" in error


def test_a_loader_made_for_another_world_than_there_is_says_so_at_its_first_step(jobs: Jobs) -> None:
    for error in jobs.errors("late_group", group=False, world=2, index=INDEX):
        assert error.startswith("RuntimeError") and "rank 0 of 1" in error and "of 2" in error
    assert jobs.run("world_changes", world=1, group=False, index=INDEX)


def test_the_program_of_the_manual_runs(jobs: Jobs) -> None:
    for names in jobs.script(script("frameworks/accelerate")):
        assert names["steps"] == 2 * STEPS
