"""The cells of the tables: what is measured of a peer."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import pathlib
import pickle
import random
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import packing

from . import job as jobs
from . import registry
from .peer import MIXED_ROWS, SHARES, SOURCE_ROWS, Job
from .registry import Told, package, peer

WORLD, BATCH, LIMIT, SECONDS = 2, 256, float(os.environ.get("LIMIT", 10)), 280
CHUNK = 8 << 20
SIZES, GROUP, SMALL_CHUNK = (4000, 3001, 2001, 1000, 5), 500, 1 << 15
"""The files of the small set whose rows are counted one by one; its last file fills up other numbers of rows."""
WORLDS, RANK_BATCH = (2, 1, 4), 64
"""The numbers of ranks that go on, of which the first is that of the killed job, and its rows of a step of a rank."""
NEXT_STEPS = 16
"""Steps that are looked at after the shares of a mixture were changed."""

KILLED, KILLED_MIXED = random.Random(1).randrange(40, 70), random.Random(1).randrange(5, 20)
"""The step after which jobs are killed: a random one of the second half of their epoch; of mixtures one before some of
them end, which is when the small source has come once."""
Steps = list[list[int]]
"""The rows of each step."""


class Set(NamedTuple):
    columns: list[str]
    counted: str


SETS = {
    "tab": Set(["id", "x0", "x1", "x2", "x3", "y", "n", "time", "category", "word"], "id"),
    "tok": Set(["id", "tokens"], "id"),
    "text": Set(["text", "id", "url", "language_score", "token_count"], "id"),
    "hub_images": Set(["image", "label"], "label"),
}


def size(folder: pathlib.Path) -> int:
    """Bytes of a folder's own files."""
    files = [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]
    return sum(file.stat().st_size for file in files)


class Prepared(NamedTuple):
    name: str
    job: Told
    folder: pathlib.Path
    environment: dict[str, str]
    seconds: float
    cpu: float
    about: Told

    def run(self, task: str, world: int = WORLD, batch: int = BATCH, **options: Any) -> list[Told]:
        job = {**self.job, "world": world, "batch": batch, "options": options}
        return jobs.run(task, self.name, job, self.folder, self.environment, SECONDS)


@contextlib.contextmanager
def prepared(name: str, data: pathlib.Path, chosen: Set, chunk: int, splits: int | None = None) -> Iterator[Prepared]:
    """A peer that made what it needs of the data, in a process of its own."""
    with jobs.scratch() as folder:
        copy = folder / "copy"
        copy.mkdir()
        job = {**chosen._asdict(), "data": str(data), "copy": str(copy), "batch": BATCH, "chunk": chunk}
        job["splits"] = splits
        command = [sys.executable, str(jobs.PROGRAM), "prepare", name]
        environment = jobs.environment(folder, package(name))
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, json.dumps(job)], capture_output=True, text=True, timeout=SECONDS, env=environment
        )
        seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            raise RuntimeError((done.stderr.strip().splitlines() or ["it did not prepare its data"])[-1])
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        yield Prepared(name, job, folder, environment, seconds, cpu, json.loads(done.stdout.strip().splitlines()[-1]))


def prepare(name: str, text: str) -> None:
    """Makes what a peer needs, in a process of its own, and prints what it is."""
    kind, asked = peer(name), json.loads(text)
    kind.prepare(Job(**asked | {"data": pathlib.Path(asked["data"]), "copy": pathlib.Path(asked["copy"])}))
    found = registry.versions([kind.distribution or kind.package])
    print("\n" + json.dumps({"manual": kind.manual, "converts": kind.converts, "versions": found}), flush=True)
    os._exit(0)


