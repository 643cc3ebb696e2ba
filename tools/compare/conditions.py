"""Counts rows by a condition, rowdex beside DuckDB on two threads: python tools/compare/conditions.py DATA

DATA holds the sets of shapes.py and `tab`, each a folder. Both read the files from the page cache, in turns, and must
count the same. Needs duckdb and the package rowdex, built as wheels are (profile `dist`).
"""

from __future__ import annotations

import pathlib
import statistics
import sys
import tempfile
import time

import duckdb
import rowdex
from rowdex.order import IdSet

TURNS = 7

# Set, condition for rowdex, the same for DuckDB where it is spelled otherwise.
CONDITIONS = [
    ("tab", "f0 > 0.5", None),
    ("tab", "n between 100 and 500", None),
    ("tab", "id < 40000", None),
    ("tab", "f0 * f1 > 0.25 and n % 7 = 3", None),
    ("tab", "cat = 'category_0007'", None),
    ("tab", "s like 'ab%'", None),
    ("tab", "length(s) > 11", None),
    ("ragged", "text like '%qu%'", None),
    ("ragged", "source.score > 1", None),
    ("ragged", "array_length(tokens) > 1500", "len(tokens) > 1500"),
    ("parallel", "array_length(genes) > 1000", "len(genes) > 1000"),
]


def main(data: pathlib.Path) -> None:
    connection = duckdb.connect()
    connection.execute("SET threads = 2")
    with tempfile.TemporaryDirectory() as folder:
        for name in dict.fromkeys(name for name, _, _ in CONDITIONS):
            rowdex.build(data / name, pathlib.Path(folder) / f"{name}.rdx")
        print("| set | condition | rows | rowdex ms | DuckDB ms | DuckDB / rowdex |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name, condition, other in CONDITIONS:
            dataset = rowdex.Dataset(pathlib.Path(folder) / f"{name}.rdx", threads=2)
            query = f"SELECT count(*) FROM read_parquet('{data / name}/*.parquet') WHERE {other or condition}"
            times: dict[str, list[float]] = {"rowdex": [], "duckdb": []}
            for _ in range(TURNS):
                began = time.perf_counter()
                ours = len(IdSet.where(dataset, condition))
                middle = time.perf_counter()
                (theirs,) = connection.execute(query).fetchone() or (None,)
                ended = time.perf_counter()
                assert ours == theirs, (name, condition, ours, theirs)
                times["rowdex"].append(middle - began)
                times["duckdb"].append(ended - middle)
            ours_ms, theirs_ms = (statistics.median(taken) * 1e3 for taken in times.values())
            ratio = theirs_ms / ours_ms
            print(f"| `{name}` | `{condition}` | {ours:,} | {ours_ms:.1f} | {theirs_ms:.1f} | {ratio:.2f} |")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
