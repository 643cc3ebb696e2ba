"""A rank of whose DataLoader a worker is killed: it notes what it gets. Started by test_share_workers.py."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time
from typing import Any

import rowdex
import rowdex.torch
from torch.utils.data import DataLoader

# Longer than the watchdog of the test: an error that comes by it is none that came at once.
TIMEOUT = 900


def await_steps(note: pathlib.Path, steps: int) -> None:
    """Waits until another rank has noted so many."""
    deadline = time.monotonic() + 280
    while not note.exists() or note.read_text().count("step ") < steps:
        assert time.monotonic() < deadline, "the other rank does not come"
        time.sleep(0.01)


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    share = rowdex.Share(**options["share"])
    dataset = rowdex.torch.Dataset(options["index"], ["id"], memory=options["memory"], share=share)
    batches = rowdex.torch.BatchSampler(
        dataset, options["batch"], seed=7, rank=options["rank"], num_replicas=options["world"]
    )
    loader: Any = DataLoader(
        dataset, batch_sampler=batches, num_workers=2, persistent_workers=True, timeout=TIMEOUT
    )
    steps, note = 0, open(options["note"], "a", buffering=1)
    try:
        for epoch in range(options["epochs"]):
            served = iter(loader)
            workers = [worker.pid for worker in served._workers]
            if epoch == 0:
                print("workers", *workers, file=note)
            for batch in served:
                print("step", epoch, json.dumps(batch["id"].tolist()), file=note)
                steps += 1
                if steps == options.get("kill"):
                    await_steps(pathlib.Path(options["after"]), 2)
                    print("killed", workers[0], file=note)
                    os.kill(workers[0], signal.SIGKILL)
                time.sleep(options["pause"])
    except (RuntimeError, OSError, EOFError, rowdex.Error) as error:
        print("error", type(error).__name__, " ".join(str(error).split()), file=note)
        return
    print("end", file=note)


if __name__ == "__main__":
    main()
