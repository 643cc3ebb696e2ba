"""How long rows are: noted in an index, and read from it."""

import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.index import LengthsInfo

ROWS = 1000


def token_table(first: int, rows: int) -> pa.Table:
    tokens = [None if row % 7 == 3 else list(range(row % 50)) for row in range(first, first + rows)]
    columns = {
        "tokens": pa.array(tokens, pa.list_(pa.int32())),
        "doc": pa.array([{"large": row} for row in tokens], pa.struct([("large", pa.large_list(pa.int32()))])),
        "n": pa.array([row % 50 for row in range(first, first + rows)], pa.uint16()),
        "text": pa.array(["x"] * rows),
    }
    return pa.table(columns)


def lengths_of(first: int, rows: int) -> list[int]:
    return [0 if row % 7 == 3 else row % 50 for row in range(first, first + rows)]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    (tmp_path / "data").mkdir()
    for part in range(2):
        path = tmp_path / f"data/{part}.parquet"
        pq.write_table(token_table(part * ROWS // 2, ROWS // 2), path, row_group_size=128)
    return tmp_path


def test_lengths_are_noted_with_the_build_and_taken_over_by_an_update(folder: pathlib.Path) -> None:
    path = folder / "train.rdx"
    told: list[tuple[int, int, int]] = []
    rowdex.build(folder / "data", path, lengths=["tokens", "n"], progress=lambda *at: told.append(at))
    assert told[-1] == (2, 2, ROWS)
    index = rowdex.Index(path)
    expected = lengths_of(0, ROWS)
    assert index.lengths("tokens").tolist() == expected
    assert index.noted_lengths["tokens"] == LengthsInfo("items", sum(expected), 49)
    assert list(index.noted_lengths) == ["n", "tokens"]
    pq.write_table(token_table(ROWS, 10), folder / "data/2.parquet")
    rowdex.build(folder / "data", path, update=True, progress=False)
    assert rowdex.Index(path).lengths("tokens").tolist() == lengths_of(0, ROWS + 10)


def test_lengths_are_noted_later(folder: pathlib.Path) -> None:
    path = folder / "train.rdx"
    rowdex.build(folder / "data", path, progress=False)
    index = rowdex.Index(path)
    before = index.fingerprint
    assert index.noted_lengths == {}
    index.note_lengths("doc.large", progress=False)
    assert index.lengths("doc.large").tolist() == lengths_of(0, ROWS)
    index.verify()
    assert (index.fingerprint, list(rowdex.Index(path).noted_lengths)) == (before, ["doc.large"])


def test_lengths_are_given_by_a_tokenizer(folder: pathlib.Path) -> None:
    path = folder / "train.rdx"
    rowdex.build(folder / "data", path, progress=False)
    index = rowdex.Index(path)
    rows = list(reversed(range(ROWS)))
    table = pa.table({"row_id": rows, "length": [row * 10 for row in rows]})
    pq.write_table(table, folder / "words.parquet")
    with pa.ipc.new_file(folder / "words.arrow", table.schema) as writer:
        writer.write_table(table)
    index.note_lengths(given={"a": table, "b": folder / "words.parquet", "c": folder / "words.arrow"}, progress=False)
    assert index.noted_lengths["a"].of == "given"
    for name in "abc":
        assert index.lengths(name).tolist() == [row * 10 for row in range(ROWS)]
    for wrong in (table.slice(1), pa.concat_tables([table, table.slice(0, 1)])):
        with pytest.raises(rowdex.errors.ArgumentError, match="row id 999"):
            index.note_lengths(given={"d": wrong}, progress=False)


def test_what_is_no_length_is_refused_by_name(folder: pathlib.Path) -> None:
    path = folder / "train.rdx"
    rowdex.build(folder / "data", path, progress=False)
    index = rowdex.Index(path)
    with pytest.raises(rowdex.errors.ArgumentError, match="text"):
        index.note_lengths("text", progress=False)
    with pytest.raises(rowdex.errors.ArgumentError, match="no lengths"):
        index.lengths("tokens")
    with pytest.raises(rowdex.errors.ArgumentError, match="nothing"):
        rowdex.build(folder / "data", folder / "other.rdx", lengths="nothing", progress=False)
