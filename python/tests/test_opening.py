"""Datasets whose index is found or built."""

from __future__ import annotations

import os
import pathlib
import pickle
import subprocess
import sys

import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import ROWS, run_python, table_of


@pytest.fixture()
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setenv("ROWDEX_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture()
def data(tmp_path: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """A folder of files that may be changed."""
    (tmp_path / "data").mkdir()
    for file in folder.glob("*.parquet"):
        (tmp_path / "data" / file.name).write_bytes(file.read_bytes())
    return tmp_path / "data"


def indexes(cache: pathlib.Path) -> int:
    return len(list(cache.glob("*/*.rdx")))


def test_a_folder_is_opened_and_its_index_built_once(
    cache: pathlib.Path, data: pathlib.Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = rowdex.open(data, columns=["id"])
    assert dataset[7] == {"id": 7} and len(dataset) == ROWS
    assert capfd.readouterr().err == f"rowdex: indexed 3 files with {ROWS} rows\n"
    monkeypatch.chdir(data.parent)
    loader = rowdex.Loader("data/", batch_size=100, output="python", threads=0)
    assert sorted(row for batch in loader for row in batch["id"])[:: ROWS - 1] == [0, ROWS - 1]
    assert len(rowdex.open(data, index=False)) == ROWS
    assert len(rowdex.open([data / "part-0.parquet", data / "part-1.parquet"], progress=False)) < ROWS
    assert capfd.readouterr().err == ""
    assert indexes(cache) == 2 and not list(cache.glob("*/*.lock"))


def test_an_index_is_built_again_when_files_were_added(
    cache: pathlib.Path, data: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = rowdex.open(data)
    pq.write_table(table_of(0, 10), data / "part-9.parquet")
    with pytest.raises(rowdex.errors.NotFoundError, match="no index of the data as it is now"):
        rowdex.open(data, index=False)
    after = rowdex.open(data)
    assert len(after) == len(before) + 10
    assert "4 files with 1013 rows again, because they changed" in capfd.readouterr().err
    # A run that is under way keeps the rows that it began with.
    again = pickle.loads(pickle.dumps(before))
    assert again.index.fingerprint == before.index.fingerprint and len(again) == ROWS and indexes(cache) == 2


def test_an_index_has_the_path_and_the_lengths_asked_for(cache: pathlib.Path, data: pathlib.Path) -> None:
    path = data.parent / "train.rdx"
    assert rowdex.open(data, index=path).index.path == str(path)
    assert rowdex.open(data, index=path, lengths="tokens").index.noted_lengths.keys() == {"tokens"}
    assert rowdex.open(data, index=path).index.noted_lengths.keys() == {"tokens"}
    assert rowdex.open(path).index.path == str(path) and indexes(cache) == 0


def test_processes_that_ask_at_once_get_one_index(cache: pathlib.Path, data: pathlib.Path) -> None:
    program = f"import rowdex; print(len(rowdex.open({str(data)!r})))"
    command = [sys.executable, "-c", program]
    asking = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=data.parent)
        for _ in range(8)
    ]
    told = [process.communicate(timeout=120) for process in asking]
    assert [rows for rows, _ in told] == [f"{ROWS}\n"] * 8, told
    assert sorted(errors for _, errors in told) == [""] * 7 + [f"rowdex: indexed 3 files with {ROWS} rows\n"]
    assert indexes(cache) == 1


def test_a_cache_without_room_says_what_to_set(cache: pathlib.Path, data: pathlib.Path) -> None:
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512)); "
    opened = f"import rowdex; print(len(rowdex.open({str(data)!r}, index=INDEX)))"
    done = run_python(limit + opened.replace("INDEX", "None"), ROWDEX_CACHE=str(cache))
    assert "File too large" in done.stderr and "set ROWDEX_CACHE" in done.stderr, done.stderr
    assert indexes(cache) == 0 and not list(cache.glob("*/*"))
    for folder in ("/proc/none", "/dev/null/none"):
        done = run_python(opened.replace("INDEX", "None"), ROWDEX_CACHE=folder)
        assert "set ROWDEX_CACHE" in done.stderr, done.stderr
    done = run_python(opened.replace("INDEX", repr(str(data.parent / "train.rdx"))), ROWDEX_CACHE="/proc/none")
    assert done.stdout == f"{ROWS}\n", done.stderr


RANK = """
import sys
import torch.distributed
import rowdex

store, rank, data, stages = sys.argv[1:]
torch.distributed.init_process_group("gloo", init_method="file://" + store, world_size=2, rank=int(rank))
rows = []
dataset = rowdex.MixedDataset([rowdex.open(data)])
order = rowdex.order.Mixed(["a"], stages=[(0, {"a": 1}), (int(stages), {"a": 2})])
for batch in rowdex.Loader(dataset, batch_size=16, output="python", order=order):
    rows += batch["id"]
print(len(rows))
"""


@pytest.mark.parametrize("other", ["nothing", "files", "stages"])
def test_ranks_with_other_files_or_stages_are_refused(
    cache: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path, other: str
) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    folders = [data, data]
    if other == "files":
        folders[1] = tmp_path / "other"
        folders[1].mkdir()
        pq.write_table(table_of(0, ROWS), folders[1] / "part.parquet")
    (tmp_path / "rank.py").write_text(RANK)
    command = [sys.executable, str(tmp_path / "rank.py"), str(tmp_path / "store")]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [*command, str(rank), str(folder), str(9 + rank * (other == "stages"))], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        for rank, folder in enumerate(folders)
    ]
    told = [rank.communicate(timeout=240) for rank in ranks]
    if other == "nothing":
        assert [rows for rows, _ in told] == [f"{-(-ROWS // 2)}\n"] * 2, told
    words = {"files": "rank 1 found other files than rank 0: 1003 rows, and 1003", "stages": "rank 1 has other stages"}
    for rows, errors in told if other != "nothing" else []:
        assert rows == "" and words[other] in errors, errors
