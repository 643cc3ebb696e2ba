"""Files of newer writers: footers and pages with encodings, codecs and types that are not known here.

Files of pyarrow are changed by a reader of Thrift's compact protocol that is written from its specification.
"""

from __future__ import annotations

import io
import json
import pathlib
import subprocess
import sys
import warnings
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import rowdex

ROWS, GROUP = 400, 100
NUMBERS = [10, 11, 63, 64, 200]
# Fields of the structures of parquet.thrift.
GROUPS, CHUNKS, METADATA, ENCODINGS, CODEC, STATISTICS = 4, 1, 3, 2, 4, 13


class Number(NamedTuple):
    value: int
    start: int
    end: int


class Thrift:
    """Reads structures as dicts by field id, lists, bytes and numbers with their places."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        byte = self.byte()
        return byte if byte < 128 else byte & 127 | self.varint() << 7

    def zigzag(self) -> Number:
        start, value = self.at, self.varint()
        return Number(value >> 1 ^ -(value & 1), start, self.at)

    def read(self, kind: int = 12) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self.zigzag()
        if kind == 8:
            length = self.varint()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind == 9:
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            return [self.read(head & 15) for _ in range(count)]
        assert kind == 12, kind
        fields, last = {}, 0
        while (head := self.byte()) & 15:
            last = last + (head >> 4) if head >> 4 else self.zigzag().value
            fields[last] = self.read(head & 15)
        return fields | {"end": self.at - 1}


def footer_at(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


def replaced(data: bytes, start: int, end: int, new: bytes) -> bytes:
    """The file with other bytes at a place of its footer."""
    length = len(data) - 8 - footer_at(data) + len(new) - (end - start)
    return data[:start] + new + data[end:-8] + length.to_bytes(4, "little") + data[-4:]


def with_number(data: bytes, number: Number, value: int) -> bytes:
    """With another number there, which takes two bytes from 64 on."""
    value = value << 1 ^ value >> 63
    return replaced(data, number.start, number.end, bytes([value] if value < 128 else [value & 127 | 128, value >> 7]))


def chunk_of(data: bytes, group: int, leaf: int) -> Any:
    return Thrift(data, footer_at(data)).read()[GROUPS][group][CHUNKS][leaf][METADATA]


def table() -> pa.Table:
    ids = range(ROWS)
    photos = [{"bytes": bytes([i % 251]) * 5, "path": f"{i}.jpg"} for i in ids]
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "x": pa.array([i / 3 for i in ids], pa.float32()),
            "word": [f"word {i % 7}" for i in ids],
            "flag": [i % 3 == 0 for i in ids],
            "tokens": [list(range(i % 5)) for i in ids],
            "photo": pa.array(photos, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
            "maybe": [i if i % 4 else None for i in ids],
        }
    )


LEAVES = ["id", "x", "word", "flag", "tokens.list.element", "photo.bytes", "photo.path", "maybe"]


def files(folder: pathlib.Path, **options: Any) -> bytes:
    """Two files of one table, of which the second one is to be changed."""
    for name in "ab":
        pq.write_table(table(), folder / f"{name}.parquet", row_group_size=GROUP, write_page_index=True, **options)
    return (folder / "b.parquet").read_bytes()


def build(folder: pathlib.Path, **options: Any) -> tuple[str, Any]:
    index = str(folder / "rows.rdx")
    return index, rowdex.build(folder / "*.parquet", index, overwrite=True, **options)


def refused(call: Any, leaf: str, what: str, group: int = 2) -> rowdex.errors.FormatError:
    with pytest.raises(rowdex.errors.FormatError, match=what) as error:
        call()
    assert (error.value.column, error.value.row_group) == (leaf, group), error.value
    assert error.value.file.endswith("b.parquet") and "columns" in error.value.hint, error.value
    return error.value


@pytest.mark.parametrize("options", [{"compression": "none"}, {"data_page_version": "2.0", "use_dictionary": ["word"]}])
def test_all_columns_but_the_newer_one_are_those_of_pyarrow(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    original = files(tmp_path, **options)
    expected = pa.concat_tables([table()] * 2)
    rows = np.random.default_rng(5).integers(0, 2 * ROWS, 60)
    for leaf, name in enumerate(LEAVES):
        chunk = chunk_of(original, 2, leaf)
        # The last row group has it, too: the first one is named.
        last = with_number(original, chunk_of(original, 3, leaf)[CODEC], 9)
        places = [(chunk[ENCODINGS][-1], value, f"encoding {value}") for value in NUMBERS]
        for number, value, what in [*places, (chunk[CODEC], 8, "codec 8"), (chunk[CODEC], -1, "codec -1")]:
            (tmp_path / "b.parquet").write_bytes(with_number(last, number, value))
            top = name.split(".")[0]
            with pytest.warns(UserWarning, match=f"decode {top},") as warned:
                index, report = build(tmp_path, footers=value != 63)
            assert (report.undecodable_columns, report.rows, len(warned)) == ([top], 2 * ROWS, 1)
            error = refused(lambda: rowdex.Dataset(index), name, what)
            others = [column for column in expected.column_names if column != top]
            assert error.hint.endswith(": " + ", ".join(others))
            assert ("ALP" in str(error)) == (value == 10)
            refused(lambda: rowdex.Dataset(index, [top]), name, what)
            if top == "photo":
                others.append("photo.path" if name == "photo.bytes" else "photo.bytes")
            dataset = rowdex.Dataset(index, others, cache=1)
            parts = expected
            if top == "photo":
                field = others[-1].split(".")[1]
                kept = pc.struct_field(expected["photo"].combine_chunks(), field)
                parts = parts.drop(["photo"]).append_column("photo", pa.StructArray.from_arrays([kept], [field]))
            parts = parts.select([column.split(".")[0] for column in others])
            assert pa.table(dataset[:]).equals(parts)
            assert pa.table(dataset[rows]).equals(parts.take(rows))
            assert rowdex.count(index) == 2 * ROWS


def test_what_is_asked_of_the_newer_column_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    original = files(tmp_path)
    where = LEAVES.index("tokens.list.element")
    (tmp_path / "b.parquet").write_bytes(with_number(original, chunk_of(original, 2, where)[ENCODINGS][0], 11))
    with pytest.warns(UserWarning, match="tokens"):
        index, _ = build(tmp_path)
    others = [name for name in table().column_names if name != "tokens"]
    whole = rowdex.Dataset(index, others)
    rowdex.select(index, tmp_path / "view.rdx", where="x > 10")
    view = str(tmp_path / "view.rdx")
    for call in [
        lambda: rowdex.rows_digest(index),
        lambda: rowdex.rewrite(index, tmp_path / "new"),
        lambda: rowdex.Index(index).note_lengths("tokens"),
        lambda: rowdex.build(tmp_path / "b.parquet", tmp_path / "b.rdx", lengths=["tokens"]),
        lambda: rowdex.Dataset(view),
        lambda: whole.select(["tokens"]),
        lambda: rowdex.open(tmp_path / "*.parquet", index=tmp_path / "found.rdx", progress=False),
        lambda: rowdex.count(index, where="cardinality(tokens) > 1"),
    ]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refused(call, "tokens.list.element", "encoding 11")
    assert rowdex.count(index, by="word") == whole.counts("word")
    assert len(rowdex.Dataset(view, others)) == rowdex.count(index, where="x > 10") == 2 * (ROWS - 31)
    plain = rowdex.rows_digest(whole)
    rowdex.rewrite(index, tmp_path / "new", columns=others)
    assert rowdex.rows_digest(str(tmp_path / "new/index.rdx")) == plain
    # An update keeps what the index knows, and the command says it.
    pq.write_table(table(), tmp_path / "c.parquet")
    with pytest.warns(UserWarning, match="tokens"):
        report = rowdex.build(tmp_path / "*.parquet", index, update=True)
    assert (report.kept_files, report.undecodable_columns) == (2, ["tokens"])
    refused(lambda: rowdex.Dataset(index), "tokens.list.element", "encoding 11")
    page = str(tmp_path / "page.html")
    for arguments in [["build", str(tmp_path / "b.parquet"), "-o", str(tmp_path / "d.rdx")], ["info", index, "--json"],
                      ["info", index, "--by", "flag"], ["info", index, "--html", page]]:  # fmt: skip
        done = subprocess.run([sys.executable, "-m", "rowdex", *arguments], capture_output=True, text=True)
        assert done.returncode == 0 and ("cannot decode tokens" in done.stderr) == (arguments[0] == "build"), done
        if "--json" in arguments:
            assert json.loads(done.stdout)["build"]["undecodable"] == {"tokens": 1}


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_newer_page_that_no_footer_tells_of_is_the_same_error(version: str, tmp_path: pathlib.Path) -> None:
    original = files(tmp_path, compression="none", data_page_version=version, use_dictionary=["word"])
    for leaf in range(len(LEAVES)):
        chunk = chunk_of(original, 2, leaf)
        places = {offset: chunk[offset].value for offset in (9, 11) if offset in chunk}
        for place in places.values():
            header = Thrift(original, place).read()
            details = next(header[part] for part in (5, 7, 8) if part in header)
            number = details[4 if 8 in header else 2]
            changed = bytearray(original)
            changed[number.start] = 22
            (tmp_path / "b.parquet").write_bytes(changed)
            index, report = build(tmp_path)
            assert report.undecodable_columns == []
            for rows in (slice(None), [ROWS + 2 * GROUP + 1]):
                refused(lambda: rowdex.Dataset(index, cache=1)[rows], LEAVES[leaf], "encoding 11")


def test_what_footers_tell_of_encodings_of_pages_is_passed_over(tmp_path: pathlib.Path) -> None:
    original = files(tmp_path)
    number = chunk_of(original, 1, 0)[STATISTICS][0][2]
    (tmp_path / "b.parquet").write_bytes(with_number(original, number, 77))
    index, report = build(tmp_path)
    assert report.undecodable_columns == []
    assert pa.table(rowdex.Dataset(index)[:]).equals(pa.concat_tables([table()] * 2))


def test_a_file_inside_a_column_is_an_image(tmp_path: pathlib.Path) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(3).integers(0, 256, (9, 7, 3), np.uint8)
    image.fromarray(pixels).save(encoded := io.BytesIO(), "png")
    kind = pa.struct({"uri": pa.string(), "inline": pa.binary()})
    photos = pa.array([{"inline": encoded.getvalue()}, {"uri": "a.png"}], kind)
    pq.write_table(pa.table({"photo": photos}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    end = Thrift(data, footer_at(data)).read()[2][1]["end"]
    # Field 10 of the group: a union whose field 19 is a structure without fields.
    (tmp_path / "a.parquet").write_bytes(replaced(data, end, end, b"\x5c\x0c\x26\0\0"))
    index, report = build(tmp_path)
    loader = rowdex.Loader(index, batch_size=1, order="sequential", decode={"photo": rowdex.transforms.Image()})
    batches = iter(loader)
    assert report.undecodable_columns == [] and (next(batches)["photo"][0] == pixels).all()
    with pytest.raises(rowdex.Error, match="only the path 'a.png'"):
        next(batches)
