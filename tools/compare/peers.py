"""rowdex beside everything else that serves random rows of Parquet data: python tools/compare/peers.py DATA [SET ...]

DATA holds the sets `tab`, `tok` and `img` as folders of Parquet files. All serve globally shuffled batches of 256 rows,
on the files as they are where they can, else on a copy in their own format that is made beforehand (not timed; its size
and the time it took are printed). They take turns, and medians of rates are
printed as a table in Markdown, the best last. Two threads where threads can be chosen. Set up with

    cargo build --release --example rowdex_side
    python -m venv target/peers && target/peers/bin/pip install -r tools/compare/requirements.txt
"""

from __future__ import annotations

import collections
import glob
import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from compare import BATCH, Rowdex
from datasets import Dataset as HuggingFace
from indexed_parquet_dataset import IndexedParquetDataset
from performance import RowGroups

ROUNDS = 7
SETS = ("tab", "tok", "img")
# A burst takes about this long, so that slow peers do not make the others wait for hours.
BURST_SECONDS = 1.0


@dataclass
class Peer:
    name: str
    holds: str
    batch: Callable[[np.ndarray], int]
    """Serves the rows with these numbers and says how many there were."""


def peers(data: pathlib.Path, scratch: pathlib.Path) -> Iterator[Peer]:
    files = sorted(glob.glob(str(data / "*.parquet")))
    table = pq.read_table(data).combine_chunks()
    yield Peer("pyarrow.Table.take", "everything, decoded", lambda rows: len(table.take(pa.array(rows))))
    yield Peer("read_row_group for every row", "nothing", RowGroups(files, 0).batch)
    yield Peer("read_row_group, LRU of row groups", "25 %", RowGroups(files, 0.25).batch)

    start = time.perf_counter()
    hugging_face = HuggingFace.from_parquet(files, cache_dir=str(scratch / "hf")).with_format("arrow")
    copied("Hugging Face datasets", scratch / "hf", start)
    yield Peer("Hugging Face datasets, map-style", "a mapped copy", lambda rows: len(hugging_face[rows.tolist()]))

    start = time.perf_counter()
    lance_set = lance.write_dataset(table, str(scratch / "lance"))
    copied("Lance", scratch / "lance", start)
    yield Peer("Lance take", "a copy on disk", lambda rows: len(lance_set.take(rows.tolist())))

    groups = sum(pq.ParquetFile(file).metadata.num_row_groups for file in files)
    indexed = IndexedParquetDataset.from_folder(str(data), max_cached_row_groups=max(groups // 4, 1))
    yield Peer("indexed-parquet-dataset", "25 %", lambda rows: len(indexed.__getitems__(rows.tolist())))


def copied(name: str, folder: pathlib.Path, start: float) -> None:
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{name}: a copy of {size / 1e6:,.0f} MB made in {time.perf_counter() - start:.1f} s", file=sys.stderr)


def burst(peer: Peer, shuffled: Iterator[np.ndarray]) -> float:
    rows, start = 0, time.perf_counter()
    while True:
        batch = next(shuffled)
        # Peers that need minutes for a batch are asked for a part of one.
        for part in np.array_split(batch, 16):
            if len(part) and peer.name.startswith("read_row_group"):
                rows += peer.batch(part)
                if time.perf_counter() - start > BURST_SECONDS:
                    return rows / (time.perf_counter() - start)
            elif len(part):
                rows += peer.batch(batch)
                break
        if time.perf_counter() - start > BURST_SECONDS:
            return rows / (time.perf_counter() - start)


def shuffled(rows: int) -> Iterator[np.ndarray]:
    random = np.random.default_rng(1)
    while True:
        order = random.permutation(rows)
        yield from (order[at : at + BATCH] for at in range(0, rows, BATCH))


def compare(data: pathlib.Path, scratch: pathlib.Path) -> None:
    others = list(peers(data, scratch))
    rows = sum(pq.ParquetFile(file).metadata.num_rows for file in glob.glob(str(data / "*.parquet")))
    orders = [shuffled(rows) for _ in others]
    ours = [(share, Rowdex(f"loader-{share}", data, str(scratch))) for share in (10, 25, 100)]
    rates: dict[str, list[float]] = collections.defaultdict(list)
    for turn in range(ROUNDS + 1):
        for peer, order in zip(others, orders):
            rates[f"{peer.name} | {peer.holds}"].append(burst(peer, order))
        for share, side in ours:
            served = seconds = 0.0
            while seconds < BURST_SECONDS:
                part, took, _ = side.burst(-(-rows // BATCH))
                served, seconds = served + part, seconds + took
            rates[f"**rowdex Loader** | {share} %"].append(served / seconds)
        if turn == 0:  # The first turn warms everybody up.
            rates.clear()
    for _, side in ours:
        side.close()
    medians = {name: statistics.median(each) for name, each in rates.items()}
    best = medians["pyarrow.Table.take | everything, decoded"]
    print(f"\n`{data.name}`\n\n| | holds | rows/s | of `Table.take` |\n| --- | --- | --- | --- |")
    for name, rate in sorted(medians.items(), key=lambda item: item[1]):
        print(f"| {name} | {rate:,.0f} | {rate / best:.4g} |")


if __name__ == "__main__":
    if len(sys.argv) < 2 or any(name not in SETS for name in sys.argv[2:]):
        sys.exit(__doc__)
    pa.set_cpu_count(2)
    for name in sys.argv[2:] or SETS:
        with tempfile.TemporaryDirectory() as scratch:
            compare(pathlib.Path(sys.argv[1]) / name, pathlib.Path(scratch))
