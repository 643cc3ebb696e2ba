"""What notebooks show of datasets, predictions and stats."""

from __future__ import annotations

import html.parser
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import ROWS


class Reader(html.parser.HTMLParser):
    """The cells of a table, line by line, and the caption before them. Refuses tags that a table has not."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.lines: list[list[str]] = []
        self.caption, self.open = "", [""]
        self.feed(text)
        self.close()
        assert self.open == [""], self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert tag in ("table", "caption", "tr", "th", "td"), tag
        self.open.append(tag)
        if tag == "tr":
            self.lines.append([])
        elif tag in ("th", "td"):
            self.lines[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1] == "caption":
            self.caption += data
        else:
            self.lines[-1][-1] += data


def shown(of: Any) -> Reader:
    return Reader(of._repr_html_())


def test_a_dataset_shows_its_rows_its_columns_and_their_types(dataset: Any) -> None:
    found = shown(dataset)
    assert found.caption == f"Dataset of {ROWS:,} rows"
    names = [line[0] for line in found.lines[1:]]
    assert names == dataset.column_names
    types = {line[0]: line[1] for line in found.lines[1:]}
    assert types["id"] == "int64" and types["vector"] == "list of 3<int32>" and types["tokens"] == "list<int64>"
    assert types["name"] == "string"
    assert shown(rowdex.MixedDataset([dataset, dataset])).caption == f"MixedDataset of {2 * ROWS:,} rows"


TYPES = [
    (pa.timestamp("us", "Europe/Berlin"), "timestamp[us, Europe/Berlin]"),
    (pa.timestamp("ms"), "timestamp[ms]"),
    (pa.duration("ns"), "duration[ns]"),
    (pa.time32("s"), "time[ms]"),
    (pa.decimal128(9, 2), "decimal(9, 2)"),
    (pa.binary(4), "binary of 4"),
    (pa.date32(), "date"),
    (pa.struct({"a": pa.int8(), "b": pa.list_(pa.bool_())}), "struct<a: int8, b: list<bool>>"),
    (pa.dictionary(pa.int32(), pa.string()), "dictionary<string>"),
]


def test_types_are_told_as_people_call_them(tmp_path: pathlib.Path) -> None:
    table = pa.table({f"c{at}": pa.nulls(2, kind) for at, (kind, _) in enumerate(TYPES)})
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    lines = shown(rowdex.Dataset(tmp_path / "a.rdx")).lines[1:]
    assert [line[1] for line in lines] == [text for _, text in TYPES]
    assert {line[2] for line in lines} == {"may be null"}


def test_names_of_columns_are_text_and_never_markup(tmp_path: pathlib.Path) -> None:
    names = ["<script>alert(1)</script>", "a & b", "\"'><td>", "</table>"]
    pq.write_table(pa.table({name: [1] for name in names}), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    assert [line[0] for line in shown(rowdex.Dataset(tmp_path / "a.rdx")).lines[1:]] == names


def test_of_many_columns_the_first_are_shown_and_the_others_counted(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({f"c{at}": [1] for at in range(1100)}), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    dataset = rowdex.Dataset(tmp_path / "a.rdx")
    assert shown(dataset).lines[-1] == ["… and 1,060 more"] and len(dataset._repr_html_()) < 20_000


@pytest.mark.parametrize("memory", ["64KiB", None])
def test_a_prediction_and_stats_show_every_figure_with_its_unit(dataset: Any, memory: str | None) -> None:
    loader = rowdex.Loader(dataset, batch_size=100, seed=1, output="arrow", memory=memory)
    prediction = loader.predict()
    lines = {line[0]: line[1:] for line in shown(prediction).lines[1:]}
    told = set(lines) | {f"first_{name}" for name in ("passes", "decodes", "bytes_read", "requests")}
    assert told == set(prediction._fields) - {"packs"} and prediction.packs is None
    assert lines["passes"] == [f"{prediction.first_passes:,.2f}", f"{prediction.passes:,.2f}"]
    assert lines["peak_bytes"][0].endswith(("KiB", "MiB"))
    list(loader)
    stats = loader.stats
    cells = dict(shown(stats).lines)
    assert list(cells) == list(stats)
    assert cells["served_rows"] == f"{ROWS:,}" and cells["waited"] == f"{stats['waited']:,.3f} s"
    assert cells["wait_share"] == f"{stats['wait_share']:.1%}"
