"""The tables of data loaders (tools/compare/all.py) are measured on tiny data."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ..conftest import REPOSITORY
from .need import need

need("torch", "torchdata", "pyarrow", "datasets")
PROGRAM = REPOSITORY / "tools/compare/all.py"
ROWS = 2000
# Each peer takes seconds of imports, in processes of its own.
IS_LONG = os.environ.get("ROWDEX_LONG") == "1"
PEERS = ("rowdex-25", "hf-mapped") if IS_LONG else ("rowdex-25",)


def measured(page: pathlib.Path, *options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The cells that a run wrote."""
    command = [sys.executable, str(PROGRAM), *options, "--page", str(page)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    cells = json.loads(page.with_suffix(".json").read_text())["cells"]
    return {(cell["table"], cell["peer"]): cell for cell in cells}


@pytest.fixture()
def data(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "data" / "tok"
    folder.mkdir(parents=True)
    for number in range(2):
        ids = list(range(number * ROWS // 2, (number + 1) * ROWS // 2))
        tokens = pa.array([[row, 1, 2, 3] for row in ids], pa.list_(pa.int32()))
        pq.write_table(pa.table({"id": ids, "tokens": tokens}), folder / f"{number}.parquet", row_group_size=100)
    return folder.parent


def test_all_tables_of_a_page_come_of_cells_that_are_processes_of_their_own(
    data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    page = tmp_path / "page.md"
    options = ["--sets", "tok", "--tables"]
    measured(page, str(data), *options, "shuffle", "--peers", *PEERS)
    # What was measured before stays.
    found = measured(page, str(data), *options, "ranks", "--peers", "petastorm")
    for peer in PEERS:
        cell = found["shuffle", peer]
        assert cell["served"] == ROWS and cell["rate"] > 0 and cell["cpu"] > 0 and cell["first"] > 0
    assert found["shuffle", "rowdex-25"]["converted"] == 0
    files = sum(file.stat().st_size for file in (data / "tok").iterdir())
    assert not IS_LONG or found["shuffle", "hf-mapped"]["converted"] == files
    # It is not installed, or does not import beside this pyarrow: told by name, and no other cell is lost.
    assert "petastorm" in found["ranks", "petastorm"]["error"] or "pyarrow" in found["ranks", "petastorm"]["error"]
    text = page.read_text()
    assert all(f" | `{peer}` | " in text for peer in PEERS)
    assert "\n| `petastorm` | failed:" in text


@pytest.mark.skipif(not IS_LONG, reason="starts a score of processes")
def test_a_job_that_is_killed_goes_on_with_other_ranks(tmp_path: pathlib.Path) -> None:
    peers = ("rowdex", "hf-mapped")
    found = measured(tmp_path / "page.md", str(tmp_path), "--tables", "ranks", "resume", "--peers", *peers)
    for peer in peers:
        cell = found["ranks", peer]
        assert (cell["steps"], cell["served"], cell["again"], cell["never"]) == ([79, 79], 10_008, 1, 0)
    assert [(each["again"], each["never"]) for each in found["resume", "rowdex"]["after"]] == [(0, 0)] * 5
    # A sampler that only counts steps serves other rows to other steps.
    assert found["resume", "hf-mapped"]["after"][3]["again"] > 0


def test_the_page_of_the_project_has_the_figures_of_its_json() -> None:
    subprocess.run([sys.executable, str(PROGRAM), "page", "--check"], check=True)