def shuffle(name: str, data: pathlib.Path) -> Told:
    """A global shuffle of a set by all ranks."""
    with prepared(name, data, SETS[data.name], CHUNK) as ready:
        made = size(pathlib.Path(ready.job["copy"]))
        found = ready.run("shuffle", limit=LIMIT)
        rows = sum(rank["rows"] for rank in found)
        if not rows:
            raise RuntimeError("it served no rows")
        return {
            "rate": sum(rank["rows"] / rank["seconds"] for rank in found),
            "cpu": sum(rank["cpu"] for rank in found) / rows * 1e6,
            "first": max(rank["first"] for rank in found),
            "resident": sum(rank["resident"] for rank in found),
            "served": rows,
            "converted": size(data) if ready.about["converts"] else 0,
            # What it keeps elsewhere while it runs counts, too.
            "disk": max(made, size(pathlib.Path(ready.job["copy"]))) + size(ready.folder / "tmp"),
            **ready.about,
            "prepare_seconds": ready.seconds,
            "prepare_cpu": ready.cpu,
        }


def write_small(folder: pathlib.Path, sizes: tuple[int, ...], first: int = 0) -> pathlib.Path:
    folder.mkdir()
    for number, rows in enumerate(sizes):
        ids = np.arange(first, first + rows)
        pq.write_table(pa.table({"id": ids, "x": ids / 2}), folder / f"part-{number}.parquet", row_group_size=GROUP)
        first += rows
    return folder


def counted(total: int, *parts: Steps) -> Told:
    times = collections.Counter(row for part in parts for step in part for row in step)
    return {"again": sum(times.values()) - len(times), "never": total - len(times)}


def ranks(name: str, world: int = WORLD) -> Told:
    """An epoch of ranks: their steps, and rows that were served again or never."""
    with jobs.scratch() as own:
        data = write_small(own / "data", SIZES)
        with prepared(name, data, Set(["id", "x"], "id"), SMALL_CHUNK) as ready:
            found = ready.run("epoch", world, RANK_BATCH)
    steps = [len(rank["steps"]) for rank in found]
    served = sum(len(step) for rank in found for step in rank["steps"])
    return {"steps": steps, "served": served, **ready.about, **counted(sum(SIZES), *(rank["steps"] for rank in found))}


def resume(name: str) -> Told:
    """A job that is killed, and goes on with the same, fewer and more ranks."""
    sizes = (*SIZES[:-1], 238)
    with jobs.scratch() as own:
        data = write_small(own / "data", sizes)
        with prepared(name, data, Set(["id", "x"], "id"), SMALL_CHUNK, max(WORLDS)) as ready:
            cases = [{**each, **counted(sum(sizes), *ranks)} for each, ranks in gone_on(ready, list(after()))]
    return {**ready.about, "rows": sum(sizes), "step": KILLED, "after": cases}


def gone_on(
    ready: Prepared, cases: list[tuple[int, int]], step: int = KILLED, **options: Any
) -> Iterator[tuple[Told, list[Steps]]]:
    """Kills a job after a step, and goes on with other numbers of ranks and rows of a step of a rank. For each of them
    what is told of it, and the steps of all ranks before and after it; of one that is refused none.
    """
    states = ready.folder / "states"
    states.mkdir(exist_ok=True)
    killed = {**ready.job, "world": WORLDS[0], "batch": RANK_BATCH, "options": {"states": str(states)}}
    saved = [states / f"{rank}.{step}" for rank in range(WORLDS[0])]
    everywhere = lambda: all(file.exists() for file in saved)  # noqa: E731
    jobs.run("train", ready.name, killed, ready.folder, ready.environment, SECONDS, everywhere)
    served = [steps_before(states, rank, step) for rank in range(WORLDS[0])]
    options |= {"states": str(states), "step": step, "before": WORLDS[0]}
    for world, batch in cases:
        told: Told = {"ranks": world, "batch": batch}
        try:
            found = ready.run("go-on", world, batch, **options)
        except RuntimeError as error:
            yield {**told, "refused": str(error)[:90]}, []
        else:
            yield {**told, "first": max(rank["first"] for rank in found)}, [*served, *(rank["steps"] for rank in found)]


