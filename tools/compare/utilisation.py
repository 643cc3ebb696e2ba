#!/usr/bin/env python3
"""How busy loaders keep emulated accelerators: python tools/compare/utilisation.py DATA [--accelerators N ...]

DLIO's FLUX workload with decoding and a global shuffle: five columns of float32, 2,164,832 bytes a sample, batches
of 48 samples, 1.35 seconds a step, which an accelerator sleeps. Each accelerator is a process; all wait for each other
after a step. DLIO's own readers discard what they read. Here every batch is made as arrays of numpy.

    AU = seconds of computing / seconds on the clock, of all steps behind the first one

DATA/flux is made if it is missing: 768 samples (1.7 GB) in 8 files of row groups of 24 samples, without compression.
The readers, `--readers`:

    rowdex         `Loader` with `share="machine"`, memory for a quarter of the decoded data, 2 threads
    hugging-face   a mapped copy (made beforehand), `DistributedSampler`, `DataLoader` with a worker
    pyarrow-cache  row groups for random rows, with a cache of a quarter of them, a thread ahead
    pyarrow        row groups in a random order, whose rows are shuffled: no global shuffle; a thread ahead
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pathlib
import queue
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

COLUMNS = {"t5_encodings": 524_328, "clip_encodings": 409, "mean": 8_232, "logvar": 8_232, "timestamp": 7}
BATCH, STEP_SECONDS, SAMPLE_BYTES = 48, 1.35, 4 * sum(COLUMNS.values())
FILES, GROUPS, GROUP = 8, 4, 24
SECONDS = 280
Batches = Iterator[dict[str, np.ndarray]]


def write(folder: pathlib.Path) -> None:
    folder.mkdir(parents=True)
    schema = pa.schema({name: pa.list_(pa.float32(), size) for name, size in COLUMNS.items()})
    for number in range(FILES):
        random = np.random.default_rng(number)
        path = folder / f"{number}.parquet"
        with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False, write_page_index=True) as writer:
            for _ in range(GROUPS):
                values = [random.random(GROUP * size, dtype=np.float32) for size in COLUMNS.values()]
                columns = [
                    pa.FixedSizeListArray.from_arrays(pa.array(each), size)
                    for each, size in zip(values, COLUMNS.values())
                ]
                writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def files(folder: pathlib.Path) -> list[str]:
    return sorted(map(str, folder.glob("*.parquet")))


def arrays(table: pa.Table) -> dict[str, np.ndarray]:
    """The columns of a batch, in one piece each."""
    pieces = {name: table[name].combine_chunks() for name in COLUMNS}
    return {name: piece.flatten().to_numpy().reshape(len(table), -1) for name, piece in pieces.items()}


def ahead(batches: Batches) -> Batches:
    """Two batches ahead, made by a thread."""
    made: queue.Queue[Any] = queue.Queue(2)

    def work() -> None:
        for batch in batches:
            made.put(batch)

    threading.Thread(target=work, daemon=True).start()
    while True:
        yield made.get()


def rowdex(folder: pathlib.Path, copy: pathlib.Path, rank: int, world: int) -> Batches:
    import rowdex

    dataset = rowdex.Dataset(copy / "train.rdx")
    loader = rowdex.Loader(
        dataset, batch_size=BATCH, seed=1, num_replicas=world, rank=rank, tail="drop", output="numpy", threads=2,
        memory=dataset.decoded_bytes // 4, share=rowdex.Share(job=copy.name, ranks=world),
    )  # fmt: skip
    while True:
        yield from loader


def hugging_face(folder: pathlib.Path, copy: pathlib.Path, rank: int, world: int) -> Batches:
    import datasets
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

    kept = datasets.load_dataset("parquet", data_files=files(folder), split="train", cache_dir=str(copy))
    sampler = DistributedSampler(kept, world, rank, seed=1, drop_last=True)
    batches = BatchSampler(sampler, BATCH, drop_last=True)
    loader = DataLoader(
        kept.with_format("torch"), batch_size=None, sampler=batches, num_workers=1, persistent_workers=True
    )
    for epoch in range(1 << 30):
        sampler.set_epoch(epoch)
        yield from ({name: batch[name].numpy() for name in COLUMNS} for batch in loader)


def pyarrow_cache(folder: pathlib.Path, copy: pathlib.Path, rank: int, world: int) -> Batches:
    from performance import RowGroups

    kept, epoch = RowGroups(files(folder), 0.25), 0
    while True:
        order = np.random.default_rng([1, epoch]).permutation(kept.ends[-1])[rank::world]
        for start in range(0, len(order) - BATCH + 1, BATCH):
            yield arrays(kept.rows(order[start : start + BATCH]))
        epoch += 1


def pyarrow(folder: pathlib.Path, copy: pathlib.Path, rank: int, world: int) -> Batches:
    opened, epoch = [pq.ParquetFile(file) for file in files(folder)], 0
    groups = [(file, group) for file in opened for group in range(file.num_row_groups)]
    while True:
        random = np.random.default_rng([1, epoch])
        own, each = random.permutation(len(groups))[rank::world], BATCH // GROUP
        for start in range(0, len(own) - each + 1, each):
            read = [groups[number][0].read_row_group(groups[number][1]) for number in own[start : start + each]]
            yield arrays(pa.concat_tables(read).take(pa.array(random.permutation(BATCH))))
        epoch += 1


READERS: dict[str, Callable[..., Batches]] = {
    "rowdex": rowdex, "hugging-face": hugging_face, "pyarrow-cache": pyarrow_cache, "pyarrow": pyarrow
}  # fmt: skip


def prepare(reader: str, folder: pathlib.Path, copy: pathlib.Path) -> None:
    """What is made once, before the run."""
    if reader == "rowdex":
        import rowdex

        rowdex.build(folder, copy / "train.rdx", progress=False)
    if reader == "hugging-face":
        import datasets

        datasets.load_dataset("parquet", data_files=files(folder), split="train", cache_dir=str(copy))


def accelerator(
    reader: str, folder: pathlib.Path, copy: pathlib.Path, rank: int, world: int, steps: int, seconds: float,
    together: Any, told: Any,
) -> None:  # fmt: skip
    """One emulated accelerator."""
    batches = READERS[reader](folder, copy, rank, world)
    if reader.startswith("pyarrow"):
        batches = ahead(batches)
    began = time.perf_counter()
    for step in range(steps + 1):
        batch = next(batches)
        assert all(batch[name].shape == (BATCH, size) for name, size in COLUMNS.items())
        time.sleep(seconds)
        together.wait(SECONDS)
        if step == 0:
            # The first step is not counted.
            began, first = time.perf_counter(), time.perf_counter() - began
    told.send((time.perf_counter() - began, first))
    together.wait(SECONDS)
    # Some leave threads and workers behind.
    if reader != "hugging-face":
        os._exit(0)


def measured(
    reader: str, folder: pathlib.Path, copy: pathlib.Path, world: int, steps: int, seconds: float
) -> dict[str, Any]:
    cell = {
        "table": "utilisation", "peer": reader, "accelerators": world, "began": int(time.time()),
        "load": round(os.getloadavg()[0], 1), "steps": steps,
    }  # fmt: skip
    context = multiprocessing.get_context("spawn")
    together, pipes = context.Barrier(world), [context.Pipe(duplex=False) for _ in range(world)]
    before, until = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() + SECONDS
    processes = []
    for rank, (_, tells) in enumerate(pipes):
        given = (reader, folder, copy, rank, world, steps, seconds, together, tells)
        processes.append(context.Process(target=accelerator, args=given))
        processes[-1].start()
        tells.close()
    try:
        found = [heard.recv() for heard, _ in pipes if heard.poll(max(until - time.monotonic(), 0))]
    except EOFError:
        found = []
    finally:
        for process in processes:
            process.join(10)
            process.kill()
            process.join()
    if len(found) < world:
        return {**cell, "error": f"failed, or no end within {SECONDS} seconds"}
    wall, after = max(wall for wall, _ in found), resource.getrusage(resource.RUSAGE_CHILDREN)
    served = (steps + 1) * world * BATCH * SAMPLE_BYTES
    return {
        **cell,
        "au": steps * seconds / wall,
        "bytes_a_second": steps * world * BATCH * SAMPLE_BYTES / wall,
        "first": max(first for _, first in found) - seconds,
        # With the start of the processes, and what was read ahead and never asked for.
        "cpu_a_gigabyte": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / served * 1e9,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--accelerators", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--readers", nargs="+", choices=list(READERS), default=list(READERS))
    parser.add_argument("--steps", type=int, default=8, help="steps that count")
    parser.add_argument("--seconds", type=float, default=STEP_SECONDS, help="seconds that a step computes")
    given = parser.parse_args()
    folder = given.data.resolve() / "flux"
    if not folder.exists():
        write(folder)
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "OMP_NUM_THREADS": "1"}
    for reader in given.readers:
        with tempfile.TemporaryDirectory(prefix="compare-", dir=given.data) as copy:
            prepare(reader, folder, pathlib.Path(copy))
            for world in given.accelerators:
                found = measured(reader, folder, pathlib.Path(copy), world, given.steps, given.seconds)
                print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
