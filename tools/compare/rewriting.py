#!/usr/bin/env python3
"""Measures how fast rows are written anew: python tools/compare/rewriting.py DATA [--rowdex target/release/rowdex]

Three programs take turns over the same files, each in a process of its own, with the same memory, threads and codec:

    rowdex    `rowdex rewrite --seed 42`
    duckdb    `COPY (SELECT * FROM … ORDER BY random()) TO …`, with `memory_limit` and `temp_directory`
    pyarrow   reads the row groups one by one and encodes them again, without shuffling: there is no memory to give it

Sets are folders of DATA; those that are missing are made there, about a gigabyte of rows each. A ratio is that of the
same turn, and medians count. CPU seconds are the child's user and system time, and resident is what was its own
(RssAnon and RssShmem) at most, looked at every 5 ms. DuckDB gets twice the memory for as long as it runs out of it.

With --story it prints another table: when a rewrite has paid, in CPU seconds. They are those of the rewrite, of an
epoch of a global shuffle of the input with memory for a fiftieth, of an epoch of `blocks(8)` of what was written with
the same memory, and of one in its order. What is written has 600 row groups, so that this memory holds twelve: as if it
were twenty times as large and had row groups of 32 MiB.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import shapes


class Set(NamedTuple):
    makes: shapes.Makes
    """Makes the row groups of one file."""
    files: int
    codec: str


SETS = {
    "tab": Set(functools.partial(shapes.table, groups=25), 4, "snappy"),
    "text": Set(shapes.text, 4, "zstd"),
    "images": Set(shapes.hub_images, 2, "snappy"),
    "raw_images": Set(shapes.hub_images, 2, "none"),
}

DUCKDB = """
import duckdb, sys
source, output, memory, threads, codec, folder = sys.argv[1:]
session = duckdb.connect(config={"memory_limit": memory, "threads": threads, "temp_directory": folder})
options = f"format parquet, compression {codec}" + (", compression_level 3" if codec == "zstd" else "")
session.sql(f"copy (select * from read_parquet('{source}') order by random()) to '{output}' ({options})")
"""

PYARROW = """
import pyarrow as pa, pyarrow.parquet as pq, sys
output, threads, codec, *sources = sys.argv[1:]
pa.set_cpu_count(int(threads))
pa.set_io_thread_count(int(threads))
level = {"compression_level": 3} if codec == "zstd" else {}
with pq.ParquetWriter(output, pq.read_schema(sources[0]), compression=codec, write_page_index=True, **level) as writer:
    for source in sources:
        file = pq.ParquetFile(source)
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_group(group))
"""


GROUPS = 600


class Turn(NamedTuple):
    wall: float
    cpu: float
    resident: float


def written(folder: pathlib.Path, kind: Set) -> None:
    """The files of a set, of the same values each time."""
    if folder.exists():
        return
    temporary = folder.with_name(folder.name + ".part")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for number in range(kind.files):
        tables = kind.makes(np.random.default_rng([number, *folder.name.encode()]))
        first = next(tables)
        path = temporary / f"{number:03}.parquet"
        with pq.ParquetWriter(path, first.schema, compression=kind.codec, write_page_index=True) as writer:
            writer.write_table(first, row_group_size=len(first))
            for table in tables:
                writer.write_table(table, row_group_size=len(table))
    temporary.rename(folder)


def own_memory(process: int) -> float:
    """MiB that a process has of its own."""
    try:
        lines = pathlib.Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))) / 1024


class OutOfMemory(Exception):
    """A program says that its memory is not enough."""


def timed(command: list[str]) -> Turn:
    before, started, most = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr
        while child.poll() is None:
            most = max(most, own_memory(child.pid))
            time.sleep(0.005)
        said = child.stderr.read()
    if "Out of Memory" in said:
        raise OutOfMemory
    if child.returncode:
        raise SystemExit(f"{' '.join(command[:3])} failed: {said[-500:]}")
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Turn(wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, most)


class Bench:
    """Commands over one set."""

    def __init__(self, given: argparse.Namespace, name: str) -> None:
        self.given, self.kind = given, SETS[name]
        self.source, scratch = given.data / name, given.data / "scratch" / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        self.scratch, self.index, self.output = scratch, scratch / "input.rdx", scratch / "output"
        written(self.source, self.kind)
        subprocess.run([given.rowdex, "build", self.source, "-o", self.index], check=True, capture_output=True)
        self.memory = {program: given.memory for program in given.programs}
        self.files = sorted(str(file) for file in self.source.glob("*.parquet"))
        metadata = [pq.read_metadata(file) for file in self.files]
        self.rows = sum(file.num_rows for file in metadata)
        sizes = (file.row_group(group).total_byte_size for file in metadata for group in range(file.num_row_groups))
        self.decoded = sum(sizes)

    def command(self, program: str, memory: int) -> list[str]:
        codec, threads = self.kind.codec, str(self.given.threads)
        to = str(self.output / "output.parquet")
        if program == "pyarrow":
            return [sys.executable, "-c", PYARROW, to, threads, codec, *self.files]
        if program == "duckdb":
            options = [f"{memory}MiB", threads, {"none": "uncompressed"}.get(codec, codec), str(self.scratch)]
            return [sys.executable, "-c", DUCKDB, str(self.source / "*.parquet"), to, *options]
        shuffle = [self.given.rowdex, "rewrite", str(self.index), "-o", str(self.output), "--seed", "42"]
        return [*shuffle, "--memory", f"{memory}MiB", "--threads", threads, "--compression", codec]

    def turn(self, program: str) -> Turn:
        while True:
            shutil.rmtree(self.output, ignore_errors=True)
            if program != "rowdex":
                self.output.mkdir()
            try:
                return timed(self.command(program, self.memory[program]))
            except OutOfMemory:
                self.memory[program] *= 2

    def turns(self) -> dict[str, list[Turn]]:
        turns = [{program: self.turn(program) for program in self.memory} for _ in range(self.given.turns)]
        return {program: [turn[program] for turn in turns] for program in self.memory}

    def comparison(self) -> Iterator[str]:
        """Rows of the first table."""
        found = self.turns()
        ours = found["rowdex"]
        for program, turns in found.items():
            wall, cpu, most = (statistics.median(column) for column in zip(*turns))
            rates = [f"{self.rows / wall:,.0f}", f"{self.decoded / wall / 1e6:.0f}"]
            spent = [f"{wall:.1f}", f"{cpu:.1f}", f"{most:.0f}"]
            ratios = [statistics.median(turn[at] / own[at] for own, turn in zip(ours, turns)) for at in (0, 1)]
            told = [self.source.name, program, str(self.memory[program]), *rates, *spent]
            yield " | ".join([*told, *(f"{ratio:.2f}" for ratio in ratios)])

    def story(self) -> str:
        """A row of the second table."""
        shutil.rmtree(self.output, ignore_errors=True)
        groups = ["--row-group-rows", str(self.rows // GROUPS)]
        rewrite = timed([*self.command("rowdex", self.given.memory), *groups])
        written = self.output / "index.rdx"
        memory = ["--memory", str(self.decoded // 50), "--threads", str(self.given.threads)]

        def epoch(index: pathlib.Path, order: str) -> Turn:
            return timed([self.given.rowdex, "epoch", str(index), "--order", order, *memory, "--batch-size", "256"])

        before, blocks, scan = epoch(self.index, "global"), epoch(written, "blocks:8"), epoch(written, "sequential")
        rates = [f"{self.rows / turn.cpu:,.0f}" for turn in (before, blocks, scan)]
        paid = rewrite.cpu / (before.cpu - blocks.cpu)
        ratios = [f"{scan.cpu / blocks.cpu:.2f}", f"{paid:.2f}"]
        return " | ".join([self.source.name, f"{rewrite.cpu:.1f}", *rates, *ratios])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--rowdex", default="rowdex")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--programs", default="rowdex,duckdb,pyarrow", help="rowdex, and others")
    parser.add_argument("--memory", type=int, default=128, help="MiB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--story", action="store_true")
    given = parser.parse_args()
    given.programs = given.programs.split(",")
    benches = [Bench(given, name) for name in given.sets.split(",")]
    if given.story:
        print("| set | rewrite CPU s | rows a CPU s: input, global | output, blocks(8) | output in order |", end="")
        print(" blocks of in order | paid after epochs |")
        print("| --- " * 7 + "|")
        for bench in benches:
            print(f"| {bench.story()} |", flush=True)
        return
    print("| set | program | memory MiB | rows/s | MB/s | wall s | CPU s | resident MiB | rowdex is faster | by CPU |")
    print("| --- " * 10 + "|")
    for bench in benches:
        for row in bench.comparison():
            print(f"| {row} |", flush=True)
        shutil.rmtree(bench.scratch)


if __name__ == "__main__":
    main()
