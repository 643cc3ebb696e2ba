"""What a rank does: `all.py rank TASK PEER JOB`. It prints lines of JSON."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import json
import os
import pathlib
import pickle
import resource
import time
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from . import job as jobs
from .peer import Job, Peer
from .registry import Told, peer

STEP_SECONDS = 0.01
"""How long a step of the emulated training takes that is killed."""


def cpu() -> float:
    """Seconds of this process and of those that it started."""
    ended, ticks = resource.getrusage(resource.RUSAGE_CHILDREN), 0
    for pid in jobs.tree(os.getpid())[1:]:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    return time.process_time() + ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def tell(**told: Any) -> None:
    print(json.dumps({"rank": os.environ["RANK"], **told}), flush=True)


def shuffle(library: Peer, limit: float) -> Told:
    """Two epochs, of which the last one counts, or what was served of the first one until the limit."""
    began, first = time.perf_counter(), 0.0
    library.open()
    for _ in range(2):
        rows, start, used = 0, time.perf_counter(), cpu()
        for batch in library.epoch():
            rows += len(batch[library.job.counted])
            first = first or time.perf_counter() - began
            if time.perf_counter() - start > limit:
                break
        seconds, used = time.perf_counter() - start, cpu() - used
        if seconds > limit / 2:
            break
    return {"rows": rows, "seconds": seconds, "cpu": used, "first": first}


def ids_of(library: Peer, batch: Any) -> list[int]:
    return [int(row) for row in np.asarray(batch[library.job.counted])]


def epoch(library: Peer, most: int | None = None) -> Told:
    """The rows of each step, of so many steps at most."""
    library.open()
    return {"steps": [ids_of(library, batch) for batch in itertools.islice(library.epoch(), most)]}


def train(library: Peer, states: str) -> Told:
    """Writes, after each step, what it was served and its state, until it is killed."""
    library.open()
    for step, batch in enumerate(library.epoch(), 1):
        file = pathlib.Path(states, f"{library.job.rank}.{step}")
        with file.with_suffix(".new").open("wb") as new:
            pickle.dump((ids_of(library, batch), library.state()), new)
        file.with_suffix(".new").rename(file)
        time.sleep(STEP_SECONDS)
    return {"error": "the epoch ended before the job was killed"}


def go_on(library: Peer, states: str, step: int, before: int, most: int | None = None) -> Told:
    """The rest of the epoch, or so many steps of it, from the checkpoint of a step of ``before`` ranks."""
    saved = [pickle.loads(pathlib.Path(states, f"{rank}.{step}").read_bytes())[1] for rank in range(before)]
    began, first, steps = time.perf_counter(), 0.0, []
    library.open()
    library.load(saved)
    for batch in itertools.islice(library.epoch(), most):
        steps.append(ids_of(library, batch))
        first = first or time.perf_counter() - began
    return {"steps": steps, "first": first}


TASKS: dict[str, Callable[..., Told]] = {"shuffle": shuffle, "epoch": epoch, "train": train, "go-on": go_on}


def main(task: str, name: str, text: str) -> None:
    import torch.distributed as dist

    asked = json.loads(text)
    options = asked.pop("options", {})
    asked |= {"data": pathlib.Path(asked["data"]), "copy": pathlib.Path(asked["copy"])}
    status = 0
    try:
        library = peer(name)(Job(**asked))
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
        tell(before=jobs.resident(pathlib.Path("/proc/self/status").read_text()))
        dist.barrier()
        tell(**TASKS[task](library, **options))
        # Others may read from this process.
        dist.barrier()
    except Exception as error:
        traceback.print_exc()
        tell(error=f"{type(error).__name__}: {' '.join(str(error).split())[:90]}")
        status = 1
    # Some leave threads behind.
    os._exit(status)
