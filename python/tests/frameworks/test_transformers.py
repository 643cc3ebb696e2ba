"""The Trainer of Hugging Face over rowdex, by two ranks."""

from __future__ import annotations

import collections
import pathlib
import sys
from collections.abc import Iterator

import pytest

from .conftest import ROWS
from .jobs import Jobs
from .need import need
from .page import script

need("torch", "accelerate", "transformers")

STEPS = 79
INDEX = "data/train.rdx"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, unequal: pathlib.Path) -> Iterator[Jobs]:
    jobs = Jobs("transformers_jobs.py", tmp_path_factory.mktemp("transformers"), unequal)
    yield jobs
    jobs.close()


@pytest.mark.parametrize("kind", ["loader", "samples"])
def test_a_trainer_takes_the_batches_of_the_plain_loader_and_goes_on_exactly(
    jobs: Jobs, tmp_path: pathlib.Path, kind: str
) -> None:
    saves = {"save_strategy": "steps", "save_steps": 79}
    ranks = jobs.run("trains", index=INDEX, kind=kind, folder=str(tmp_path), epochs=2, **saves)
    for rank in ranks:
        assert rank["found"] == [batch for epoch in rank["plain"] for batch in epoch]
        assert rank["plain"][0] != rank["plain"][1]
    for epoch in (slice(0, STEPS), slice(STEPS, None)):
        served = collections.Counter(row for rank in ranks for batch in rank["found"][epoch] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) == ROWS + 1
    # From the end of an epoch.
    for rank in jobs.run("trains", index=INDEX, kind=kind, folder=str(tmp_path), epochs=2, resume=STEPS):
        assert rank["found"] == rank["plain"][1]


@pytest.mark.parametrize("kind", ["loader", "samples"])
def test_a_trainer_goes_on_within_the_second_epoch_and_nowhere_else(
    jobs: Jobs, tmp_path: pathlib.Path, kind: str
) -> None:
    options = {"index": INDEX, "kind": kind, "folder": str(tmp_path), "epochs": 2, "gradient_accumulation_steps": 4}
    # 20 steps of the optimizer in an epoch, and 5 more.
    jobs.run("trains", **options, save_strategy="steps", save_steps=25)
    for rank in jobs.run("trains", **options, resume=25):
        assert rank["found"] == rank["plain"][1][20:]
    for error in jobs.errors("trains", **options, resume=25, size=32):
        assert error.startswith("ValueError") and "as many rows per step" in error, error


@pytest.mark.parametrize("kind", ["loader", "samples"])
@pytest.mark.parametrize("world", [2, 5])
def test_predictions_are_of_every_row_in_order(jobs: Jobs, kind: str, world: int) -> None:
    for rows in jobs.run("evaluates", world=world, index=INDEX, kind=kind):
        assert rows == list(range(ROWS))


def test_options_of_training_change_no_prediction(jobs: Jobs) -> None:
    options = {"drop_last": "batch", "order": "blocks(2),contiguous"}
    for rows in jobs.run("evaluates", index=INDEX, kind="loader", **options):
        assert rows == list(range(ROWS))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux")
def test_ranks_share_the_readers_of_training_and_evaluation_under_one_name(jobs: Jobs) -> None:
    ranks = jobs.run("shares", index=INDEX)
    steps = -(-ROWS // 200)
    for rank in ranks:
        assert rank["found"] == rank["plain"] and len(rank["evaluated"]) >= 2 * steps
    for time in range(2):
        part = slice(time * steps, (time + 1) * steps)
        served = collections.Counter(row for rank in ranks for batch in rank["evaluated"][part] for row in batch)
        assert set(served) == set(range(ROWS)) and sum(served.values()) == ROWS + 1


def test_a_dataset_without_the_mixin_is_trained_on_and_a_sharded_one_is_refused(
    jobs: Jobs, tmp_path: pathlib.Path
) -> None:
    ranks = jobs.run("trains", index=INDEX, kind="stock", folder=str(tmp_path), epochs=1)
    assert {row for rank in ranks for batch in rank["found"] for row in batch} == set(range(ROWS))
    for error in jobs.errors("iterable", index=INDEX):
        assert error.startswith("RuntimeError") and "rowdex.accelerate.Loader" in error, error


def test_trl_trains_on_tokens(jobs: Jobs, tmp_path: pathlib.Path) -> None:
    need("trl")
    assert jobs.run("supervised", index=INDEX, folder=str(tmp_path)) == [STEPS] * 2


def test_the_program_of_the_manual_runs(jobs: Jobs) -> None:
    for names in jobs.script(script("frameworks/transformers")):
        assert names["steps"] == 2 * STEPS
