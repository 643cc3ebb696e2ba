#!/usr/bin/env python3
"""Measures the table of docs/performance.md, and writes it.

    tools/compare/performance.py --measure DATA    measures the sets of DATA; writes docs/performance.json and the table
    tools/compare/performance.py --write           writes the table from docs/performance.json
    tools/compare/performance.py --check           fails if the table is another one

DATA holds the sets of tools/compare/shapes.py; those that are missing are made there. The Python package is to be
installed from a wheel (tools/wheel.sh), and pyarrow and numpy.

Every loader is in a process of its own, 2 threads, 256 rows a batch as Arrow, with memory for 10, 25 and 100 % of the
decoded bytes; in the files' order with 25 %, and some in `blocks(8)` with 10 %. It takes turns with
``pyarrow.Table.take`` of 256 random rows of the whole set decoded in RAM here, so a machine whose speed drifts is fair
to both. A turn is an epoch after the first one. Rows from the cache of a dataset (`take`, and one row) are in
docs/performance.json alone.
"""

from __future__ import annotations

import collections
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
FIGURES = ROOT / "docs/performance.json"
CACHED = ["tab", "tok", "img"]
"""The sets whose rows are taken from a cache, too."""
SHAPES = [*CACHED, "wide", "ragged", "parallel", "small", "mixed", "text", "hub_images"]
CELLS = [("10", "global"), ("25", "global"), ("100", "global"), ("25", "sequential")]
"""The memory, as a share of the decoded bytes in per cent, and the order."""
BESIDE = ("10", "blocks(8)")
"""The same, of those sets that docs/benchmarks.md has beside loaders that shuffle within chunks."""
BENCHMARKS = ["tab", "tok", "text", "hub_images"]
BATCH, THREADS, TURNS = 256, 2, int(os.environ.get("TURNS", 5))


class RowGroups:
    """What people do by hand: a list of (file, row group, row), and a cache of a share of the row groups."""

    def __init__(self, files: list[str], cached: float) -> None:
        import numpy as np
        import pyarrow.parquet as pq

        self.files = [pq.ParquetFile(file) for file in files]
        self.groups = [(file, group) for file in self.files for group in range(file.metadata.num_row_groups)]
        self.ends = np.cumsum([file.metadata.row_group(group).num_rows for file, group in self.groups])
        self.limit = int(len(self.groups) * cached)
        self.cache: collections.OrderedDict[int, Any] = collections.OrderedDict()

    def group(self, number: int) -> Any:
        table = self.cache.pop(number, None)
        if table is None:
            file, group = self.groups[number]
            table = file.read_row_group(group, use_threads=True)
        if self.limit:
            self.cache[number] = table
            if len(self.cache) > self.limit:
                self.cache.popitem(last=False)
        return table

    def batch(self, rows: Any) -> int:
        return len(self.rows(rows).combine_chunks())

    def rows(self, rows: Any) -> Any:
        import numpy as np
        import pyarrow as pa

        pieces = []
        for row, number in zip(rows, np.searchsorted(self.ends, rows, side="right")):
            start = self.ends[number - 1] if number else 0
            pieces.append(self.group(int(number)).slice(row - start, 1))
        return pa.concat_tables(pieces)


def resident() -> int:
    """Bytes of this process that no file has."""
    status = pathlib.Path("/proc/self/status").read_text()
    return sum(int(size) << 10 for size in re.findall(r"^Rss(?:Anon|Shmem):\s*(\d+) kB$", status, re.M))


def side(index: str, order: str, share: int) -> None:
    """The process of a loader: serves an epoch for each line that it reads."""
    import rowdex

    before, most = resident(), 0
    dataset = rowdex.Dataset(index)
    memory = dataset.decoded_bytes * share // 100
    loader = rowdex.Loader(dataset, batch_size=BATCH, memory=memory, threads=THREADS, order=order, output="arrow")
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.02):
            most = max(most, resident() - before)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    for _ in sys.stdin:
        start, cpu, decodes = time.perf_counter(), time.process_time(), loader.stats.decodes
        rows = sum(len(batch) for batch in loader)
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        decodes = loader.stats.decodes - decodes
        told = {"rows": rows, "seconds": seconds, "cpu": cpu, "decodes": decodes, "memory": memory}
        print(json.dumps({**told, "resident": most}), flush=True)
    ended.set()
    loader.close()


def in_turns(index: str, order: str, share: int, groups: int, take: Callable[[], float]) -> dict[str, float]:
    """The medians of a loader's figures, beside its peer's."""
    command = [sys.executable, __file__, "--side", index, order, str(share)]
    turns, passes = [], []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        for turn in range(TURNS + 1):
            print(file=process.stdin, flush=True)
            told, peer = json.loads(process.stdout.readline()), take()
            rate = told["rows"] / told["seconds"]
            passes.append(told["decodes"] / groups)
            # The first turn fills the memory.
            if turn:
                turns.append((rate, rate / peer, told["cpu"] / told["rows"] * 1e6))
        process.stdin.close()
    rate, ratio, cpu = (statistics.median(each) for each in zip(*turns))
    if process.returncode:
        raise SystemExit(f"the loader failed on {index}")
    return {
        "rate": rate, "ratio": ratio, "cpu": cpu, "passes": statistics.fmean(passes[1:]), "memory": told["memory"],
        "resident": told["resident"],
    }  # fmt: skip


