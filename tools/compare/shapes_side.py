"""The Python Loader beside its peers, on every shape: python tools/compare/shapes_side.py DATA [TASK] [SHAPE ...]

DATA holds the sets that tools/compare/shapes.py writes, and the benchmark sets `tab`, `tok` and `img`, as folders.

    shuffled    batches of 256 rows in the global order, 2 threads, Arrow output, beside `pyarrow.Table.take` of as many
                random rows of the whole set decoded in RAM. The loader has memory for 10, 25, 100 and 110 % of the
                decoded bytes, and turns are whole epochs after the first.
    sequential  batches of 1,024 rows in the files' order, beside pyarrow, polars and DuckDB as they decode the same
                files on two threads. The loader has memory for 25 and 130 %.
    batches     what a batch costs its consumer: seconds of CPU of the thread that iterates, everything in memory.

Both sides take turns in one process, so a machine whose speed drifts is fair to both. Printed are the medians of the
rates and of the ratios, the seconds of CPU time for a million rows, the loader's own peak of memory as a share of what
it may have, and what its threads spent their time on. The seconds of CPU include the consumer.
"""

from __future__ import annotations

import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rowdex

SHAPES = ["tab", "tok", "img", "wide", "ragged", "parallel", "small", "mixed"]
TURNS = int(os.environ.get("TURNS", 5))
THREADS = 2


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Rows per second, and seconds of CPU for a million rows."""
    start, cpu = time.perf_counter(), time.process_time()
    rows = work()
    return rows / (time.perf_counter() - start), (time.process_time() - cpu) / rows * 1e6


def in_turns(sides: dict[str, Callable[[], int]]) -> dict[str, list[tuple[float, float]]]:
    """What each side needed in each turn, after a first one that warms up."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for turn in range(TURNS + 1):
        for name, work in sides.items():
            rate = timed(work)
            if turn:
                found[name].append(rate)
    return found


def told(found: dict[str, list[tuple[float, float]]], ours: str, theirs: str) -> str:
    rates, peers = ([rate for rate, _ in found[side]] for side in (ours, theirs))
    ratio = statistics.median(own / other for own, other in zip(rates, peers))
    cpu = statistics.median(cpu for _, cpu in found[ours])
    return f"{statistics.median(rates):,.0f} rows/s, {ratio:.2f}x, {cpu:.2f} s of CPU a million rows"


def count(batches: Iterator[rowdex.Batch]) -> int:
    return sum(len(batch) for batch in batches)


