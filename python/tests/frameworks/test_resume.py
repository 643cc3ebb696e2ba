"""Every integration is killed in mid-epoch, and goes on from the checkpoint of its framework.

With the same ranks and batch, with fewer and more ranks, with another batch, and with as many rows in each step by
other ranks: either each row, or each token of packs, is served once in the epoch and in the next one, or there is the
error that is expected.
``ROWDEX_LONG=1`` runs all of it; otherwise each integration goes on in one of these ways.
"""

from __future__ import annotations

import ast
import collections
import itertools
import json
import os
import pathlib
import re
import shutil
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from ..conftest import REPOSITORY
from .conftest import ROWS
from .jobs import Jobs
from .need import need

need("torch", "accelerate", "grain", "jax", "lightning", "torchdata.stateful_dataloader", "transformers")

SIZE, STEPS, STOP, PACKED_ROWS = 128, 40, 13, 1000
RUNS = {"same": (2, SIZE), "fewer": (1, SIZE), "more": (3, SIZE), "batch": (2, 96), "regrouped": (1, 2 * SIZE)}
RUNS["spread"] = (4, SIZE // 2)
OTHERS = ("fewer", "more", "batch")
EXACT: dict[str, str] = {}

OTHER_STATE = dict.fromkeys(
    [*OTHERS, "regrouped", "spread"], "the state is of 2 ranks with 128 rows per step each, and now"
)
OTHER_ROWS = dict.fromkeys(OTHERS, "as many rows per step of all ranks together as before")
EQUAL = dict.fromkeys(OTHERS, "")
"""A framework counts the steps and cannot be seen: as many rows in each step of all ranks are needed."""

INTEGRATIONS = {
    "own_loop": EXACT,
    "batches": EXACT,
    "samples": EXACT,
    "iterable": EXACT,
    "nodes": EXACT,
    "distributed_checkpoint": EXACT,
    "fabric": EXACT,
    "grain": EXACT,
    "jax": EXACT,
    "dali": EXACT,
    "ray": EXACT,
    "stateful batches": EXACT,
    "stateful samples": EXACT,
    "stateful iterable": OTHER_STATE,
    "accelerate loader": EXACT,
    "accelerate global": OTHER_STATE,
    "lightning module": EXACT,
    "lightning module of samples": EXACT,
    "lightning loader": EQUAL,
    "lightning batches stateful": EQUAL,
    "lightning samples stateful": EQUAL,
    "lightning iterable stateful": OTHER_STATE,
    "trainer loader": OTHER_ROWS,
    "trainer samples": OTHER_ROWS,
    "trainer own loader": OTHER_ROWS,
    "trainer own global": OTHER_ROWS,
    "trainer own batches": OTHER_ROWS,
    "trainer bare own loader": EQUAL,
    "trainer bare own global": EQUAL,
    "trainer bare own batches": EQUAL,
    "packs own_loop": EXACT,
    "packs grain": EXACT,
    "packs jax": EXACT,
    "packs accelerate loader": EXACT,
    "packs lightning module": EXACT,
    "packs trainer": OTHER_ROWS,
    "packs sft": OTHER_ROWS,
}
"""What resume_jobs.py has, and the errors where it cannot go on."""

DOCUMENTED = {
    "your own loop": ["own_loop"],
    "`DataLoader`, torchdata, your own sampler": [
        "batches",
        "samples",
        "iterable",
        "nodes",
        "distributed_checkpoint",
        "stateful batches",
        "stateful samples",
        "stateful iterable",
    ],
    "packs of tokens": ["packs own_loop", "packs trainer", "packs sft", "packs lightning module"],
    "Accelerate": ["accelerate loader", "accelerate global"],
    "Hugging Face `Trainer`, TRL": ["trainer loader", "trainer samples", "trainer own loader"],
    "Lightning, Fabric": ["lightning module", "lightning module of samples", "lightning loader", "fabric"],
    "Ray Train, Ray Data": ["ray"],
    "JAX": ["jax"],
    "Grain": ["grain"],
    "DALI": ["dali"],
    "torchtitan, Megatron-Core": "a training loop of your own",
    "XGBoost, LightGBM, scikit-learn, burn": "a training loop of your own, or passes that begin again",
    "polars, DuckDB, pandas, Delta Lake, Iceberg": "each query begins again",
}
"""The rows of the table in docs/frameworks/index.md: what is killed here, or why nothing is."""

MODULES = {
    "accelerate": "accelerate loader",
    "dali": "dali",
    "grain": "grain",
    "jax": "jax",
    "lightning": "lightning module",
    "ray": "ray",
    "torch": "batches",
    "transformers": "trainer loader",
}
"""The modules of rowdex that are for a framework."""


def test_no_integration_of_the_documentation_or_of_the_package_leaves_itself_out() -> None:
    text = (REPOSITORY / "docs/frameworks/index.md").read_text()
    table = text.split("| framework | entry | page |", 1)[1].split("\n\n", 1)[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]
    assert rows == list(DOCUMENTED)
    named = {name for names in DOCUMENTED.values() if isinstance(names, list) for name in names}
    assert named <= set(INTEGRATIONS)

    package = pathlib.Path(rowdex.__file__).parent
    core = {"dataset", "doctor", "frameworks", "loading", "native"}
    ours = {path.stem: path for path in package.iterdir() if path.suffix == ".py" or path.is_dir()}
    files = {name: path.rglob("*.py") if path.is_dir() else [path] for name, path in ours.items() if name not in core}
    users = set(MODULES) | {"nvidia"}
    found = {name for name, paths in files.items() if name[0] != "_" and any(imported(path) & users for path in paths)}
    assert found | {"dali"} == set(MODULES) and set(MODULES) <= set(ours)
    assert set(MODULES.values()) <= set(INTEGRATIONS)


def imported(path: pathlib.Path) -> set[str]:
    """The packages that a module cannot be imported without."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        for part in ast.walk(node) if isinstance(node, ast.Try) else [node]:
            if isinstance(part, ast.Import):
                found |= {name.name.partition(".")[0] for name in part.names}
            elif isinstance(part, ast.ImportFrom) and part.level == 0 and part.module:
                found.add(part.module.partition(".")[0])
    return found


@pytest.fixture(scope="module")
def jobs(tmp_path_factory: pytest.TempPathFactory, unequal: pathlib.Path) -> Iterator[Jobs]:
    jobs = Jobs("resume_jobs.py", tmp_path_factory.mktemp("resume"), unequal)
    yield jobs
    jobs.close()


def test_the_list_of_integrations_is_that_of_the_jobs(jobs: Jobs) -> None:
    assert jobs.run("names", world=1, group=False) == [list(INTEGRATIONS)]


LONG = os.environ.get("ROWDEX_LONG") == "1"


def variants(number: int, expected: dict[str, str]) -> list[str]:
    names = [name for name in RUNS if expected.get(name) != ""]
    return names if LONG else [names[number % len(names)]]


@pytest.mark.parametrize("epoch", [0, 1] if LONG else [0])
@pytest.mark.parametrize("number, name", list(enumerate(INTEGRATIONS)))
def test_a_run_that_was_killed_serves_the_rest_of_its_epoch_or_says_what_to_write(
    jobs: Jobs, tmp_path: pathlib.Path, number: int, name: str, epoch: int
) -> None:
    expected, index = INTEGRATIONS[name], "data/train.rdx"
    packs = name.startswith("packs ")
    if packs:
        index = packs_of(tmp_path)
    folder = tmp_path / "before"
    folder.mkdir()
    stop = STOP + epoch * STEPS
    if packs:
        stop = STOP + total_steps(index, 2, SIZE, epoch)
    job = {"integration": name, "index": index, "stop": stop, "epochs": epoch + 2}
    errors = jobs.errors("trains", 2, **job, folder=str(folder), size=SIZE, resumes=False)
    # So many steps, and no outcome.
    before = noted(folder, "before")
    assert [len(rank) for rank in before] == [stop + 2] * 2, errors
    for variant in variants(number, expected):
        world, size = RUNS[variant]
        after = tmp_path / variant
        shutil.copytree(folder, after)
        errors = jobs.errors("trains", world, **job, folder=str(after), size=size, resumes=True)
        if variant in expected:
            assert all(re.search(expected[variant], error, re.DOTALL) for error in errors), (variant, errors)
        else:
            assert errors == [""] * world, variant
            if packs:
                last = total_steps(index, world, size, epoch + 2) - total_steps(index, world, size, epoch + 1)
                check_tokens(index, [rank[stop - STOP : stop] for rank in before], noted(after, "after"), last)
            else:
                check([rank[stop - STOP : stop] for rank in before], noted(after, "after"), size)


def packs_of(folder: pathlib.Path) -> str:
    """Rows of 0 to 40 tokens, of which each is a number of its own, and the first ones of each row have no labels."""
    (folder / "packs").mkdir()
    lengths = [(row * row * 7 + row) % 41 for row in range(PACKED_ROWS)]
    ends = list(itertools.accumulate(lengths, initial=1))
    rows = [list(range(first, last)) for first, last in zip(ends, ends[1:])]
    labels = [[token if token >= row[0] + 1 + len(row) // 3 else -100 for token in row] for row in rows]
    lists = pa.list_(pa.int64())
    table = pa.table({"input_ids": pa.array(rows, lists), "labels": pa.array(labels, lists)})
    pq.write_table(table, folder / "packs/rows.parquet", row_group_size=100)
    rowdex.build(folder / "packs", folder / "packs.rdx", lengths=["input_ids"], progress=False)
    return str(folder / "packs.rdx")


def total_steps(index: str, world: int, size: int, epochs: int) -> int:
    with rowdex.Dataset(index) as dataset:
        pack = rowdex.Pack("input_ids", capacity=64)
        sampler = rowdex.DistributedSampler(dataset, world, 0, batch_size=size // 32, seed=3, pack=pack)
        return sampler.total_steps(epochs)


def check_tokens(index: str, before: list[list[list[int]]], after: list[list[list[int]]], last: int) -> None:
    """That both together are an epoch, and then the next one, of so many steps: each token is served once, and each
    that has a label is trained on once, which is noted with a sign."""
    with rowdex.Dataset(index) as dataset:
        columns = dataset.take(range(PACKED_ROWS)).to_pydict()
    tokens, labels = (itertools.chain.from_iterable(columns[name]) for name in ("input_ids", "labels"))
    expected = {*tokens, *(-label for label in labels if label != -100)}
    assert len({len(rank) for rank in after}) == 1
    for epoch in ([*before, *(rank[:-last] for rank in after)], [rank[-last:] for rank in after]):
        served = collections.Counter(itertools.chain.from_iterable(itertools.chain.from_iterable(epoch)))
        assert set(served.values()) == {1} and set(served) == expected


def noted(folder: pathlib.Path, when: str) -> list[list[list[int]]]:
    """The rows of each step of each rank."""
    paths = sorted(folder.glob(f"{when}-*"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def check(before: list[list[list[int]]], after: list[list[list[int]]], size: int) -> None:
    """That both together are an epoch, and then the next one."""
    each = -(-(-(-ROWS // len(after))) // size)
    assert len({len(rank) for rank in after}) == 1
    for epoch in ([*before, *(rank[:-each] for rank in after)], [rank[-each:] for rank in after]):
        served = collections.Counter(itertools.chain.from_iterable(itertools.chain.from_iterable(epoch)))
        assert len(served) == ROWS and sum(served.values()) - len(served) < 3
