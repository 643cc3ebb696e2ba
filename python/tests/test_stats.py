"""What a loader tells loggers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import rowdex

from .conftest import ROWS


def loader_of(dataset: Any, **options: Any) -> rowdex.Loader:
    given = {"batch_size": 100, "seed": 1, "num_replicas": 1, "rank": 0, "output": "numpy", "nulls": "fill"}
    return rowdex.Loader(dataset, **{**given, **options})


@pytest.mark.parametrize("options", [{}, {"map": lambda batch: batch}, {"map": len, "threads": 0}])
def test_stats_are_a_flat_dict_of_numbers_whose_keys_are_attributes(dataset: Any, options: dict[str, Any]) -> None:
    loader = loader_of(dataset, **options)
    before = loader.stats
    assert before.served_rows == before.decodes == before.wait_share == before.rows_per_second == 0
    for step, _ in enumerate(loader):
        assert loader.stats.served_batches == step + 1
        assert loader.stats.served_rows == min(100 * (step + 1), ROWS)
    stats = loader.stats
    assert set(stats) == set(rowdex.reports.LoaderStats.__annotations__)
    assert all(type(value) in (int, float) for value in stats.values())
    assert json.loads(json.dumps(stats)) == dict(stats)
    assert all(getattr(stats, name) == value for name, value in stats.items())
    assert stats.rows >= ROWS and 12 <= stats.decodes and stats.passes == stats.decodes / 12
    assert 0 < stats.held_bytes <= stats.peak_bytes and stats.rows_per_second > 0 and 0 < stats.wait_share <= 1
    with pytest.raises(AttributeError, match="LoaderStats has no 'nothing'; there are decodes"):
        stats.nothing  # noqa: B018
    list(loader)
    assert loader.stats.served_rows == 2 * ROWS and loader.stats.waited > stats.waited


def test_small_batches_that_are_converted_together_are_counted_one_by_one(dataset: Any) -> None:
    loader = loader_of(dataset, batch_size=7)
    served = 0
    for batch in loader:
        served += len(batch["id"])
        assert loader.stats.served_rows == served


def test_time_is_the_loops_or_the_loaders(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def slowly(batch: Any) -> Any:
        now[0] += 3.0
        return batch

    loader = loader_of(dataset, map=slowly, threads=0)
    batches = iter(loader)
    next(batches)
    assert (loader.stats.waited, loader.stats.wait_share, loader.stats.rows_per_second) == (3.0, 1.0, 100 / 3)
    for _ in range(2):
        now[0] += 1.0
        next(batches)
    assert (loader.stats.waited, loader.stats.wait_share) == (9.0, 9 / 11)
    batches.close()
    now[0] += 1000.0
    other = iter(loader)
    # A pause between iterations is nobody's, and only the last ten seconds count for the rates.
    for _ in range(6):
        next(other)
    assert loader.stats.waited == 27.0 and loader.stats.wait_share == 1.0 and loader.stats.rows_per_second == 100 / 3


def test_a_mixed_dataset_has_passes_over_all_of_its_row_groups(dataset: Any) -> None:
    loader = loader_of(rowdex.MixedDataset([dataset, dataset]), shuffle=False)
    list(loader)
    assert loader.stats.passes == loader.stats.decodes / 24 >= 1
