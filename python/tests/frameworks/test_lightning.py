"""Lightning and Fabric over rowdex, by two ranks and more."""

from __future__ import annotations

import collections
import itertools
import pathlib
import pickle
import sys
from collections.abc import Iterator

import pytest

from .conftest import ROWS
from .jobs import Jobs
from .need import need
from .page import script

need("torch", "lightning")

STEPS = 79
INDEX = "data/train.rdx"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, unequal: pathlib.Path) -> Iterator[Jobs]:
    jobs = Jobs("lightning_jobs.py", tmp_path_factory.mktemp("lightning"), unequal)
    yield jobs
    jobs.close()


@pytest.mark.parametrize(
    "kind, injects",
    [
        ("loader", True), ("loader", False), ("module", True), ("samples", True), ("samples", False),
        ("iterable", True), ("batches", False),
    ],
)  # fmt: skip
def test_a_trainer_takes_the_batches_of_the_plain_loader(jobs: Jobs, kind: str, injects: bool) -> None:
    ranks = jobs.run("fits", index=INDEX, kind=kind, epochs=2, injects=injects)
    for rank in ranks:
        assert rank["found"] == rank["plain"] and rank["lengths"] == [STEPS]
        assert rank["found"][0] != rank["found"][1]
    for epoch in range(2):
        served = collections.Counter(row for rank in ranks for batch in rank["found"][epoch] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) == ROWS + 1


def test_a_batch_sampler_that_lightning_would_replace_is_an_error(jobs: Jobs) -> None:
    for error in jobs.errors("fits", index=INDEX, kind="batches", epochs=1, injects=True):
        assert error.startswith("TypeError") and "use_distributed_sampler=False" in error


@pytest.mark.parametrize(
    "kind, steps, when",
    [
        ("loader", 30, "within"), ("loader", STEPS + 30, "within"), ("loader", STEPS, "end"),
        ("module", STEPS + 30, "within"), ("module", STEPS, "within"), ("module", STEPS, "end"),
        ("module", 30, "after"),
    ],
)  # fmt: skip
def test_a_checkpoint_goes_on_with_the_next_batch_and_later_epochs_are_whole(
    jobs: Jobs, tmp_path: pathlib.Path, kind: str, steps: int, when: str
) -> None:
    before = jobs.run("stops", index=INDEX, kind=kind, folder=str(tmp_path), steps=steps, when=when)
    after = jobs.run("goes_on", index=INDEX, kind=kind, folder=str(tmp_path), epochs=3)
    for begun, rest in zip(before, after):
        whole = [batch for epoch in rest["plain"] for batch in epoch]
        found = [batch for epoch in rest["found"] for batch in epoch]
        # Lightning counts as an epoch what was begun when the run had ended.
        assert begun["found"] == whole[:steps] and found == whole[steps:][: len(found)]
        assert len(found) == 3 * STEPS - steps - (STEPS if when == "after" else 0)
        assert rest["lengths"] == [STEPS]


@pytest.mark.parametrize("kind", ["batches", "samples"])
def test_a_data_loader_goes_on_from_the_end_of_an_epoch(jobs: Jobs, tmp_path: pathlib.Path, kind: str) -> None:
    options = {"index": INDEX, "kind": kind, "folder": str(tmp_path), "injects": False}
    jobs.run("stops", **options, steps=STEPS, when="end")
    for rank in jobs.run("goes_on", **options, epochs=3):
        assert rank["found"] == rank["plain"][1:]


def test_the_last_step_of_an_epoch_is_not_its_end_where_epochs_have_more_steps_now(
    jobs: Jobs, tmp_path: pathlib.Path
) -> None:
    options = {"index": INDEX, "kind": "module", "folder": str(tmp_path)}
    jobs.run("stops", **options, steps=STEPS, when="within")
    (rank,) = jobs.run("goes_on", **options, world=1, epochs=3)
    assert [sorted(itertools.chain.from_iterable(epoch)) for epoch in rank["found"]] == [list(range(ROWS))] * 2


@pytest.mark.parametrize("kind", ["batches", "samples", "iterable"])
def test_a_data_loader_goes_on_from_a_place_that_is_loaded_before(
    jobs: Jobs, tmp_path: pathlib.Path, kind: str
) -> None:
    jobs.run("stops", index=INDEX, kind=kind, folder=str(tmp_path), injects=False, steps=30, when="within")
    # A sampler of rows has counted 64 of them in each step.
    step = 30 * (64 if kind == "samples" else 1) - 1
    for rank in jobs.run("goes_on_as_told", index=INDEX, kind=kind, folder=str(tmp_path), epochs=2, step=step):
        assert rank["found"] == [rank["plain"][0][30:], rank["plain"][1]]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_step_that_was_under_way_when_a_checkpoint_was_saved_is_taken_again(jobs: Jobs, workers: int) -> None:
    (rank,) = jobs.run("fails_within_a_step", world=1, index=INDEX, workers=workers)
    assert rank["found"] == rank["plain"]


