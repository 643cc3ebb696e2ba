"""Writes what pyarrow reads from every Parquet file below a folder: expect.py DATA OUT.

For DATA/a/b.parquet, OUT/a/b.parquet.arrows is an uncompressed Arrow IPC stream, or OUT/a/b.parquet.error says why
pyarrow refuses. A stream, not a file: dictionaries may differ between its batches, as they do between row groups.
"""

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REFUSALS = (pa.ArrowException, OSError, ValueError)


def read(path: Path) -> pa.Table:
    with pq.ParquetFile(path, memory_map=False, pre_buffer=False, page_checksum_verification=True) as file:
        table = file.read(use_threads=False)
    table.validate(full=True)
    return table


def write(table: pa.Table, path: Path) -> None:
    """Writes `path`.arrows."""
    with pa.OSFile(f"{path}.arrows", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)


def main(data: Path, out: Path) -> None:
    for path in sorted(data.rglob("*.parquet")):
        target = out / path.relative_to(data)
        target.parent.mkdir(parents=True, exist_ok=True)
        known = Path(f"{path}.arrows")
        if known.exists():
            shutil.copy(known, target.parent)
            continue
        try:
            write(read(path), target)
        except REFUSALS as error:
            Path(f"{target}.error").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