def mixtures(name: str) -> Told:
    """Two sources by proportion: how often each came, and what becomes of a job that is killed."""
    steps, (large, small) = MIXED_ROWS // (WORLDS[0] * RANK_BATCH), SOURCE_ROWS.values()
    with jobs.scratch() as own:
        data = own / "data"
        data.mkdir()
        write_small(data / "large", (large,))
        write_small(data / "small", (small,), first=large)
        with prepared(name, data, Set(["id", "x"], "id"), SMALL_CHUNK) as ready:
            whole = [rank["steps"] for rank in ready.run("epoch", WORLDS[0], RANK_BATCH, most=steps)]
            rows = [row for step in zip(*whole) for part in step for row in part]
            others = []
            same = [case for case in after() if case[0] * case[1] == WORLDS[0] * RANK_BATCH]
            for each, ranks in gone_on(ready, same, KILLED_MIXED, most=len(whole[0]) - KILLED_MIXED):
                found = collections.Counter(row for rank in ranks for step in rank for row in step)
                served = collections.Counter(rows)
                others.append({**each, "other": max((served - found).total(), (found - served).total())})
            other = ready._replace(job={**ready.job, "changed": True})
            changed, ranks = next(gone_on(other, same[:1], KILLED_MIXED, most=len(whole[0]) - KILLED_MIXED))
            if ranks:
                times = collections.Counter(row for rank in ranks for step in rank for row in step if row < large)
                next_rows = [row for rank in ranks[WORLDS[0] :] for step in rank[:NEXT_STEPS] for row in step]
                changed |= {
                    "share": float((np.array(next_rows) >= large).mean()),
                    "again": sum(count > 1 for count in times.values()),
                }
    of_small = np.array(rows) >= large
    ends = np.concatenate([[0], np.cumsum(of_small)])
    window = min(1_000, len(rows))
    times = collections.Counter(rows)
    each_small = [times[row] for row in range(large, large + small)]
    return {
        **ready.about, "rows": len(rows), "share": float(of_small.mean()),
        "off": float(np.abs((ends[window:] - ends[:-window]) / window - SHARES["small"]).max()),
        "again": sum(times[row] > 1 for row in range(large)), "times": [min(each_small), max(each_small)],
        "step": KILLED_MIXED, "after": others, "changed": changed,
    }  # fmt: skip


def after() -> Iterator[tuple[int, int]]:
    """Numbers of ranks and rows of a step of a rank: those of the job before, and others, first with as many rows in a
    step of all ranks, then in a step of each.
    """
    first, *others = WORLDS
    yield first, RANK_BATCH
    yield from ((world, RANK_BATCH * first // world) for world in others)
    yield from ((world, RANK_BATCH) for world in others)


def steps_before(states: pathlib.Path, rank: int, step: int) -> Steps:
    return [pickle.loads((states / f"{rank}.{number}").read_bytes())[0] for number in range(1, step + 1)]


def packs(name: str) -> Told:
    """What tools/compare/packing.py says of a packer, which has the programs of all of them."""
    with jobs.scratch() as folder:
        environment = jobs.environment(folder, packing.PEERS[name].package.split(".")[0])
        command = [sys.executable, packing.__file__, "--peer", name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["no answer"])[-1])
    found: Told = json.loads(done.stdout.strip().splitlines()[-1])
    return found


TABLES = {"shuffle": shuffle, "ranks": ranks, "resume": resume, "packs": packs, "mixtures": mixtures}
NAMES = {**registry.TABLES, "packs": list(packing.PEERS)}
"""The peers of each table."""


def cell(table: str, name: str, *data: pathlib.Path) -> Told:
    """A cell, with what became of it."""
    began, load = time.time(), os.getloadavg()[0]
    try:
        found = TABLES[table](name, *data)  # type: ignore[operator]
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        found = {"error": " ".join(str(error).split())[:90]}
    where = {"set": data[0].name} if data else {}
    return {"table": table, "peer": name, **where, "began": int(began), "load": round(load, 1), **found}