def shuffled(name: str, data: pathlib.Path, index: str, groups: int) -> None:
    table = pq.read_table(data).combine_chunks()
    random = np.random.default_rng(1)

    def take() -> int:
        # A part of an epoch is enough for a rate.
        picks = [random.integers(0, len(table), 256) for _ in range(max(1, min(len(table) // 256, 400)))]
        for pick in picks:
            table.take(pa.array(pick))
        return 256 * len(picks)

    for share in [10, 25, 100, 110]:
        dataset = rowdex.Dataset(index)
        memory = dataset.decoded_bytes * share // 100
        loader = rowdex.Loader(dataset, batch_size=256, memory=memory, threads=THREADS, output="arrow")
        found = in_turns({"rowdex": lambda: count(iter(loader)), "take": take})
        stats = loader.stats
        passes = stats.decodes / groups / (TURNS + 1)
        peak = stats.peak_bytes / memory
        found_text = told(found, "rowdex", "take")
        spent = {
            "decoding": stats.decoding,
            "picking": stats.extracting,
            "assembling": stats.assembling,
            "planning": stats.planning,
        }
        parts = ", ".join(f"{part} {time / max(sum(spent.values()), 1e-9):.0%}" for part, time in spent.items())
        print(
            f"{name} {share} %: {found_text}, {passes:.2f} passes an epoch, peak {peak:.2f} of the memory; of the time "
            f"of its threads {parts}",
            flush=True,
        )
        loader.close()


def sequential(name: str, data: pathlib.Path, index: str, groups: int) -> None:
    import duckdb
    import polars

    pa.set_cpu_count(THREADS)
    files = sorted(map(str, data.glob("*.parquet")))

    def by_pyarrow() -> int:
        return sum(
            len(batch)
            for file in files
            for batch in pq.ParquetFile(file, pre_buffer=True).iter_batches(batch_size=1024)
        )

    def by_pyarrow_dataset() -> int:
        import pyarrow.dataset

        return sum(len(batch) for batch in pyarrow.dataset.dataset(files).to_batches(batch_size=1024))

    def by_polars() -> int:
        return sum(len(polars.read_parquet(file, use_statistics=False)) for file in files)

    connection = duckdb.connect(config={"threads": THREADS})

    def by_duckdb() -> int:
        read = connection.execute(f"select * from read_parquet({files!r})")
        reader = read.to_arrow_reader(1024) if hasattr(read, "to_arrow_reader") else read.fetch_record_batch(1024)
        return sum(len(batch) for batch in reader)

    dataset = rowdex.Dataset(index)
    loaders = {
        f"rowdex {share} %": rowdex.Loader(
            dataset,
            batch_size=1024,
            memory=dataset.decoded_bytes * share // 100,
            threads=THREADS,
            order="sequential",
            output="arrow",
        )
        for share in [25]
    }
    sides: dict[str, Callable[[], int]] = {
        side: (lambda loader=loader: count(iter(loader))) for side, loader in loaders.items()
    }
    sides["rowdex 130 %, first epoch"] = lambda: count(
        iter(
            rowdex.Loader(
                dataset,
                batch_size=1024,
                memory=dataset.decoded_bytes * 13 // 10,
                threads=THREADS,
                order="sequential",
                output="arrow",
            )
        )
    )
    peers = {"pyarrow": by_pyarrow, "pyarrow.dataset": by_pyarrow_dataset, "polars": by_polars, "duckdb": by_duckdb}
    found = in_turns({**sides, **peers})
    rates = {peer: statistics.median(rate for rate, _ in found[peer]) for peer in peers}
    best = max(rates, key=lambda peer: rates[peer])
    print(f"{name}, in the files' order: " + ", ".join(f"{peer} {rate:,.0f}" for peer, rate in rates.items()))
    for side in sides:
        print(f"{name}, in the files' order, {side}: {told(found, side, best)} (of {best})", flush=True)


def batches(name: str, data: pathlib.Path, index: str, groups: int) -> None:
    for output in ["arrow", "numpy", "torch"]:
        dataset = rowdex.Dataset(index)
        options = {} if output == "arrow" else {"nulls": "fill", "strings": "offsets"}
        loader = rowdex.Loader(
            dataset, batch_size=256, memory=dataset.decoded_bytes * 2, threads=THREADS, output=output, **options
        )
        rows, spent, rates = 0, 0.0, []
        for epoch in range(TURNS + 1):
            start, cpu = time.perf_counter(), time.thread_time()
            steps = sum(1 for _ in loader)
            if epoch:
                spent += time.thread_time() - cpu
                rows += steps
                rates.append(len(dataset) / (time.perf_counter() - start))
        print(
            f"{name}, held whole, {output}: {spent / rows * 1e6:.1f} us of CPU of its consumer a batch, "
            f"{statistics.median(rates):,.0f} rows/s",
            flush=True,
        )
        loader.close()


TASKS = {"shuffled": shuffled, "sequential": sequential, "batches": batches}


def main() -> None:
    data = pathlib.Path(sys.argv[1]).resolve()
    chosen = sys.argv[2:]
    tasks = [task for task in TASKS if task in chosen] or list(TASKS)
    shapes = [shape for shape in SHAPES if shape in chosen] or [shape for shape in SHAPES if (data / shape).exists()]
    with tempfile.TemporaryDirectory() as scratch:
        for name in shapes:
            index = f"{scratch}/{name}.rdx"
            groups = rowdex.build(str(data / name), index).row_groups
            for task in tasks:
                TASKS[task](name, data / name, index, groups)


if __name__ == "__main__":
    main()
