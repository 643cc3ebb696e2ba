"""Row groups on a local disk, for all processes of a machine."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
import rowdex

ROWS = range(0, 1003, 2)


def test_a_second_dataset_decodes_nothing(index: str, table: pa.Table, tmp_path: pathlib.Path) -> None:
    disk_cache = rowdex.DiskCache(tmp_path / "disk_cache", 1 << 30)
    first = rowdex.Dataset(index, disk_cache=disk_cache)
    assert pa.record_batch(first.take(ROWS)).to_pylist() == table.take(list(ROWS)).to_pylist()
    assert (first.disk_cache_counters.misses, first.disk_cache_counters.writes) == (12, 12)
    second = pickle.loads(pickle.dumps(first))
    assert pa.record_batch(second.take(ROWS)).to_pylist() == table.take(list(ROWS)).to_pylist()
    assert (second.disk_cache_counters.hits, second.counters.decodes) == (12, 0)
    assert second.disk_cache_fault is None
    assert rowdex.Dataset(index).disk_cache_counters == rowdex.reports.DiskCacheCounters(*[0] * 7)


def test_another_process_finds_what_this_one_left(index: str, tmp_path: pathlib.Path) -> None:
    disk_cache = rowdex.DiskCache(tmp_path / "disk_cache", 1 << 30)
    rowdex.Dataset(index, disk_cache=disk_cache).take(ROWS)
    program = "import rowdex, sys; disk_cache = rowdex.DiskCache(sys.argv[2], 1 << 30)"
    program += "; d = rowdex.Dataset(sys.argv[1], disk_cache=disk_cache); d.take(range(0, 1003, 2))"
    program += "; print(d.disk_cache_counters.hits, d.counters.bytes_read)"
    done = subprocess.run(
        [sys.executable, "-c", program, index, str(tmp_path / "disk_cache")], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["12", "0"]


def test_a_loader_serves_from_it_and_goes_on_when_it_is_deleted(index: str, tmp_path: pathlib.Path) -> None:
    dataset = rowdex.Dataset(index, ["id"], disk_cache=rowdex.DiskCache(tmp_path / "disk_cache", 1 << 30))
    loader = rowdex.Loader(dataset, batch_size=64, seed=3, memory=1 << 12, output="numpy")
    for epoch in range(2):
        assert sorted(row for batch in loader for row in batch["id"].tolist())[:1003] == list(range(1003)), epoch
        # The loader's threads read ahead, and may be writing into it.
        shutil.rmtree(tmp_path / "disk_cache", ignore_errors=True)


def test_root_and_disk_cache_stay_after_a_change_of_directory(
    index: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = (pathlib.Path(index).parent / rowdex.Index(index).root).resolve()
    monkeypatch.chdir(root.parent)
    disk_cache = rowdex.DiskCache(pathlib.Path(os.path.relpath(tmp_path / "disk_cache")), 1 << 30)
    dataset = rowdex.Dataset(index, root=root.name, disk_cache=disk_cache)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy.take(range(10))) == 10
    assert (tmp_path / "disk_cache").is_dir() and not list((tmp_path / "elsewhere").iterdir())


def test_what_can_not_be_a_disk_cache_is_refused(index: str, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ValueError, match="bytes"):
        rowdex.Dataset(index, disk_cache=rowdex.DiskCache(tmp_path, 0))
