"""Other libraries take batches as they are, through the Arrow PyCapsule protocol, without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest



@pytest.fixture()
def batch(dataset: Any) -> Any:
    return dataset.select(["id", "x", "label", "vector", "tokens", "name", "maybe"])[100:400]


def test_nanoarrow_takes_a_batch_without_copying(batch: Any, dataset: Any) -> None:
    na = pytest.importorskip("nanoarrow", reason="nanoarrow is not installed")
    array = na.Array(batch)
    assert len(array) == 300 and array.to_pylist() == batch.to_pylist()
    for child in array.iter_children():
        if child.schema.name in ("id", "x", "label"):
            ours = batch[child.schema.name]
            assert np.shares_memory(np.frombuffer(child.buffers[1], dtype=ours.dtype), ours), child.schema.name
    assert na.Schema(dataset.schema).type == na.Type.STRUCT


def test_polars_takes_a_batch_without_copying(batch: Any) -> None:
    pl = pytest.importorskip("polars", reason="polars is not installed")
    frame = pl.DataFrame(batch)
    assert frame.shape == (300, 7) and frame.to_dicts() == batch.to_pylist()
    for name in ("id", "x", "label"):
        assert np.shares_memory(frame[name].to_numpy(allow_copy=False), batch[name]), name
    assert frame.schema["vector"] == pl.Array(pl.Int32, 3) and frame["maybe"].null_count() == 100
    # It may be kept when everything of rowdex is gone.
    total = int(batch["id"].sum())
    del batch
    assert frame["id"].sum() == total


def test_duckdb_queries_a_batch(batch: Any) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    connection = duckdb.connect()
    found = connection.sql(
        "select label, count(*), sum(id), min(name) from batch group by label order by label"
    ).fetchall()
    rows = range(100, 400)
    expected = [
        (label, 60, sum(row for row in rows if row % 5 == label), min(f"row {row}" for row in rows if row % 5 == label))
        for label in range(5)
    ]
    assert found == expected
    nested = connection.sql("select sum(tokens[1]), count(maybe), sum(vector[3]) from batch").fetchall()
    assert nested == [(0, 200, sum(row + 2 for row in rows))]


def test_pyarrow_takes_a_batch_without_copying(batch: Any) -> None:
    import pyarrow as pa

    table = pa.record_batch(batch)
    assert table.num_rows == 300
    for name in ("id", "x", "label"):
        assert np.shares_memory(table[name].to_numpy(zero_copy_only=True), batch[name]), name
    vector = table["vector"].flatten().to_numpy(zero_copy_only=True)
    assert np.shares_memory(vector, batch["vector"])
