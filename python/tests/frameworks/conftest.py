"""What the tests of frameworks read: 10,007 rows in five files of unequal sizes."""

from __future__ import annotations

import pathlib
import signal
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

SIZES = (4000, 3001, 2001, 1000, 5)
ROWS = sum(SIZES)
DEADLINE = 300


class _Late(BaseException):
    """No ``TimeoutError``, because Ray tries again after those."""


@pytest.fixture(scope="session")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the files and ``train.rdx``. Columns: ``id``, ``x`` (3 numbers) and ``y``."""
    folder = tmp_path_factory.mktemp("unequal")
    first = 0
    for number, rows in enumerate(SIZES):
        ids = range(first, first + rows)
        table = pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "x": pa.array([[i % 7, i % 5, 1.0] for i in ids], pa.list_(pa.float32(), 3)),
                "y": pa.array([i % 5 for i in ids], pa.int64()),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=500)
        first += rows
    rowdex.build(folder, folder / "train.rdx")
    return folder


@pytest.fixture()
def watchdog() -> Iterator[None]:
    """Ends a test that waits for longer."""

    def bite(*_: Any) -> None:
        raise _Late(f"a test took more than {DEADLINE} seconds")

    before = signal.signal(signal.SIGALRM, bite)
    signal.setitimer(signal.ITIMER_REAL, DEADLINE, 5)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
