"""Delta Lake and Iceberg tables: the rows of an index are those that the package itself reads of the snapshot."""

from __future__ import annotations

import base64
import json
import pathlib
import struct
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need


def rows_of(index: pathlib.Path) -> list[dict[str, Any]]:
    with rowdex.Dataset(index) as dataset:
        return sorted(pa.record_batch(dataset.take(range(len(dataset)))).to_pylist(), key=lambda row: row["id"])


def numbers(first: int, rows: int, **more: Any) -> pa.Table:
    ids = range(first, first + rows)
    columns = {name: [make(i) for i in ids] for name, make in more.items()}
    return pa.table({"id": pa.array(ids, pa.int64()), "text": [f"row {i}" for i in ids], **columns})


def expected(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: row["id"])


@pytest.fixture()
def delta(tmp_path: pathlib.Path) -> Any:
    need("deltalake")
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "table", numbers(0, 100))
    write_deltalake(tmp_path / "table", numbers(100, 50), mode="append")
    return DeltaTable(tmp_path / "table")


def test_a_delta_table_is_indexed_at_its_snapshot(delta: Any, tmp_path: pathlib.Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    delta.delete("id >= 20 AND id < 30")
    write_deltalake(delta, numbers(150, 7, extra=float), mode="append", schema_mode="merge")
    for version in (0, 1, 2, 3):
        table = DeltaTable(tmp_path / "table", version=version)
        report = rowdex.build(table, tmp_path / "i.rdx", overwrite=True)
        assert report.rows == (100, 150, 140, 147)[version]
        assert rows_of(tmp_path / "i.rdx") == expected(pa.table(table.to_pyarrow_table()))
        found = rowdex.Index(tmp_path / "i.rdx").view
        assert found is not None and f"at version {version}" in found["choices"][0]["kept"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["i.rdx", "table"]


def test_the_partitions_of_a_delta_table_are_columns(tmp_path: pathlib.Path) -> None:
    need("deltalake")
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "table", numbers(0, 40, part=lambda i: f"p {i % 3}"), partition_by=["part"])
    rowdex.build(DeltaTable(tmp_path / "table"), tmp_path / "i.rdx")
    assert [(row["id"], row["part"]) for row in rows_of(tmp_path / "i.rdx")] == [(i, f"p {i % 3}") for i in range(40)]


def deletion_vector(rows: list[int]) -> dict[str, Any]:
    """As the protocol of Delta Lake writes one into the log: a roaring bitmap array in Z85."""
    container = struct.pack("<HH", 0, len(rows) - 1)
    values = b"".join(struct.pack("<H", row) for row in rows)
    bitmap = struct.pack("<II", 12346, 1) + container + struct.pack("<I", 16) + values
    payload = struct.pack("<I", 1681511377) + struct.pack("<Q", 1) + struct.pack("<I", 0) + bitmap
    padded = payload + bytes(-len(payload) % 4)
    return {
        "storageType": "i",
        "pathOrInlineDv": base64.z85encode(padded).decode() if hasattr(base64, "z85encode") else z85(padded),
        "sizeInBytes": len(payload),
        "cardinality": len(rows),
    }


def z85(data: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    text = ""
    for (word,) in struct.iter_unpack(">I", data):
        text += "".join(digits[word // 85**place % 85] for place in (4, 3, 2, 1, 0))
    return text


def test_rows_that_deletion_vectors_take_away_are_not_served(delta: Any, tmp_path: pathlib.Path) -> None:
    from deltalake import DeltaTable

    log = tmp_path / "table/_delta_log"
    adds = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines() if '"add"' in line]
    first = adds[0]["add"]
    gone = [0, 5, 6, 99]
    protocol = {
        "minReaderVersion": 3, "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"],
    }  # fmt: skip
    lines = [
        {"protocol": protocol},
        {"remove": {"path": first["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**first, "deletionVector": deletion_vector(gone)}},
    ]
    (log / f"{2:020}.json").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    report = rowdex.build(DeltaTable(tmp_path / "table"), tmp_path / "i.rdx")
    assert (report.rows, report.source_rows) == (146, 150)
    assert [row["id"] for row in rows_of(tmp_path / "i.rdx")] == [i for i in range(150) if i not in gone]


def test_delta_tables_that_cannot_be_honoured_are_refused(delta: Any, tmp_path: pathlib.Path) -> None:
    from deltalake import DeltaTable

    for name, value in (("rows_file", "x.csv"), ("update", True)):
        with pytest.raises(rowdex.ArgumentError, match=name):
            rowdex.build(delta, tmp_path / "i.rdx", **{name: value})
    log = tmp_path / "table/_delta_log"
    first = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    metadata = next(line["metaData"] for line in first if "metaData" in line)
    fields = json.loads(metadata["schemaString"])
    for number, field in enumerate(fields["fields"]):
        field["metadata"] = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
    mapped = {
        **metadata,
        "schemaString": json.dumps(fields),
        "configuration": {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"},
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    lines = [{"protocol": protocol}, {"metaData": mapped}]
    (log / f"{2:020}.json").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    with pytest.raises(rowdex.ArgumentError, match="maps its columns by name"):
        rowdex.build(DeltaTable(tmp_path / "table"), tmp_path / "i.rdx")
    assert not (tmp_path / "i.rdx").exists()


@pytest.fixture()
def catalog(tmp_path: pathlib.Path) -> Any:
    need("pyiceberg", "sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    catalog.create_namespace("some")
    return catalog


def test_an_iceberg_table_is_indexed_at_its_snapshot(catalog: Any, tmp_path: pathlib.Path) -> None:
    table = catalog.create_table("some.table", schema=numbers(0, 1).schema)
    table.append(numbers(0, 100))
    first = table.current_snapshot().snapshot_id
    table.append(numbers(100, 50))
    table.delete("id >= 20 and id < 30")
    with table.update_schema() as update:
        update.union_by_name(numbers(0, 1, extra=float).schema)
    table.append(numbers(150, 7, extra=float))
    rowdex.build(table, tmp_path / "i.rdx")
    assert rows_of(tmp_path / "i.rdx") == expected(table.scan().to_arrow())
    rowdex.build(table.scan(snapshot_id=first), tmp_path / "first.rdx")
    assert [row["id"] for row in rows_of(tmp_path / "first.rdx")] == list(range(100))
    found = rowdex.Index(tmp_path / "first.rdx").view
    assert found is not None and str(first) in found["choices"][0]["kept"]


def test_rows_that_position_deletes_take_away_are_not_served(catalog: Any, tmp_path: pathlib.Path) -> None:
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.table import DataScan

    table = catalog.create_table("some.table", schema=numbers(0, 1).schema)
    table.append(numbers(0, 100))
    table.append(numbers(100, 50))
    tasks = list(table.scan().plan_files())
    path = next(task.file.file_path for task in tasks if task.file.record_count == 100)
    other = next(task.file.file_path for task in tasks if task.file.record_count == 50)
    deletes = pa.table({"file_path": [path, other, path, path], "pos": pa.array([3, 4, 7, 3], pa.int64())})
    pq.write_table(deletes, tmp_path / "deletes.parquet")
    delete = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path=f"file://{tmp_path}/deletes.parquet",
        file_format=FileFormat.PARQUET, record_count=4, file_size_in_bytes=1,
    )  # fmt: skip

    class WithDeletes(DataScan):
        def plan_files(self) -> Any:
            for task in super().plan_files():
                task.delete_files.add(delete)
                yield task

    # The package writes no position deletes, so a scan says that there are some.
    scan = table.scan()
    scan.__class__ = WithDeletes
    rowdex.build(scan, tmp_path / "i.rdx")
    gone = {3, 7, 104}
    assert [row["id"] for row in rows_of(tmp_path / "i.rdx")] == [i for i in range(150) if i not in gone]
    delete = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES, file_path="deletes.puffin",
        file_format=FileFormat.PUFFIN, record_count=4, file_size_in_bytes=1,
    )  # fmt: skip
    with pytest.raises(rowdex.ArgumentError, match="deletes.puffin"):
        rowdex.build(scan, tmp_path / "no.rdx")


def test_iceberg_tables_that_cannot_be_honoured_are_refused(catalog: Any, tmp_path: pathlib.Path) -> None:
    table = catalog.create_table("some.table", schema=numbers(0, 1).schema)
    with pytest.raises(rowdex.ArgumentError, match="has no files"):
        rowdex.build(table, tmp_path / "i.rdx")
    table.append(numbers(0, 10))
    for scan in (table.scan(row_filter="id > 3"), table.scan(limit=3), table.scan(selected_fields=("id",))):
        with pytest.raises(rowdex.ArgumentError, match="whole snapshot"):
            rowdex.build(scan, tmp_path / "i.rdx")
    with pytest.raises(rowdex.ArgumentError, match="rename and a table"):
        rowdex.build(table, tmp_path / "i.rdx", rename={"text": "words"})
    for given in ({"slice": (0, 2)}, {"parts": ["part.rdx"]}):
        with pytest.raises(TypeError, match="a table has its own"):
            rowdex.build(table, tmp_path / "i.rdx", **given)
    with table.update_schema() as update:
        update.delete_column("text")
    with pytest.warns(UserWarning, match="dropped: text"):
        rowdex.build(table, tmp_path / "i.rdx")
    assert [row["id"] for row in rows_of(tmp_path / "i.rdx")] == list(range(10))


def test_columns_of_an_iceberg_table_that_were_renamed_have_their_names_now(
    catalog: Any, tmp_path: pathlib.Path
) -> None:
    table = catalog.create_table("some.table", schema=numbers(0, 1).schema)
    table.append(numbers(0, 10))
    for first, (old, new) in ((10, ("text", "words")), (20, ("words", "content"))):
        with table.update_schema() as update:
            update.rename_column(old, new)
        table.append(numbers(first, 10).rename_columns(["id", new]))
    rowdex.build(table, tmp_path / "i.rdx")
    assert rows_of(tmp_path / "i.rdx") == expected(table.scan().to_arrow())
    assert rowdex.Index(tmp_path / "i.rdx").renames == {"text": "content", "words": "content"}
    # A file with another column by an old name: no name says which is which.
    with table.update_schema() as update:
        update.union_by_name(pa.schema([("text", pa.string())]))
    table.append(numbers(30, 5).append_column("content", pa.array(["c"] * 5)))
    with pytest.raises(rowdex.ArgumentError, match="has another column text than other files"):
        rowdex.build(table, tmp_path / "no.rdx")


def test_a_renamed_field_of_an_iceberg_struct_is_refused(catalog: Any, tmp_path: pathlib.Path) -> None:
    rows = pa.table({"id": [1, 2], "meta": [{"lang": "en"}, {"lang": "fr"}]})
    table = catalog.create_table("some.table", schema=rows.schema)
    table.append(rows)
    rowdex.build(table, tmp_path / "i.rdx")
    assert rows_of(tmp_path / "i.rdx") == rows.to_pylist()
    with table.update_schema() as update:
        update.rename_column("meta.lang", "language")
    with pytest.raises(rowdex.ArgumentError, match="calls a field of meta lang"):
        rowdex.build(table, tmp_path / "no.rdx")
