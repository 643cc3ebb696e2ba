"""Small datasets, written with pyarrow."""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def pytest_configure() -> None:
    """Tests of another rowdex than this one, or than the wheel that is named, say nothing."""
    found = pathlib.Path(rowdex.__file__).resolve().parent
    wheel = os.environ.get("ROWDEX_WHEEL")
    if found == REPOSITORY / "python/rowdex" or (wheel and _installed_from() == pathlib.Path(wheel).resolve()):
        return
    pytest.exit(
        f"the rowdex under test is {found}, and neither that of this repository nor of ROWDEX_WHEEL: set PYTHONPATH="
        f"{REPOSITORY / 'python'} and ROWDEX_LIBRARY, or run tools/python.sh, which makes and installs a wheel",
        returncode=4,
    )


def _installed_from() -> pathlib.Path:
    """The wheel that the installed package came from."""
    told = importlib.metadata.distribution("rowdex").read_text("direct_url.json") or "{}"
    return pathlib.Path(urllib.parse.unquote(urllib.parse.urlparse(json.loads(told).get("url", "")).path)).resolve()


ROWS, FILES, GROUP = 1003, 3, 100


def table_of(first: int, rows: int) -> pa.Table:
    ids = range(first, first + rows)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([i / 2 for i in ids], pa.float32()),
            "label": pa.array([i % 5 for i in ids], pa.int32()),
            "vector": pa.array([[i, i + 1, i + 2] for i in ids], pa.list_(pa.int32(), 3)),
            "features": pa.array([[i % 7, i % 5, 1.0] for i in ids], pa.list_(pa.float32(), 3)),
            "tokens": pa.array([list(range(i % 4)) for i in ids], pa.list_(pa.int64())),
            "name": pa.array([f"row {i}" for i in ids], pa.string()),
            "maybe": pa.array([i if i % 3 else None for i in ids], pa.int64()),
        }
    )


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Three files, twelve row groups, 1003 rows."""
    folder = tmp_path_factory.mktemp("data")
    each = -(-ROWS // FILES)
    for number in range(FILES):
        first = number * each
        rows = min(each, ROWS - first)
        pq.write_table(table_of(first, rows), folder / f"part-{number}.parquet", row_group_size=GROUP)
    rowdex.build(folder, folder / "train.rdx")
    return folder


@pytest.fixture()
def as_a_newcomer(folder: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """An empty folder but for ``data/``, and ``train.rdx``, as ``rowdex build data/ -o train.rdx`` makes it."""
    (tmp_path / "data").mkdir()
    for file in folder.glob("*.parquet"):
        (tmp_path / "data" / file.name).symlink_to(file)
    rowdex.build(tmp_path / "data", tmp_path / "train.rdx")
    return tmp_path


@pytest.fixture(scope="session")
def index(folder: pathlib.Path) -> str:
    return str(folder / "train.rdx")


@pytest.fixture(scope="session")
def table() -> pa.Table:
    """What all rows are."""
    return table_of(0, ROWS)


@pytest.fixture()
def dataset(index: str) -> Any:
    with rowdex.Dataset(index) as dataset:
        yield dataset


def ready_to_fork(torch: Any) -> None:
    """Has this process import what PyTorch imports when it first sends a tensor. In a worker that is done by a thread
    beside others, where Python 3.11 may lose the lock of a module, and then the batch is lost.
    """
    torch.multiprocessing.reductions.reduce_tensor(torch.zeros(1))


def run_python(
    program: str, *arguments: str, timeout: float = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=timeout, env={**os.environ, **environment},
    )  # fmt: skip
