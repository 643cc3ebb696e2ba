"""Samplers of one's own that prefetch their order."""

from __future__ import annotations

import os
import pathlib
import pickle
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rowdex

from .conftest import REPOSITORY, ROWS, run_python


def shuffled() -> list[int]:
    order = list(range(ROWS))
    random.Random(3).shuffle(order)
    return order


def test_an_prefetched_order_is_served_from_memory(index: str, table: pa.Table) -> None:
    order = shuffled()
    dataset = rowdex.Dataset(index)
    with dataset.prefetch(order[:500], memory=60_000, threads=1) as rows:
        rows.prefetch(np.array(order[500:]))
        for start in range(0, ROWS, 40):
            wanted = order[start : start + 40]
            batch = rows.take(wanted)
            assert batch.row_ids == wanted and pa.table(batch).equals(table.take(pa.array(wanted)))
        assert rows.waiting == 0
        stats = rows.stats
    assert (stats.prefetched, stats.followed, stats.fell_back) == (ROWS, ROWS, 0)
    # Each of the 26 calls has rows of nearly all of the twelve row groups.
    assert 12 <= stats.decodes < 26 * 6 and 0 < stats.peak_bytes


def test_whoever_strays_is_served_all_the_same(dataset: Any) -> None:
    order = shuffled()
    rows = dataset.prefetch(order)
    assert rows.take([order[1], order[0]]).row_ids == [order[1], order[0]]
    other = order[900:910]
    assert rows.take(other)["id"].tolist() == other
    assert rows.take(order[:10])["id"].tolist() == order[:10]
    assert rows.stats.fell_back == 12 and rows.stats.followed == 10
    # The next one, counted from the end.
    assert rows.take([order[10] - ROWS])["id"].tolist() == [order[10]] and len(rows.take([])) == 0
    rows.clear()
    assert rows.waiting == 0
    rows.prefetch(order[:5])
    assert rows.take(order[:5])["id"].tolist() == order[:5] and rows.stats.followed == 16


def test_misuse_of_prefetched_rows_is_refused(dataset: Any) -> None:
    with pytest.raises(IndexError, match="1003"):
        dataset.prefetch([0, ROWS])
    for options in ({"memory": 0}, {"threads": -1}):
        with pytest.raises(ValueError):
            dataset.prefetch([0], **options)
    rows = dataset.prefetch([0])
    with pytest.raises(IndexError):
        rows.prefetch([ROWS])
    assert rows.stats.prefetched == 1
    with pytest.raises(TypeError, match="prefetch again"):
        pickle.dumps(rows)
    rows.close()
    with pytest.raises(ValueError, match="closed"):
        rows.take([0])


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_prefetches_again(dataset: Any) -> None:
    rows = dataset.prefetch(range(ROWS))
    assert rows.take(range(100)).num_rows == 100
    child = os.fork()
    if child == 0:
        status = 1
        try:
            rows.take([100])
        except RuntimeError:
            status = 0 if dataset.prefetch([7]).take([7])["id"].tolist() == [7] else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert rows.take(range(100, 200))["id"].tolist() == list(range(100, 200))


def test_the_program_of_the_manual_prefetches(as_a_newcomer: pathlib.Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (REPOSITORY / "docs/python.md").read_text(), re.S)
    (program,) = [program for program in programs if "dataset.prefetch" in program]
    done = run_python(f"import os; os.chdir({str(as_a_newcomer)!r})\n{program}")
    assert done.returncode == 0, done.stderr
