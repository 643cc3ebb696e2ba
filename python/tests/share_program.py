"""A rank of a job whose ranks share a reader: it notes what it gets. Started by test_share.py."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from typing import Any

import rowdex


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    rank, world, epochs = options["rank"], options["world"], options["epochs"]
    dataset = rowdex.Dataset(options["index"])
    loader = rowdex.Loader(
        dataset, batch_size=options["batch"], seed=7, rank=rank, num_replicas=world, output="python",
        memory=options["memory"], threads=1, **options["more"],
    )  # fmt: skip
    if options.get("state"):
        loader.load_state_dict({"state": options["state"]})
    steps, note = 0, open(options["note"], "a", buffering=1)
    print("pid", os.getpid(), file=note)
    try:
        while loader.epoch < epochs:
            epoch = loader.epoch
            for batch in loader:
                steps += 1
                digest = hashlib.sha1(repr(batch).encode()).hexdigest()
                state = loader.state_dict()["state"]
                print("step", epoch, digest, state, file=note)
                if steps == options.get("kill"):
                    os.kill(os.getpid(), signal.SIGKILL)
                if steps == options.get("fork"):
                    fork(loader, note)
                if steps == options.get("leave"):
                    return
                if steps == options.get("close"):
                    loader.close()
                    print("closed", file=note)
                    time.sleep(120)
                if steps == options.get("fail"):
                    raise RuntimeError("as planned")
                time.sleep(options.get("pause", 0))
    except rowdex.Error as error:
        print("error", error, file=note)
        return
    print("end", file=note)


def fork(loader: rowdex.Loader, note: Any) -> None:
    """Forks a child that keeps all that it inherits open for a while, after it has tried to use the loader."""
    if os.fork() == 0:
        try:
            next(iter(loader))
        except rowdex.Error as error:
            print("child", os.getpid(), error, file=note)
        time.sleep(60)
        os._exit(0)


if __name__ == "__main__":
    main()