def test_what_does_not_go_with_samples_is_refused(jobs: Jobs) -> None:
    ((columns, memory, dataset),) = jobs.run("misused", world=1, index=INDEX)
    assert "with workers, give a function of samples" in columns
    assert memory.startswith("memory: ") and "give these to the rowdex.torch.Dataset" in memory
    assert "give the DataModule a rowdex.torch.Dataset" in dataset


def test_evaluation_serves_every_row_once_with_equal_steps(jobs: Jobs) -> None:
    ranks = jobs.run("evaluates", index=INDEX)
    for name, steps in [("during", STEPS), ("validated", STEPS), ("predicted", 51)]:
        assert [len(rank[name]) for rank in ranks] == [steps] * 2
        assert sorted(row for rank in ranks for batch in rank[name] for row in batch) == list(range(ROWS))


def test_evaluation_has_the_ranks_of_training_and_no_row_of_buckets_twice(jobs: Jobs) -> None:
    (found,) = jobs.run("evaluates_as_it_trains", world=1, index=INDEX)
    assert found == [[4, 3, 2, "strided"], list(range(101))]


def test_ranks_that_hold_parts_of_one_model_get_the_same_rows(jobs: Jobs) -> None:
    ranks = jobs.run("fits_in_parts", world=4, index=INDEX, parts=2)
    for name in ("found", "evaluated"):
        batches = [rank[name] for rank in ranks]
        assert batches[0] == batches[1] and batches[2] == batches[3]
        assert len(batches[0]) == len(batches[2]) == STEPS
        served = collections.Counter(row for rank in (0, 2) for batch in batches[rank] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) <= ROWS + 1


def test_a_module_goes_to_other_processes_as_it_is(unequal: pathlib.Path) -> None:
    import rowdex.lightning

    module = rowdex.lightning.DataModule(rowdex.Dataset(unequal / "train.rdx"), batch_size=64, seed=3)
    other = pickle.loads(pickle.dumps(module))
    assert next(iter(other.train_dataloader()))["id"].tolist() == next(iter(module.train_dataloader()))["id"].tolist()


def test_batches_to_overfit_are_the_same_ones_in_every_epoch(jobs: Jobs) -> None:
    ranks = jobs.run("overfits", index=INDEX)
    for rank in ranks:
        assert rank["found"] == [rank["plain"][0][:3]] * 3
        assert rank["evaluated"] == rank["evaluated"][:3] * 3
    assert not {row for batch in ranks[0]["found"][0] for row in batch} & {
        row for batch in ranks[1]["found"][0] for row in batch
    }


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("options", [{"limit_train_batches": 4}, {"overfit_batches": 4}, {}])
def test_epochs_that_lightning_ends_early_are_followed_by_the_next_ones_after_a_checkpoint(
    jobs: Jobs, tmp_path: pathlib.Path, options: dict[str, int], workers: int
) -> None:
    case = {"index": INDEX, "folder": str(tmp_path), "steps": 2 if options else 50, "workers": workers, **options}
    ((whole, *resumed),) = jobs.run("resumes_everywhere", world=1, **case)
    left = [batch for epoch in whole for batch in epoch]
    assert len(resumed) >= 6
    for name, epochs in resumed:
        step = int(name.split("=")[1].split("-")[0])
        assert [batch for epoch in epochs for batch in epoch] == left[step:], name


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux")
def test_ranks_share_the_readers_of_training_and_validation(jobs: Jobs) -> None:
    ranks = jobs.run("shares", index=INDEX)
    for rank in ranks:
        assert rank["found"] == rank["plain"]
        # Twice within each epoch.
        assert len(rank["evaluated"]) == 4 * STEPS
    for time in range(4):
        evaluated = [rank["evaluated"][time * STEPS : (time + 1) * STEPS] for rank in ranks]
        assert sorted(row for batches in evaluated for batch in batches for row in batch) == list(range(ROWS))


def test_a_loader_made_before_lightning_starts_the_ranks_is_an_error_and_a_module_is_none(jobs: Jobs) -> None:
    (error,) = jobs.errors("launched_late", world=1, group=False, index=INDEX)
    assert "rank 0 of 1" in error and "rowdex.lightning.DataModule" in error, error
    assert jobs.run("launched_with_a_module", world=1, group=False, index=INDEX) == [[STEPS, STEPS]]


def test_fabric_takes_a_loader_and_goes_on_from_its_checkpoint(jobs: Jobs) -> None:
    for rank in jobs.run("fabric", index=INDEX, kind="fabric", stop=30):
        assert rank["found"] == rank["plain"] and rank["len"] == STEPS
    for rank in jobs.run("fabric", index=INDEX, kind="samples", stop=30):
        assert rank["found"] == [rank["plain"][0], rank["plain"][1][:30]]


def test_the_program_of_the_manual_runs(jobs: Jobs) -> None:
    for names in jobs.script(script("frameworks/lightning")):
        assert names["steps"] == 2 * STEPS
