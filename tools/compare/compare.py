"""rowdex beside pyarrow, in turns, on the benchmark sets: python tools/compare/compare.py DATA [TASK ...]

DATA holds the sets `tab`, `tok` and `img` as folders of Parquet files. Tasks: take, get, cold-get, build, tier. Both
sides stay alive and take turns, so a machine whose speed drifts is fair to both; medians of the rates and of the ratios
are printed. The loader is measured by tools/compare/performance.py. Build first:

    cargo build --release -p rowdex --features cli --example rowdex_side
"""

from __future__ import annotations

import glob
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BATCH = 256
ROUNDS = 11
SMALL_FILES = 2000


class Rowdex:
    """The other process."""

    def __init__(self, task: str, data: pathlib.Path | list[str], scratch: str) -> None:
        self.rows = self.decodes = 0
        program = REPOSITORY / "target/release/examples/rowdex_side"
        places = data if isinstance(data, list) else [data]
        self.process = subprocess.Popen(
            [program, task, *places, scratch], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def burst(self, size: int) -> tuple[float, float, float]:
        """Rows (or files), seconds and bytes read."""
        assert self.process.stdin and self.process.stdout
        print(size, file=self.process.stdin, flush=True)
        rows, seconds, read, decodes = self.process.stdout.readline().split()
        self.rows += int(rows)
        self.decodes += int(decodes)
        return float(rows), float(seconds), float(read)

    def close(self) -> None:
        self.process.communicate()


def in_turns(rowdex: Rowdex, size: int, peer: Callable[[], tuple[float, float]]) -> tuple[float, float, float]:
    """Median rates of both and median ratio."""
    rates = []
    for turn in range(ROUNDS + 1):
        rows, seconds, _ = rowdex.burst(size)
        peer_rows, peer_seconds = peer()
        if turn > 0:  # The first turn warms both up.
            rates.append((rows / seconds, peer_rows / peer_seconds))
    ours, theirs = zip(*rates)
    ratio = statistics.median(a / b for a, b in rates)
    return statistics.median(ours), statistics.median(theirs), ratio


def take(data: pathlib.Path, scratch: str) -> None:
    for name, batches in [("tab", 400), ("tok", 100), ("img", 20)]:
        table = pq.read_table(data / name).combine_chunks()
        random = np.random.default_rng(1)

        def peer() -> tuple[float, float]:
            picks = [pa.array(random.integers(0, len(table), BATCH)) for _ in range(batches)]
            start = time.perf_counter()
            for pick in picks:
                table.take(pick)
            return batches * BATCH, time.perf_counter() - start

        rowdex = Rowdex("take", data / name, scratch)
        ours, theirs, ratio = in_turns(rowdex, batches, peer)
        rowdex.close()
        print(
            f"take {BATCH} cached, {name}: rowdex {ours:,.0f} rows/s, "
            f"pyarrow.Table.take {theirs:,.0f} rows/s, {ratio:.2f}x"
        )


def get(data: pathlib.Path, scratch: str) -> None:
    for name in ["tab", "tok", "img"]:
        rowdex = Rowdex("get", data / name, scratch)
        rates = [rowdex.burst(40) for _ in range(ROUNDS)]
        rowdex.close()
        micros = statistics.median(seconds / rows * 1e6 for rows, seconds, _ in rates)
        print(f"get one cached row, {name}: {micros:.2f} us")


def cold_get(data: pathlib.Path, scratch: str) -> None:
    for name in ["tab", "tok", "img"]:
        metadata = pq.ParquetFile(sorted(glob.glob(str(data / name / "*.parquet")))[0]).metadata
        group = metadata.row_group(0)
        whole = sum(group.column(column).total_compressed_size for column in range(group.num_columns))
        rowdex = Rowdex("cold-get", data / name, scratch)
        rows, seconds, read = rowdex.burst(20)
        rowdex.close()
        print(
            f"get one cold row, {name}: {seconds / rows * 1e3:.2f} ms with opening, "
            f"{read / rows:,.0f} bytes read, {read / rows / whole:.1%} of a row group"
        )


def build(data: pathlib.Path, scratch: str) -> None:
    folder = pathlib.Path(scratch) / "small"
    folder.mkdir(exist_ok=True)
    source = pq.ParquetFile(sorted(glob.glob(str(data / "tab" / "*.parquet")))[0])
    rows = next(source.iter_batches(1000))
    for number in range(SMALL_FILES):
        pq.write_table(pa.Table.from_batches([rows]), folder / f"{number:05}.parquet")
    files = sorted(glob.glob(str(folder / "*.parquet")))

    def peer() -> tuple[float, float]:
        start = time.perf_counter()
        for file in files:
            pq.read_metadata(file)
        return len(files), time.perf_counter() - start

    rowdex = Rowdex("build", folder, scratch)
    ours, theirs, ratio = in_turns(rowdex, 1, peer)
    rowdex.close()
    print(
        f"build, {SMALL_FILES} files: rowdex {ours:,.0f} files/s, "
        f"pyarrow.parquet.read_metadata {theirs:,.0f} files/s, {ratio:.1f}x"
    )


def tier(data: pathlib.Path, scratch: str) -> None:
    shuffle("tier", [("tok", 10, [10, 25]), ("tab", 200, [10]), ("img", 10, [10])], data, scratch)


def shuffle(side: str, sets: list[tuple[str, int, list[int]]], data: pathlib.Path, scratch: str) -> None:
    for name, batches, shares in sets:
        table = pq.read_table(data / name).combine_chunks()
        files = sorted(glob.glob(str(data / name / "*.parquet")))
        groups = sum(pq.ParquetFile(file).metadata.num_row_groups for file in files)
        random = np.random.default_rng(1)
        # Less would flatter a loader, which reads ahead while the other side has its turn.
        epoch = -(-len(table) // BATCH)

        def peer() -> tuple[float, float]:
            picks = [pa.array(random.integers(0, len(table), BATCH)) for _ in range(batches)]
            start = time.perf_counter()
            for pick in picks:
                table.take(pick)
            return len(picks) * BATCH, time.perf_counter() - start

        for share in shares:
            # A folder of its own, so that a tier begins empty and is gone when it was measured.
            with tempfile.TemporaryDirectory(dir=scratch) as folder:
                rowdex = Rowdex(f"{side}-{share}", data / name, folder)
                ours, theirs, ratio = in_turns(rowdex, epoch, peer)
                rowdex.close()
            passes = rowdex.decodes / groups / (rowdex.rows / len(table))
            print(
                f"{side}, global shuffle, {name}, memory {share} %: {passes:.2f} passes an epoch, "
                f"rowdex {ours:,.0f} rows/s, "
                f"pyarrow.Table.take {theirs:,.0f} rows/s, {ratio:.2f}x"
            )


TASKS = {
    "tier": tier,
    "take": take,
    "get": get,
    "cold-get": cold_get,
    "build": build,
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or any(task not in TASKS for task in sys.argv[2:]):
        sys.exit(__doc__)
    pa.set_cpu_count(1)
    with tempfile.TemporaryDirectory() as scratch:
        for task in sys.argv[2:] or TASKS:
            TASKS[task](pathlib.Path(sys.argv[1]), scratch)
