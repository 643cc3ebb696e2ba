"""What a notebook shows."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import re

import pyarrow as pa
import pyarrow.parquet as pq
import rowdex


def texts(html: str) -> list[str]:
    return [cell.replace("<br>", " ") for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", html)]


def test_a_notebook_shows_the_first_rows_of_a_dataset(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "name", "tokens"])
    html = dataset._repr_html_()
    assert f"Dataset of {index}: 1,003 rows in 3 files" in html
    assert texts(html)[:6] == ["id int64", "name string", "tokens list&lt;int64&gt;", "0", "row 0", "[]"]
    assert len(texts(html)) == 3 * 6
    assert texts(dataset.take([7])._repr_html_())[3:] == ["7", "row 7", "[0, 1, 2]"]
    assert texts(dataset.schema._repr_html_())[3:6] == ["id", "int64", "yes"]
    assert texts(rowdex.Index(index)._repr_html_())[:5] == ["path", "rows", "row_groups", "size", "part-0.parquet"]
    loader = texts(rowdex.Loader(dataset, batch_size=100, seed=3)._repr_html_())
    assert ["batch_size", "100"] == loader[loader.index("batch_size") :][:2] and loader[-2:] == ["steps", "11"]


def test_types_are_called_what_arrow_calls_them(tmp_path: pathlib.Path) -> None:
    table = pa.table(
        {
            "struct": pa.array([{"a": 1, "b": "x<y"}]),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "fixed": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
            "time": pa.array([datetime.datetime(2026, 1, 2)], pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal("1.25")], pa.decimal128(10, 2)),
            "long": pa.array(["<" * 100]),
            "raw": pa.array([b"ab"], pa.binary(2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    dataset = rowdex.Dataset(tmp_path / "a.rdx")
    assert repr(dataset.schema) == (
        "Schema(struct: struct<a: int64, b: string>, map: map<string, int64>, fixed: list<float32>[2], "
        "time: timestamp[us, UTC], price: decimal(10, 2), long: string, raw: binary[2])"
    )
    shown = dataset._repr_html_()
    assert "&lt;" * 59 + "…" in shown and "x&lt;y" in shown and "<<" not in shown
