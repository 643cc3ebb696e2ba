"""The rows of a version of a Delta Lake table: python examples/with_delta.py events train.rdx [VERSION]

Files that are not of the version are left out, and so are rows that deletion vectors take away."""

import pathlib
import sys
import tempfile

import pyarrow as pa
import rowdex
from deltalake import DeltaTable

SCHEMA = pa.schema({"file": pa.string(), "row_in_file": pa.int64()})


def deleted(table):
    """Which rows are gone, as a list for :func:`rowdex.select`."""
    for batch in pa.table(table.deletion_vectors()).to_batches():
        for path, kept in zip(*batch.to_pydict().values()):
            rows = [row for row, is_kept in enumerate(kept) if not is_kept]
            yield pa.record_batch([[path] * len(rows), rows], schema=SCHEMA)


if __name__ == "__main__":
    path, output, *version = sys.argv[1:]
    table = DeltaTable(path, version=int(version[0]) if version else None)
    note = f"Delta table {table.table_uri} at version {table.version()}"
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        sys.exit(f"the files of {note} have other names for its columns: rewrite it without a column mapping")
    features = table.protocol().reader_features or []
    skip = list(deleted(table)) if "deletionVectors" in features else []
    with tempfile.TemporaryDirectory(dir=pathlib.Path(output).parent) as folder:
        files = pathlib.Path(folder, "files.rdx")
        rowdex.build(table.file_uris(), files, schema="union", progress=False)
        rows = pa.RecordBatchReader.from_batches(SCHEMA, skip)
        report = rowdex.select(files, output, skip=rows if skip else None, note=note, overwrite=True)
    print(f"{report.rows} rows of {note}")
