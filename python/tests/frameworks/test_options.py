"""Options of frameworks where rowdex has the rows: what is honoured, and what is refused by its name."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .jobs import Jobs
from .need import need

need("torch", "accelerate", "transformers", "trl")

ROWS = 1003
KINDS = [
    "TrainingArguments", "AcceleratorConfig", "Trainer", "SFTConfig", "SFTTrainer",
]  # fmt: skip
WORLDS = [1, 2] if os.environ.get("ROWDEX_LONG") == "1" else [1]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """Rows of numbers, rows of 1 to 40 tokens with their text, and rows that are packed."""
    data = tmp_path_factory.mktemp("options")
    tokens = [[2 + (row + place) % 6 for place in range(1 + row % 40)] for row in range(200)]
    tables = {
        "train": {
            "id": pa.array(range(ROWS), pa.int64()),
            "x": pa.array([[row % 7, row % 5, 1.0] for row in range(ROWS)], pa.list_(pa.float32(), 3)),
            "y": pa.array([row % 5 for row in range(ROWS)], pa.int64()),
        },
        "tokens": {
            "id": pa.array(range(200), pa.int64()),
            "input_ids": pa.array(tokens, pa.list_(pa.int64())),
            "text": pa.array([" ".join(f"w{token}" for token in row) for row in tokens]),
        },
        "packed": {
            "input_ids": pa.array([[*row, *row] for row in tokens], pa.list_(pa.int64())),
            "seq_lengths": pa.array([[len(row)] * 2 for row in tokens], pa.list_(pa.int64())),
        },
    }
    for name, columns in tables.items():
        pq.write_table(pa.table(columns), data / f"{name}.parquet", row_group_size=100)
        lengths = ["input_ids"] if name == "tokens" else []
        rowdex.build(data / f"{name}.parquet", data / f"{name}.rdx", lengths=lengths)
    jobs = Jobs("options_jobs.py", tmp_path_factory.mktemp("jobs"), data)
    yield jobs
    jobs.close()


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_honoured_does_what_it_says(jobs: Jobs, kind: str, world: int) -> None:
    for rank in jobs.run("honoured", world=world, kind=kind):
        assert {name: error for name, error in rank.items() if error} == {}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_refused_by_its_name(jobs: Jobs, kind: str, world: int) -> None:
    for rank in jobs.run("refused", world=world, kind=kind):
        for name, errors in rank.items():
            assert errors and all(name in error for error in errors), (name, errors)


def test_the_error_about_a_column_of_text_has_two_lines_that_work(jobs: Jobs) -> None:
    (found,) = jobs.run("text_to_tokens", world=1)
    assert "none of the columns text is an argument of the model" in found["error"]
    assert found["found"] == {"collator": [12, 2], "map": [12, 2]}


def test_the_errors_about_the_packing_of_trl_have_words_that_work(jobs: Jobs) -> None:
    (found,) = jobs.run("packing_to_packs", world=1)
    assert [error.partition(" with")[0] for error in found] == [
        "ValueError: packing=True",
        "ValueError: eval_packing=True",
    ]


def test_a_trainer_that_would_not_use_the_loaders_is_an_error_when_its_class_is_made(jobs: Jobs) -> None:
    (found,) = jobs.run("misuses", world=1)
    assert "write class T(TrainerMixin, Trainer)" in found["swapped"] and found["swapped"].startswith("TypeError")
    assert "write class T(Mine, Own)" in found["derived"]
    assert "write class T(TrainerMixin, SFTTrainer)" in found["trl"]
    assert "DPOTrainer of TRL" in found["dpo"] and "datasets.Dataset" in found["dpo"]
    assert "skip_prepare_dataset" in found["bare"]
    assert "a Loader is no dataset" in found["loader"] and "rowdex.torch.Dataset" in found["loader"]
    assert found["samples"].startswith("TypeError: map: ") and "data_collator" in found["samples"]
