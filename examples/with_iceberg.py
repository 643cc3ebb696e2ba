"""The rows of an Iceberg table: python examples/with_iceberg.py CATALOG some.events train.rdx [SNAPSHOT]

CATALOG is one that pyiceberg is configured for. Rows that position deletes take away are left out."""

import pathlib
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq
import rowdex
from pyiceberg.catalog import load_catalog

SCHEMA = pa.schema({"file": pa.string(), "row_in_file": pa.int64()})


def deleted(scan, task):
    """Which rows of a file are gone, as a list for :func:`rowdex.select`."""
    for file in task.delete_files:
        rows = pq.read_table(scan.io.new_input(file.file_path).open(), columns=["file_path", "pos"]).to_pylist()
        own = sorted({row["pos"] for row in rows if row["file_path"] == task.file.file_path})
        yield pa.record_batch([[task.file.file_path] * len(own), own], schema=SCHEMA)


if __name__ == "__main__":
    catalog, name, output, *snapshot = sys.argv[1:]
    table = load_catalog(catalog).load_table(name)
    names = {(field.field_id, field.name) for schema in table.schemas().values() for field in schema.fields}
    if len({number for number, _ in names}) < len(names) or len({own for _, own in names}) < len(names):
        sys.exit(f"columns of {name} were renamed, and its files have the old names: rewrite them")
    scan = table.scan(snapshot_id=int(snapshot[0]) if snapshot else None)
    note = f"Iceberg table {name} at snapshot {scan.snapshot().snapshot_id}"
    tasks = list(scan.plan_files())
    skip = [batch for task in tasks for batch in deleted(scan, task)]
    with tempfile.TemporaryDirectory(dir=pathlib.Path(output).parent) as folder:
        files = pathlib.Path(folder, "files.rdx")
        rowdex.build([task.file.file_path for task in tasks], files, schema="union", progress=False)
        rows = pa.RecordBatchReader.from_batches(SCHEMA, skip)
        report = rowdex.select(files, output, skip=rows if skip else None, note=note, overwrite=True)
    print(f"{report.rows} rows of {note}")
