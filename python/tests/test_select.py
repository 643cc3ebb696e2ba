"""Views and lists of rows: what an engine chose is what the view serves, exactly and equally dealt."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.order import IdSet, Subset

from .conftest import ROWS, run_python


def ids_of(path: pathlib.Path) -> list[int]:
    """The column ``id`` of all rows that an index serves."""
    with rowdex.Dataset(path) as dataset:
        return pa.record_batch(dataset.take(range(len(dataset)))).column("id").to_pylist()


WANTED = [i for i in range(ROWS) if i % 5 == 2 and i % 3]
"""What the engines below are asked for: ``label = 2 and maybe is not null``."""


def test_any_stream_of_arrow_is_a_list_and_a_long_one_is_read_batch_by_batch(
    index: str, tmp_path: pathlib.Path
) -> None:
    pandas = pytest.importorskip("pandas")
    view = tmp_path / "view.rdx"
    for rows in (pa.table({"row_id": WANTED}), pandas.DataFrame({"row_id": WANTED})):
        rowdex.select(index, view, rows=rows, overwrite=True)
        assert ids_of(view) == WANTED
    batches = 300
    read = []

    def endless() -> Any:
        for number in range(batches):
            read.append(number)
            yield pa.record_batch({"row_id": pa.array([number % ROWS] * 1000)})

    schema = pa.schema({"row_id": pa.int64()})
    report = rowdex.select(index, view, rows=pa.RecordBatchReader.from_batches(schema, endless()), overwrite=True)
    assert (report.rows, report.repeated, len(read)) == (batches, batches * 999, batches)


def test_the_error_of_a_stream_and_rows_that_are_not_there_are_raised(
    folder: pathlib.Path, index: str, tmp_path: pathlib.Path
) -> None:
    view = tmp_path / "view.rdx"

    def broken() -> Any:
        yield pa.record_batch({"row_id": [1]})
        raise RuntimeError("the engine stopped")

    stream = pa.RecordBatchReader.from_batches(pa.schema({"row_id": pa.int64()}), broken())
    with pytest.raises(rowdex.Error, match="the engine stopped"):
        rowdex.select(index, view, rows=stream)
    for table, words in (
        ({"file": ["part-7.parquet"], "row_in_file": [0]}, "part-7.parquet"),
        ({"file": ["part-0.parquet"], "row_in_file": [335]}, "335 rows"),
        ({"row_id": [ROWS]}, str(ROWS)),
        ({"row_id": [0.5]}, "row_id"),
        ({"row_id": [None]}, "row_id"),
        ({"file": ["part-0.parquet"]}, "row_in_file"),
        ({"id": [3]}, "file"),
    ):
        with pytest.raises(rowdex.Error, match=words):
            rowdex.select(index, view, rows=pa.table(table))
    with pytest.raises(TypeError):
        rowdex.select(index, view, rows=3)
    assert not view.exists()


def test_views_are_combined_and_say_what_they_are_of(index: str, tmp_path: pathlib.Path) -> None:
    low, odd, view = (tmp_path / name for name in ("low.rdx", "odd.rdx", "view.rdx"))
    rowdex.select(index, low, rows=IdSet.ranges(ROWS, [(0, 600)]))
    rowdex.select(index, odd, skip=pa.table({"row_id": list(range(0, ROWS, 2))}))
    assert rowdex.Index(index).view is None

    def made(*base: Any, **choices: Any) -> list[int]:
        rowdex.select(*base, view, overwrite=True, **choices)
        return ids_of(view)

    assert made(low, intersect=odd) == list(range(1, 600, 2))
    assert made(low, exclude=[odd]) == list(range(0, 600, 2))
    assert made(rowdex.Index(low), union=rowdex.Index(odd)) == sorted({*range(600), *range(1, ROWS, 2)})
    assert made(index, rows=IdSet.ranges(ROWS, [(0, 9)]), skip=IdSet(ROWS, [3])) == [0, 1, 2, 4, 5, 6, 7, 8]
    sample = made(index, sample=0.3, seed=5)
    assert 200 < len(sample) < 400
    assert made(low, sample=0.3, seed=5) == [i for i in sample if i < 600]
    found = rowdex.Index(view).view
    assert found is not None
    assert found["base"] == "low.rdx" and found["rows"] == len(rowdex.Index(view))
    assert found["base_fingerprint"] == f"{rowdex.Index(low).fingerprint:016x}"
    assert found["choices"][0]["sample"] == 0.3
    for wrong in (0, -0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="sample"):
            rowdex.select(index, view, sample=wrong)
    with pytest.raises(rowdex.errors.AlreadyExistsError):
        rowdex.select(index, view, sample=0.5)
    with pytest.raises(rowdex.errors.ArgumentError, match="no rows are chosen"):
        rowdex.select(index, view, overwrite=True)


def test_sets_of_rows_are_made_of_lists_and_views_and_joined(
    index: str, dataset: rowdex.Dataset, tmp_path: pathlib.Path
) -> None:
    rowdex.select(index, tmp_path / "low.rdx", rows=IdSet.ranges(ROWS, [(0, 600)]))
    low = IdSet.view(dataset, rowdex.Index(tmp_path / "low.rdx"))
    some = IdSet.listed(dataset, pa.table({"row_id": [5, 900, 5]}))
    assert (len(low), list(some), list(low & some)) == (600, [5, 900], [5])
    assert len(low | some) == 601 and 900 in (low | some)
    again = pickle.loads(pickle.dumps(low | some))
    assert list(again) == list(low | some)
    orders = Subset("global", low & ~some)
    served: list[int] = []
    for rank in range(3):
        sampler = rowdex.DistributedSampler(
            dataset, rank=rank, num_replicas=3, batch_size=7, order=orders, tail="uneven"
        )
        served.extend(sampler)
    assert sorted(served) == [i for i in range(600) if i != 5]


def test_a_set_of_a_stream_lives_in_forked_children(index: str) -> None:
    program = """
