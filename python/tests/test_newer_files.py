"""Files of pyarrow, changed to those of newer writers by a reader of Thrift that is written from its specification."""

from __future__ import annotations

import io
import json
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .test_command import run

ROWS, GROUP = 400, 100
LEAVES = ["id", "x", "flag", "word", "tokens.list.element", "photo.bytes", "photo.path"]
# Fields of the structures of parquet.thrift.
GROUPS, CHUNKS, METADATA, ENCODINGS, CODEC, PAGE, DICTIONARY, STATISTICS = 4, 1, 3, 2, 4, 9, 11, 13


class Thrift:
    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        byte = self.byte()
        return byte if byte < 128 else byte & 127 | self.varint() << 7

    def read(self, kind: int = 12) -> Any:
        start = self.at
        if kind in (4, 5, 6):
            return (value := self.varint()) >> 1 ^ -(value & 1), start, self.at
        if kind == 8:
            return [self.byte() for _ in range(self.varint())]
        if kind == 9:
            head = self.byte()
            return [self.read(head & 15) for _ in range(self.varint() if head >> 4 == 15 else head >> 4)]
        if kind < 3:
            return kind
        fields, last = {}, 0
        while (head := self.byte()) & 15:
            last = last + (head >> 4) if head >> 4 else self.read(4)[0]
            fields[last] = self.read(head & 15)
        return fields | {"end": self.at - 1}


def footer_of(data: bytes) -> Any:
    return Thrift(data, len(data) - 8 - int.from_bytes(data[-8:-4], "little")).read()