def cached(index: str, table: Any, random: Any) -> dict[str, float]:
    """Rows that the cache of a dataset holds: the rate of `take` over that of `Table.take`, and µs of one row."""
    import pyarrow as pa
    import rowdex

    dataset = rowdex.Dataset(index, cache=1 << 40)
    for first in range(0, len(table), 4096):
        dataset.take(range(first, min(first + 4096, len(table))))
    picks = random.integers(0, len(table), (200, BATCH))

    def rate(take: Callable[[Any], Any]) -> float:
        start = time.perf_counter()
        for pick in picks:
            take(pick)
        return picks.size / (time.perf_counter() - start)

    decodes = dataset.counters.decodes
    ratios = [rate(dataset.take) / rate(lambda pick: table.take(pa.array(pick))) for _ in range(TURNS)]
    rows = picks[:8].ravel().tolist()
    start = time.perf_counter()
    for row in rows:
        dataset.take([row])
    one = (time.perf_counter() - start) / len(rows) * 1e6
    if dataset.counters.decodes != decodes:
        raise SystemExit(f"the cache does not hold {index}")
    return {"take": statistics.median(ratios), "microseconds of one row": one}


def measured(data: pathlib.Path, index: str) -> dict[str, Any]:
    """The figures of a set."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import rowdex

    files = sorted(map(str, data.glob("*.parquet")))
    groups = rowdex.build(str(data), index).row_groups
    table = pq.read_table(data).combine_chunks()
    random, takes = np.random.default_rng(1), []

    def take() -> float:
        # A part of an epoch is enough for a rate.
        picks = [random.integers(0, len(table), BATCH) for _ in range(max(1, min(len(table) // BATCH, 400)))]
        start = time.perf_counter()
        for pick in picks:
            table.take(pa.array(pick))
        takes.append(BATCH * len(picks) / (time.perf_counter() - start))
        return takes[-1]

    found: dict[str, Any] = {"rows": len(table), "bytes": table.nbytes}
    cells = [*CELLS, BESIDE] if data.name in BENCHMARKS else CELLS
    found["cells"] = [
        {"share": share, "order": order, **in_turns(index, order, int(share), groups, take)} for share, order in cells
    ]
    found["take"] = statistics.median(takes)
    if data.name in CACHED:
        found["cached"] = cached(index, table, random)
        cache, start, rows = RowGroups(files, 0.25), time.perf_counter(), 0
        while time.perf_counter() - start < TURNS:
            rows += cache.batch(random.integers(0, len(table), 16))
        rate = rows / (time.perf_counter() - start)
        found["cached row groups"] = {"rate": rate, "ratio": rate / found["take"]}
    return found


def measure(data: pathlib.Path) -> None:
    import pyarrow as pa

    pa.set_cpu_count(1)
    subprocess.run([sys.executable, ROOT / "tools/compare/shapes.py", data, *SHAPES], check=True)
    figures: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "from": f"tools/compare/performance.py, {os.cpu_count()} cores, {platform.machine()}, pyarrow {pa.__version__}",
        "sets": {},
    }
    with tempfile.TemporaryDirectory() as scratch:
        for name in SHAPES:
            if (data / name).exists():
                figures["sets"][name] = measured(data / name, f"{scratch}/{name}.rdx")
                print(name, json.dumps(figures["sets"][name]), flush=True)
    FIGURES.write_text(json.dumps(figures, indent=1) + "\n")


def short(rate: float) -> str:
    """Rows a second as people say them."""
    return f"{rate / 1e6:.1f} M" if rate >= 999_500 else f"{rate / 1e3:.0f} k" if rate >= 9_995 else f"{rate:,.0f}"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]]


def once(rows: list[list[str]]) -> list[list[str]]:
    """The lines of a table, of which only the first one of each set names it."""
    sets = [first for first, *_ in rows]
    return [["" if first == before else first, *rest] for before, (first, *rest) in zip(["", *sets], rows)]


def full(figures: dict[str, Any]) -> list[str]:
    """The table of docs/performance.md."""
    rows = []
    for name, found in figures["sets"].items():
        for each in found["cells"]:
            told = [f"{each[key]:.{places}f}" for key, places in [("ratio", 2), ("cpu", 2), ("passes", 1)]]
            sizes = [f"{size / 1e6:,.0f}" for size in (each["memory"], each["resident"], found["bytes"])]
            rows.append([f"`{name}`", f"{each['share']} %", f"`{each['order']}`", short(each["rate"]), *told, *sizes])
    head = ["set", "memory", "order", "rows/s", "of `take`", "CPU s a million rows", "passes"]
    head += ["memory, MB", "resident, MB", "resident of `take`, MB"]
    return [f"Measured on {figures['date']} ({figures['from']}).", "", *table(head, once(rows))]


MARK = "<!-- tools/compare/performance.py --write -->\n"


def placed(path: pathlib.Path, mark: str, lines: list[str]) -> tuple[str, str]:
    """A document, and what it is with these lines between a mark and the next end."""
    text, end = path.read_text(), "<!-- end -->"
    before, rest = text.split(mark)
    return text, before + mark + "\n".join(lines) + "\n" + end + rest.split(end, 1)[1]


def main() -> None:
    match sys.argv[1:]:
        case ["--side", index, order, share]:
            side(index, order, int(share))
            return
        case ["--measure", data]:
            measure(pathlib.Path(data).resolve())
        case ["--write"] | ["--check"]:
            pass
        case _:
            sys.exit(__doc__)
    figures = json.loads(FIGURES.read_text())
    path = ROOT / "docs/performance.md"
    there, due = placed(path, MARK, full(figures))
    if there != due:
        if sys.argv[1] == "--check":
            sys.exit(f"{path.name} has other figures than {FIGURES.name}: run tools/compare/performance.py --write")
        path.write_text(due)


if __name__ == "__main__":
    main()
