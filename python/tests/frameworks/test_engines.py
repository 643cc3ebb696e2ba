"""The rows that engines choose, each by the query of ``docs/select.md``, are those that a view serves."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import rowdex

from ..test_select import WANTED, ids_of
from .need import need


def test_the_rows_that_duckdb_chose_are_those_of_the_view(
    folder: pathlib.Path, index: str, tmp_path: pathlib.Path
) -> None:
    duckdb = need("duckdb")
    query = f"""
        SELECT filename AS file, file_row_number AS row_in_file
        FROM read_parquet('{folder}/*.parquet', filename = true, file_row_number = true)
        WHERE label = 2 AND maybe IS NOT NULL ORDER BY random()
    """
    view = tmp_path / "view.rdx"
    report = rowdex.select(index, view, rows=duckdb.sql(query))
    assert (report.rows, report.repeated, report.unserved) == (len(WANTED), 0, 0)
    assert ids_of(view) == WANTED
    duckdb.sql(f"COPY ({query}) TO '{tmp_path / 'kept.parquet'}' (FORMAT parquet)")
    rowdex.select(index, view, rows=tmp_path / "kept.parquet", overwrite=True)
    assert ids_of(view) == WANTED


def test_the_rows_that_polars_chose_are_those_of_the_view(
    folder: pathlib.Path, index: str, tmp_path: pathlib.Path
) -> None:
    pl = need("polars")
    kept = (
        pl.scan_parquet(f"{folder}/*.parquet", include_file_paths="file")
        .with_columns(row_in_file=pl.int_range(pl.len()).over("file"))
        .filter((pl.col("label") == 2) & pl.col("maybe").is_not_null())
        .select("file", "row_in_file")
        .collect()
    )
    view = tmp_path / "view.rdx"
    rowdex.select(index, view, rows=kept.sample(fraction=1, shuffle=True, seed=3))
    assert ids_of(view) == WANTED
    kept.write_parquet(tmp_path / "kept.parquet")
    rowdex.select(index, view, rows=tmp_path / "kept.parquet", overwrite=True)
    assert ids_of(view) == WANTED


def test_intervals_that_duckdb_wrote_are_the_bytes_that_pyarrow_reads(tmp_path: pathlib.Path) -> None:
    duckdb = need("duckdb")
    intervals = "interval '14 months'", "interval '2 days 3 milliseconds'", "null", "interval '1 year 5 days'"
    chosen = [f"select {i} as row, {{'v': {what}}} as s, {what} as v" for i, what in enumerate(intervals)]
    rows = " union all ".join(chosen)
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path / 'x.parquet'}' (FORMAT parquet)")
    rowdex.build(tmp_path, tmp_path / "x.rdx")
    dataset = rowdex.Dataset(tmp_path / "x.rdx")
    wanted = pq.read_table(tmp_path / "x.parquet")
    assert pa.table(dataset).to_pylist() == wanted.to_pylist()
    for batch in rowdex.Loader(dataset, batch_size=3, output="arrow", memory=1):
        assert pa.table(batch).to_pylist() == wanted.take(batch.row_ids).to_pylist()
