"""NVIDIA DALI: a source of batches, in its pipelines and asked as its workers ask."""

from __future__ import annotations

import pathlib
import pickle
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import rowdex
from rowdex import dali as rowdex_dali

from .need import need
from .page import script

SAMPLING: dict[str, Any] = {"seed": 3, "num_replicas": 2, "rank": 1}


@pytest.fixture()
def rows(unequal: pathlib.Path) -> Any:
    with rowdex.Dataset(unequal / "train.rdx", columns=["id", "x"]) as dataset:
        yield dataset


def plain(rows: Any, batch_size: int, **sampling: Any) -> list[list[list[int]]]:
    """The ids of two epochs of a plain loader."""
    with rowdex.Loader(rows, batch_size=batch_size, output="numpy", **sampling) as loader:
        return [[batch["id"].tolist() for batch in loader] for _ in range(2)]


def batch_info(epoch: int, iteration: int) -> Any:
    return SimpleNamespace(epoch_idx=epoch, iteration=iteration)


def served(pipe: Any) -> list[list[list[int]]]:
    """The ids of two epochs of a pipeline."""
    found: list[list[list[int]]] = []
    for _ in range(2):
        found.append([])
        try:
            while len(found[-1]) < 1000:
                ids, x = pipe.run()
                found[-1].append([int(np.array(ids.at(i)).item()) for i in range(len(ids))])
                assert np.array(x.at(0)).tolist() == [found[-1][-1][0] % 7, found[-1][-1][0] % 5, 1.0]
        except StopIteration:
            pipe.reset()
    return found


@pytest.mark.parametrize("parallel", [None, "spawn", "fork"])
def test_a_pipeline_serves_the_batches_of_the_plain_loader(rows: Any, parallel: str | None) -> None:
    dali = need("nvidia.dali", "nvidia.dali.fn")
    source = rowdex_dali.Batches(rows, 400, **SAMPLING)
    workers = {"py_num_workers": 2, "py_start_method": parallel} if parallel else {}
    pipe = dali.Pipeline(batch_size=400, num_threads=1, device_id=None, **workers)
    options = {"num_outputs": 2, "parallel": parallel is not None, "batch": True, "batch_info": True}
    with pipe:
        pipe.set_outputs(*dali.fn.external_source(source, **options))
    pipe.build()
    want = plain(rows, 400, **SAMPLING)
    assert served(pipe) == want and want[0] != want[1]


@pytest.mark.parametrize("size", [64, 6000])
def test_batches_are_right_whichever_worker_is_asked_for_which(rows: Any, size: int) -> None:
    want = plain(rows, size, **SAMPLING)
    batches = [pickle.loads(pickle.dumps(rowdex_dali.Batches(rows, size, **SAMPLING))) for _ in range(3)]
    steps = len(want[0])
    assert len(batches[0]) == steps
    generator = random.Random(1)
    asked = [(epoch, iteration) for epoch in range(2) for iteration in range(steps)]
    generator.shuffle(asked)
    for epoch, iteration in asked:
        ids, x = generator.choice(batches)(batch_info(epoch, iteration))
        assert ids.tolist() == want[epoch][iteration] and x.shape == (len(ids), 3)
    for epoch in range(2):
        with pytest.raises(StopIteration):
            batches[0](batch_info(epoch, steps))


def test_batches_one_after_the_other_are_read_ahead(rows: Any) -> None:
    source = rowdex_dali.Batches(rows, 64, **SAMPLING)
    before = rows.counters.decodes
    for epoch in range(2):
        for iteration in range(len(source)):
            source(batch_info(epoch, iteration))
    # Alone, each of the 158 batches would decode most of them.
    assert rows.counters.decodes - before <= 5 * rows.index.num_row_groups


def test_columns_become_arrays_and_what_dali_does_not_take_is_refused(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "tokens", "name"])
    ids, tokens, names = rowdex_dali.Batches(dataset, 8, shuffle=False)(batch_info(0, 1))
    assert ids.tolist() == list(range(8, 16))
    assert [row.tolist() for row in tokens] == [list(range(i % 4)) for i in range(8, 16)]
    assert [bytes(row).decode() for row in names] == [f"row {i}" for i in range(8, 16)]
    source = rowdex_dali.Batches(dataset, 8)
    with pytest.raises(TypeError, match="batch_info=True"):
        source(3)
    with pytest.raises(TypeError, match="give batch=True"):
        source(SimpleNamespace(epoch_idx=0, iteration=0, idx_in_batch=0, idx_in_epoch=0))
    with pytest.raises(rowdex.errors.SchemaError, match="maybe"):
        rowdex_dali.Batches(rowdex.Dataset(index, columns=["maybe"]), 8)(batch_info(0, 0))


def test_the_program_of_the_page_runs(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("nvidia.dali")
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script("frameworks/dali"), names)
    assert names["steps"] == 2 * 79
