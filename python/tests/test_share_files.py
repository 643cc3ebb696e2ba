"""Batches of a shared reader stay what they are while its memory files are written again, as real processes."""

from __future__ import annotations

import pathlib
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .test_share import WATCHDOG, Job, job  # noqa: F401

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only")

PROGRAM = pathlib.Path(__file__).with_name("share_files_program.py")
WORLD, EPOCHS, STEPS = 2, 4, 16


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of 16 KiB, each with its number 4,096 times; batches of 16 are 256 KiB."""
    folder = tmp_path_factory.mktemp("wide")
    ids = np.arange(512)
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.repeat(ids.astype(np.float32), 4096)), 4096)
    pq.write_table(pa.table({"id": ids, "wide": values}), folder / "a.parquet", row_group_size=64)
    rowdex.build(folder / "a.parquet", folder / "a.rdx")
    return str(folder / "a.rdx")


def start(job: Any, wide: str, *modes: str, **more: Any) -> Job:  # noqa: F811
    """Ranks with a mode each."""
    shared = job(WORLD, index=wide, epochs=EPOCHS, batch=16, memory=8 << 20, drift=2, **more)
    for rank, mode in enumerate(modes):
        shared.start(rank, program=PROGRAM, mode=mode)
    return shared


def assert_right(shared: Job, *ranks: int) -> None:
    for rank in ranks:
        steps = [line.split() for line in shared.lines(rank, "step")]
        assert len(steps) == EPOCHS * STEPS and shared.ended(rank), shared.errors(rank)
        assert all(right == "True" for _, right, _ in steps), shared.errors(rank)
        assert all(held == "True" for held in shared.lines(rank, "held")), shared.errors(rank)
    for epoch in range(EPOCHS) if len(ranks) == WORLD else []:
        lines = [line.split() for rank in ranks for line in shared.lines(rank, "step")]
        assert sum(int(ids) for of, _, ids in lines if of == str(epoch)) == sum(range(512))


def files(shared: Job, rank: int) -> list[str]:
    return shared.lines(rank, "file")


def test_files_are_written_again_and_changes_of_a_batch_come_to_nobody(job: Any, wide: str) -> None:  # noqa: F811
    shared = start(job, wide, "change", "change")
    shared.wait()
    assert_right(shared, 0, 1)
    both = files(shared, 0) + files(shared, 1)
    assert len(set(both)) < len(both) * 3 / 4, "files are written again"


def test_batches_that_are_kept_for_all_epochs_never_change(job: Any, wide: str) -> None:  # noqa: F811
    shared = start(job, wide, "keep", "change")
    shared.wait()
    assert_right(shared, 0, 1)
    kept = files(shared, 0)
    assert len(set(kept)) == len(kept), "a file that is kept is not sent again"


def test_what_a_forked_child_inherited_never_changes(job: Any, wide: str) -> None:  # noqa: F811
    shared = start(job, wide, "fork", "change")
    shared.wait()
    assert_right(shared, 0, 1)
    assert shared.lines(0, "inherited") == ["True", "True"]


def test_a_rank_that_is_killed_while_it_holds_batches_gives_all_of_them_back(job: Any, wide: str) -> None:  # noqa: F811
    shared = start(job, wide, "change")
    shared.start(1, program=PROGRAM, mode="hold", hold=20)
    deadline = time.monotonic() + WATCHDOG
    while not shared.lines(1, "holds"):
        assert time.monotonic() < deadline and shared.processes[1].poll() is None, shared.errors(1)
        time.sleep(0.01)
    held = set(files(shared, 1))
    assert len(held) == 20
    reader = pathlib.Path(f"/proc/{shared.reader()}/fd")
    shared.processes[1].kill()
    shared.await_steps(0, EPOCHS * STEPS - 4)
    assert len(list(reader.iterdir())) < 30, "the reader keeps no more than it needs"
    shared.wait(0)
    assert_right(shared, 0)
