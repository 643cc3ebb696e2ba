"""polars, DuckDB, pyarrow and pandas read a dataset as it is."""

from __future__ import annotations

import gc
import pathlib
import shutil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from ..conftest import ROWS, table_of
from .need import need
from .page import script


def stored(dataset: Any) -> pa.Table:
    """The table as pyarrow reads it from the files."""
    root = pathlib.Path(dataset.index.path).parent
    return pa.concat_tables(pq.read_table(root / file.path) for file in dataset.index.files)


def damaged(folder: pathlib.Path, target: pathlib.Path, column: str) -> str:
    """A copy whose pages of one column are overwritten. Returns the path of its index."""
    shutil.copytree(folder, target)
    (target / "train.rdx").unlink()
    rowdex.build(target, target / "train.rdx")
    for path in sorted(target.glob("*.parquet")):
        metadata = pq.ParquetFile(path).metadata
        with open(path, "r+b") as file:
            for number in range(metadata.num_row_groups):
                group = metadata.row_group(number)
                for chunk in map(group.column, range(group.num_columns)):
                    if chunk.path_in_schema == column:
                        file.seek(chunk.dictionary_page_offset or chunk.data_page_offset)
                        file.write(b"\xff" * chunk.total_compressed_size)
    return str(target / "train.rdx")


def test_pyarrow_reads_all_rows_of_a_dataset_each_time_anew(dataset: Any) -> None:
    assert pa.table(dataset).equals(stored(dataset))
    assert pa.schema(dataset) == stored(dataset).schema.remove_metadata()
    reader = pa.RecordBatchReader.from_stream(dataset)
    assert reader.read_next_batch()["id"][0].as_py() == 0
    assert pa.RecordBatchReader.from_stream(dataset).read_all()["id"].to_pylist() == list(range(ROWS))


def test_a_stream_reads_nothing_before_its_first_batch_and_no_more_than_it_is_asked_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, groups = 4000, 40
    table = pa.table({"id": range(rows), "blob": [b"x" * 10_000] * rows})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=rows // groups, compression=None, use_dictionary=False)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    dataset = rowdex.Dataset(tmp_path / "a.rdx")
    capsule = dataset.__arrow_c_stream__()
    reader = pa.RecordBatchReader.from_stream(dataset)
    assert dataset.counters.decodes == 0
    from rowdex.loading import passes as _passes

    assert len(reader.read_next_batch()) == _passes.batch_rows(dataset) < rows
    monkeypatch.setattr(_passes, "_BATCH_BYTES", 1 << 20)
    few = pa.RecordBatchReader.from_stream(dataset)
    assert len(few.read_next_batch()) < 150
    # A stream that is given up lets go of what it holds, and one that was never begun, too.
    del capsule, reader, few
    gc.collect()
    assert pa.table(dataset)["id"].to_pylist() == list(range(rows))


def test_a_mixed_dataset_an_empty_one_and_one_without_columns_are_streams(dataset: Any, tmp_path: pathlib.Path) -> None:
    mixed = rowdex.MixedDataset([dataset, dataset])
    assert pa.table(mixed)["id"].to_pylist() == [*range(ROWS), *range(ROWS)]
    assert pa.table(dataset.select([])).num_rows == ROWS
    pq.write_table(table_of(0, 0), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    empty = rowdex.Dataset(tmp_path / "a.rdx")
    assert pa.table(empty).num_rows == 0 and pa.table(empty).column_names == dataset.column_names


def test_a_damaged_file_is_an_error_of_the_stream_that_names_it(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    dataset = rowdex.Dataset(damaged(folder, tmp_path / "copy", "name"), check="off")
    with pytest.raises(pa.ArrowInvalid, match=r"part-0\.parquet, row group 0, column \"name\""):
        pa.table(dataset)
    assert pa.table(dataset.select(["id"])).num_rows == ROWS


def test_polars_and_pandas_read_a_dataset(dataset: Any) -> None:
    pl, pd = need("polars"), need("pandas")
    frame = pl.DataFrame(dataset)
    assert frame.equals(pl.from_arrow(stored(dataset))) and pl.Series(dataset).len() == ROWS
    found = pd.DataFrame.from_arrow(dataset.select(["id", "name"]))
    assert found["name"].tolist() == [f"row {i}" for i in range(ROWS)]


def test_duckdb_queries_a_dataset_several_times_in_one_query(dataset: Any) -> None:
    duckdb = need("duckdb")
    connection = duckdb.connect()
    found = connection.sql("select label, count(*), sum(id) from dataset group by label order by label").fetchall()
    expected = connection.from_arrow(stored(dataset)).aggregate("label, count(*), sum(id)", "label").order("label")
    assert found == expected.fetchall()
    joined = connection.sql("select count(*), sum(a.id) from dataset a join dataset b on a.id = b.id + 1").fetchall()
    assert joined == [(ROWS - 1, sum(range(1, ROWS)))]


def test_the_program_of_the_manual_runs(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("duckdb")
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script("frameworks/recipes"), "docs/frameworks/recipes.md", "exec"), names)
    assert names["served"] == len(range(3, 10_007, 5))
    assert names["counts"] == [(y, len(range(y, 10_007, 5))) for y in range(5)]
