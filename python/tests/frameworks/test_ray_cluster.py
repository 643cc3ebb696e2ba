"""Ray on more than one machine, or what Ray takes for machines: nodes of one processor each."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .. import stores
from .need import need

ray = need("ray", "ray.cluster_utils", "ray.data")

from rowdex import ray as rowdex_ray  # noqa: E402

pytestmark = pytest.mark.skipif(not os.environ.get("ROWDEX_LONG"), reason="ROWDEX_LONG=1 begins a cluster")


@pytest.fixture()
def nodes(watchdog: None) -> Iterator[set[str]]:
    """The ids of two nodes of a cluster that this process is connected to."""
    cluster = ray.cluster_utils.Cluster()
    try:
        for options in ({"include_dashboard": False}, {}):
            cluster.add_node(num_cpus=1, object_store_memory=100 << 20, **options)
        ray.init(address=cluster.address, log_to_driver=False, configure_logging=False)
        yield {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    finally:
        ray.shutdown()
        cluster.shutdown()


def test_a_shuffle_on_two_nodes_uses_both_and_writes_the_files_of_one_machine(
    nodes: set[str], unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shuffle, notes = rowdex.rewrite, tmp_path / "notes"
    notes.mkdir()

    def noted(*arguments: Any, **options: Any) -> rowdex.reports.RewriteReport:
        node = ray.get_runtime_context().get_node_id()
        (notes / f"{options['step']} {options.get('task')} {node}").touch()
        # A node has room for one task: while each waits for the other one, no node can run both.
        end = time.monotonic() + 60
        while options["step"] != "index" and len(list(notes.glob(f"{options['step']} *"))) < 2:
            assert time.monotonic() < end, "the tasks of a step do not run at the same time"
            time.sleep(0.01)
        report: rowdex.reports.RewriteReport = shuffle(*arguments, **options)
        return report

    options: dict[str, Any] = {"seed": 5, "files": 5, "memory": "1MiB"}
    local = rowdex.rewrite(unequal / "train.rdx", tmp_path / "local", **options)
    monkeypatch.setattr(rowdex_ray, "_rewrite", noted)
    report = rowdex_ray.rewrite(unequal / "train.rdx", tmp_path / "ray", verify=True, **options)
    files = [sorted((tmp_path / name).glob("*.parquet")) for name in ("local", "ray")]
    assert [file.name for file in files[0]] == [file.name for file in files[1]]
    assert all(one.read_bytes() == other.read_bytes() for one, other in zip(*files))
    assert (report.rows, report.bytes_written) == (10_007, local.bytes_written)
    ran = [note.name.split() for note in notes.iterdir()]
    steps = sorted((step, task) for step, task, _ in ran if step != "index")
    assert steps == [("spill", "0"), ("spill", "1"), ("write", "0"), ("write", "1")]
    assert {node for _, _, node in ran} == nodes


def test_a_shuffle_on_two_nodes_from_a_store_into_a_store_writes_the_files_of_one_machine(
    nodes: set[str], tmp_path: pathlib.Path
) -> None:
    # Files that no codec makes smaller than the footer is asked for: this server fails for the last so many bytes of
    # an object that has fewer.
    noise = np.random.default_rng(1).integers(0, 2**62, 100_000)
    (tmp_path / "data").mkdir()
    for number in range(2):
        table = pa.table({"id": np.arange(100_000) + number * 100_000, "noise": noise + number})
        pq.write_table(table, tmp_path / f"data/{number}.parquet", row_group_size=9_000)
    options: dict[str, Any] = {"seed": 5, "files": 5, "memory": "1MiB"}
    rowdex.build(tmp_path / "data", tmp_path / "data.rdx", progress=False)
    rowdex.rewrite(tmp_path / "data.rdx", tmp_path / "local", **options)
    (tmp_path / "spill").mkdir()
    with stores.bucket(tmp_path / "server") as bucket:
        shutil.copytree(tmp_path / "data", bucket.folder / "data")
        rowdex.build(f"{bucket.url}/data/", tmp_path / "train.rdx", progress=False, store=bucket.options)
        options.update(store=bucket.options, spill=tmp_path / "spill")
        report = rowdex_ray.rewrite(tmp_path / "train.rdx", f"{bucket.url}/out", verify=True, **options)
        assert report.rows == 200_000
        files = [sorted(folder.glob("*.parquet")) for folder in (tmp_path / "local", bucket.folder / "out")]
        assert [file.name for file in files[0]] == [file.name for file in files[1]]
        assert all(one.read_bytes() == other.read_bytes() for one, other in zip(*files))