import os, sys, pyarrow as pa, rowdex
from rowdex.order import IdSet
kept = IdSet.listed(rowdex.Index(sys.argv[1]), pa.table({"row_id": [3, 1, 4]}))
child = os.fork()
if child == 0:
    os._exit(0 if list(kept) == [1, 3, 4] else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_python(program, index)
    assert done.returncode == 0, done.stderr


def test_columns_are_served_by_other_names_and_views_keep_them(tmp_path: pathlib.Path) -> None:
    old = pa.table({"content": ["a", "b"], "id": [0, 1]})
    (tmp_path / "data").mkdir()
    pq.write_table(old, tmp_path / "data/a.parquet")
    pq.write_table(pa.table({"id": [2, 3], "text": ["c", None]}), tmp_path / "data/b.parquet")
    with pytest.raises(rowdex.errors.SchemaError, match="content"):
        rowdex.build(tmp_path / "data", tmp_path / "i.rdx")
    report = rowdex.build(tmp_path / "data", tmp_path / "i.rdx", rename={"content": "text"})
    assert (report.unlike_files, report.unlike_example) == (1, "b.parquet: the columns are in another order")
    rowdex.select(tmp_path / "i.rdx", tmp_path / "view.rdx", where="text >= 'b'")
    for name, texts in (("i.rdx", ["a", "b", "c", None]), ("view.rdx", ["b", "c"])):
        assert rowdex.Index(tmp_path / name).renames == {"content": "text"}
        with rowdex.Dataset(tmp_path / name) as dataset:
            table = pa.record_batch(dataset.take(range(len(dataset))))
            assert table.column("text").to_pylist() == texts and table.schema.names == ["text", "id"]
    with pytest.raises(rowdex.errors.ArgumentError, match="no file has the column"):
        rowdex.build(tmp_path / "data", tmp_path / "no.rdx", rename={"contents": "text"}, schema="union")
    with pytest.raises(rowdex.errors.ArgumentError, match="`rename.content`: invalid type: integer `3`"):
        rowdex.build(tmp_path / "data", tmp_path / "no.rdx", rename={"content": 3})  # type: ignore[dict-item]


def test_a_view_has_one_side_of_a_split(index: str, tmp_path: pathlib.Path) -> None:
    sides = []
    for side in ("train", "validation"):
        rowdex.select(index, tmp_path / f"{side}.rdx", split=side, split_fraction=0.3, split_seed=5)
        sides.append(ids_of(tmp_path / f"{side}.rdx"))
        assert sides[-1] == list(IdSet.split(ROWS, side, validation_fraction=0.3, seed=5))
    assert sorted(sides[0] + sides[1]) == list(range(ROWS))
    with pytest.raises(rowdex.errors.ArgumentError, match="test"):
        rowdex.select(index, tmp_path / "x.rdx", split="test")  # type: ignore[arg-type]


def test_weights_of_a_list_are_those_of_the_rows_of_a_view(index: str, tmp_path: pathlib.Path) -> None:
    view, path = tmp_path / "view.rdx", tmp_path / "list.parquet"
    places = [(f"part-{i // 335}.parquet", i % 335, i / 8) for i in reversed(WANTED)]
    files, rows, numbers = zip(*places)
    table = pa.table({"file": files, "row_in_file": rows, "w": numbers})
    pq.write_table(table, path)
    rowdex.select(index, view, rows=path)
    opened = rowdex.Index(view)
    expected = [i / 8 for i in WANTED]
    for rows_of in (table, table.to_reader(max_chunksize=7), path):
        assert list(opened.weights(rows_of, "w")) == expected
    assert list(opened.weights(table, "w", IdSet(len(opened), [3, 1]))) == [expected[1], expected[3]]
    of_base = rowdex.Index(index).weights(pa.table({"row_id": WANTED, "w": expected}), "w", IdSet(ROWS, WANTED))
    assert list(of_base) == expected

    from rowdex.order import Weighted

    with rowdex.Dataset(view) as dataset:
        sampler = rowdex.DistributedSampler(dataset, batch_size=8, order=Weighted(opened.weights(path, "w")))
        assert len(list(sampler)) == len(dataset)
    with pytest.raises(rowdex.errors.ArgumentError, match="row id 0 is not listed"):
        rowdex.Index(index).weights(path, "w")
    with pytest.raises(rowdex.errors.ArgumentError, match="no such column"):
        opened.weights(table, "v")
    with pytest.raises(rowdex.errors.ArgumentError, match="list.parquet.*no such column"):
        opened.weights(path, "v")
    with pytest.raises(rowdex.errors.ArgumentError, match="listed twice"):
        opened.weights(pa.concat_tables([table, table]), "w")


def test_rows_are_counted_by_condition_and_by_class(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    columns: dict[str, Any] = {
        "number": [3, -1, None, 3, 2**63 - 1],
        "flag": [True, False, True, None, True],
        "text": ["b", "", "ä\0x", None, "b"],
        "raw": [b"\x00\xff", b"", b"a", b"a", None],
        "large": pa.array([2**64 - 1, 1, None, 2**63, 1], pa.uint64()),
        "real": [0.5] * 5,
    }
    pq.write_table(pa.table(columns), tmp_path / "data/a.parquet")
    index = tmp_path / "i.rdx"
    rowdex.build(tmp_path / "data", index)
    assert rowdex.count(index) == 5 and rowdex.count(rowdex.Index(index), where="number = 3") == 2
    for name in ("number", "flag", "text", "raw", "large"):
        found = rowdex.count(index, by=name)
        expected = pa.table(columns).column(name).value_counts().to_pylist()
        assert found == {each["values"]: each["counts"] for each in expected}
        values = [value for value in found if value is not None]
        assert values == sorted(values) and list(found)[-1] is None  # type: ignore[type-var]
        assert all(type(value) is type(expected[0]["values"]) for value in values)
    assert rowdex.count(index, where="number = 3", by="text") == {"b": 1, None: 1}
    assert rowdex.count(index, where="number = 4", by="text") == {}
    with pytest.raises(rowdex.errors.SchemaError, match="real"):
        rowdex.count(index, by="real")
    with pytest.raises(rowdex.errors.ArgumentError, match='did you mean "text"'):
        rowdex.count(index, by="texts")
    with pytest.raises(rowdex.errors.ArgumentError, match='did you mean "text"'):
        rowdex.count(index, where="texts = 'b'")
    with pytest.raises(rowdex.Error, match="nowhere"):
        rowdex.count(index, by="text", root=tmp_path / "nowhere")