def replaced(data: bytes, start: int, end: int, new: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little") + len(new) - (end - start)
    return data[:start] + new + data[end:-8] + length.to_bytes(4, "little") + data[-4:]


def with_number(data: bytes, number: tuple[int, int, int], value: int) -> bytes:
    value = value << 1 ^ value >> 63
    return replaced(data, *number[1:], bytes([value] if value < 128 else [value & 127 | 128, value >> 7]))


def table() -> pa.Table:
    ids = range(ROWS)
    numbers = {"id": ids, "x": pa.array([i / 3 for i in ids], pa.float32()), "flag": [i % 3 == 0 for i in ids]}
    words = {"word": [f"word {i % 7}" for i in ids], "tokens": [list(range(i % 5)) if i % 9 else None for i in ids]}
    return pa.table(numbers | words | {"photo": [{"bytes": bytes([i % 251]), "path": f"{i}.jpg"} for i in ids]})


def files(folder: pathlib.Path, **options: Any) -> bytes:
    for name in "ab":
        pq.write_table(table(), folder / f"{name}.parquet", row_group_size=GROUP, write_page_index=True, **options)
    return (folder / "b.parquet").read_bytes()


def build(folder: pathlib.Path, changed: bytes, **options: Any) -> tuple[str, Any]:
    (folder / "b.parquet").write_bytes(changed)
    index = str(folder / "rows.rdx")
    return index, rowdex.build(folder / "*.parquet", index, **{"overwrite": True} | options)


def refused(call: Any, leaf: str, what: str) -> str:
    with pytest.raises(rowdex.errors.FormatError, match=what) as error:
        call()
    found, hint = error.value, error.value.hint
    assert (found.column, found.row_group, found.file[-9:], "columns" in hint) == (leaf, 2, "b.parquet", True), found
    return hint


@pytest.mark.parametrize("options", [{"compression": "none"}, {"data_page_version": "2.0", "use_dictionary": ["word"]}])
def test_all_columns_but_the_newer_one_are_those_of_pyarrow(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    groups = footer_of(original := files(tmp_path, **options))[GROUPS]
    expected = pa.concat_tables([table()] * 2)
    rows = np.random.default_rng(5).integers(0, 2 * ROWS, 60)
    for leaf, name in enumerate(LEAVES):
        chunk, names = groups[2][CHUNKS][leaf][METADATA], expected.column_names
        names.remove(top := name.split(".")[0])
        last = with_number(original, groups[3][CHUNKS][leaf][METADATA][CODEC], 9)  # The first one is named.
        places = [(chunk[ENCODINGS][-1], value, f"encoding {value}") for value in (10, 11, 63, 64, 200)]
        for number, value, what in [*places, (chunk[CODEC], 8, "codec 8"), (chunk[CODEC], -1, "codec -1")]:
            with pytest.warns(UserWarning, match=f"decode {top},") as warned:
                index, report = build(tmp_path, with_number(last, number, value), footers=value != 63)
            assert (report.undecodable_columns, report.rows, len(warned)) == ([top], 2 * ROWS, 1)
            for asked in (None, [top]):
                assert refused(lambda: rowdex.Dataset(index, asked), name, what).endswith(": " + ", ".join(names))
            others = [other.replace(".list.element", "") for other in LEAVES if other != name]
            dataset, same = rowdex.Dataset(index, others, cache=1), expected.flatten().select(others)
            assert [pa.table(dataset[at]).flatten() for at in (slice(None), rows)] == [same, same.take(rows)]


@pytest.mark.filterwarnings("ignore:this version cannot decode tokens")
def test_what_is_asked_of_the_newer_column_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    groups = footer_of(original := files(tmp_path))[GROUPS]
    changed = with_number(original, groups[2][CHUNKS][4][METADATA][ENCODINGS][0], 11)
    index, _ = build(tmp_path, changed)
    others = [name for name in table().column_names if name != "tokens"]
    whole, new, view = rowdex.Dataset(index, others), tmp_path / "new", str(tmp_path / "view.rdx")
    rowdex.select(index, view, where="x > 10")
    assert len(rowdex.Dataset(view, others)) == rowdex.count(index, where="x > 10") == 2 * (ROWS - 31)
    rowdex.rewrite(index, new, columns=others)
    assert rowdex.rows_digest(str(new / "index.rdx")) == rowdex.rows_digest(whole)
    refused(lambda: rowdex.rows_digest(index), LEAVES[4], "encoding 11")
    refused(lambda: rowdex.rewrite(index, new, overwrite=True), LEAVES[4], "encoding 11")
    refused(lambda: rowdex.Index(index).note_lengths("tokens"), LEAVES[4], "encoding 11")
    refused(lambda: rowdex.Dataset(view), LEAVES[4], "encoding 11")
    refused(lambda: rowdex.open(tmp_path / "*.parquet", index=tmp_path / "o.rdx"), LEAVES[4], "encoding 11")
    refused(lambda: rowdex.count(index, where="cardinality(tokens) > 1"), LEAVES[4], "encoding 11")
    pq.write_table(table(), tmp_path / "c.parquet")
    _, report = build(tmp_path, changed, update=True, overwrite=False)
    assert (report.kept_files, report.undecodable_columns) == (2, ["tokens"])
    refused(lambda: rowdex.Dataset(index), LEAVES[4], "encoding 11")
    assert json.loads(run("info", index, "--json").stdout)["build"]["undecodable"] == {"tokens": 1}
    assert b"402" in run("info", index, "--by", "flag").stdout + run("info", index, "--html", view + ".html").stdout
    assert "encoding 11" in pathlib.Path(view + ".html").read_text()
    assert b"cannot decode tokens" in run("build", str(tmp_path / "b.parquet"), "-o", str(tmp_path / "d.rdx")).stderr


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_newer_page_that_no_footer_tells_of_is_the_same_error(version: str, tmp_path: pathlib.Path) -> None:
    original = files(tmp_path, compression="none", data_page_version=version, use_dictionary=["word"])
    groups = footer_of(original)[GROUPS]
    for leaf, name in enumerate(LEAVES):
        chunk = groups[2][CHUNKS][leaf][METADATA]
        for place in {PAGE, DICTIONARY} & chunk.keys():
            header = Thrift(original, chunk[place][0]).read()
            details = next(header[part] for part in (5, 7, 8) if part in header)
            changed = bytearray(original)
            changed[details[4 if 8 in header else 2][1]] = 22
            index, _ = build(tmp_path, changed)
            for rows in (slice(None), [ROWS + 2 * GROUP + 1]):
                refused(lambda: rowdex.Dataset(index, cache=1)[rows], name, "encoding 11")
    index, report = build(tmp_path, with_number(original, groups[1][CHUNKS][0][METADATA][STATISTICS][0][2], 77))
    assert not report.undecodable_columns and pa.table(rowdex.Dataset(index)[:]) == pa.concat_tables([table()] * 2)


def test_a_file_inside_a_column_is_an_image(tmp_path: pathlib.Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (9, 7, 3), np.uint8)
    pytest.importorskip("PIL.Image").fromarray(pixels).save(encoded := io.BytesIO(), "png")
    pq.write_table(pa.table({"photo": [{"inline": encoded.getvalue()}, {"uri": "a.png"}]}), tmp_path / "b.parquet")
    end = footer_of(data := (tmp_path / "b.parquet").read_bytes())[2][1]["end"]
    index, _ = build(tmp_path, replaced(data, end, end, b"\x5c\x0c\x26\0\0"))  # Field 10, a union with field 19.
    batches = iter(rowdex.Loader(index, batch_size=1, order="sequential", decode={"photo": rowdex.transforms.Image()}))
    assert (next(batches)["photo"][0] == pixels).all()
    with pytest.raises(rowdex.Error, match="only the path 'a.png'"):
        next(batches)
