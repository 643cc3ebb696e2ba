"""What the Python package costs, on the benchmark set `tab`: python tools/compare/python_side.py DATA [TASK ...]

Tasks: import, take, loader, dataloader, workers. `dataloader` needs the package datasets. Two sides take turns in one
process, so a machine whose speed drifts is fair to both; medians of the rates and of the ratios are printed. `loader`
compares with the same loader without conversion, that is, with what the library alone takes.
"""

from __future__ import annotations

import pathlib
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import rowdex

BATCH = 256
ROUNDS = 11


def in_turns(ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float, float]:
    """Median rates of both, and the median ratio."""
    rates = [(ours(), theirs()) for _ in range(ROUNDS + 1)][1:]
    left, right = zip(*rates)
    return statistics.median(left), statistics.median(right), statistics.median(a / b for a, b in rates)


def rate(rows: int, work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return rows / (time.perf_counter() - start)


def importing(index: str) -> None:
    def seconds(program: str) -> float:
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        return float(done.stdout)

    program = "import time; start = time.process_time(); import rowdex; print(time.process_time() - start)"
    found = statistics.median(seconds(program) for _ in range(ROUNDS))
    print(
        f"import rowdex: {found * 1e3:.1f} ms of CPU; "
        f"pickle of a dataset: {len(pickle.dumps(rowdex.Dataset(index)))} bytes"
    )


def take(index: str) -> None:
    table = pq.read_table(pathlib.Path(index).parent / "data").combine_chunks()
    dataset = rowdex.Dataset(index, cache=4 << 30)
    dataset.take(range(len(dataset)))
    random = np.random.default_rng(1)
    picks = [random.integers(0, len(table), BATCH) for _ in range(200)]
    rows = BATCH * len(picks)
    ours = in_turns(
        lambda: rate(rows, lambda: [dataset.take(pick) for pick in picks]),
        lambda: rate(rows, lambda: [table.take(pa.array(pick)) for pick in picks]),
    )
    print("take {} cached: rowdex {:,.0f} rows/s, pyarrow.Table.take {:,.0f} rows/s, {:.2f}x".format(BATCH, *ours))


def loader(index: str) -> None:
    dataset = rowdex.Dataset(index)
    memory = dataset.decoded_bytes // 4

    def side(output: Any, strings: Any = "list") -> Callable[[], float]:
        batches = endless(
            rowdex.Loader(dataset, batch_size=BATCH, memory=memory, output=output, nulls="fill", strings=strings)
        )
        count = 1000
        return lambda: rate(BATCH * count, lambda: [next(batches) for _ in range(count)])

    for output, strings in [("torch", "offsets"), ("torch", "list"), ("numpy", "offsets")]:
        # Both hold their threads, which stand still while it is the other's turn.
        found = in_turns(side(output, strings), side("arrow"))
        text = "loader, memory 25 %, output {}, strings as {}: {:,.0f} rows/s, not converted {:,.0f} rows/s, {:.2f}x"
        print(text.format(output, strings, *found))


def dataloader(index: str) -> None:
    import rowdex.torch
    from datasets import Dataset as HuggingFace
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler

    dataset = rowdex.torch.Dataset(index, memory=1 << 28, nulls="fill", strings="offsets")
    batches = endless(DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, BATCH)))
    with tempfile.TemporaryDirectory() as copy:
        files = sorted(map(str, (pathlib.Path(index).parent / "data").glob("*.parquet")))
        # Its own format: a mapped copy of all that the files hold.
        peer = HuggingFace.from_parquet(files, cache_dir=copy).with_format("torch")
        peers = endless(DataLoader(peer, batch_sampler=BatchSampler(RandomSampler(peer), BATCH, True), collate_fn=list))
        found = in_turns(
            lambda: rate(BATCH * 400, lambda: [next(batches) for _ in range(400)]),
            lambda: rate(BATCH * 4, lambda: [next(peers) for _ in range(4)]),
        )
    text = (
        "DataLoader(num_workers=0): rowdex's BatchSampler {:,.0f} rows/s, "
        "Hugging Face map-style as torch {:,.0f} rows/s, {:.1f}x"
    )
    print(text.format(*found))


def workers(index: str) -> None:
    import rowdex.torch
    from torch.utils.data import DataLoader

    def side(workers: int) -> Callable[[], float]:
        dataset = rowdex.torch.Dataset(index, memory=1 << 28, nulls="fill", strings="offsets")
        sampler = rowdex.torch.BatchSampler(dataset, BATCH)
        batches = endless(DataLoader(dataset, batch_sampler=sampler, num_workers=workers, collate_fn=costly))
        next(batches)
        return lambda: rate(BATCH * 40, lambda: [next(batches) for _ in range(40)])

    print(
        "costly collate_fn: 2 workers {:,.0f} rows/s, none {:,.0f} rows/s, {:.2f}x".format(*in_turns(side(2), side(0)))
    )


def costly(samples: Any) -> Any:
    """About 20 ms of Python a batch."""
    return [sum(len(sample["s"]) * i % 7 for i in range(400)) for sample in samples]


def endless(batches: Any) -> Any:
    while True:
        yield from batches


TASKS = {"import": importing, "take": take, "loader": loader, "dataloader": dataloader, "workers": workers}


def main() -> None:
    data = pathlib.Path(sys.argv[1]).resolve() / "tab"
    with tempfile.TemporaryDirectory() as scratch:
        (pathlib.Path(scratch) / "data").symlink_to(data)
        index = f"{scratch}/tab.rdx"
        rowdex.build(data, index)
        for task in sys.argv[2:] or TASKS:
            TASKS[task](index)


if __name__ == "__main__":
    main()
