"""A rank of a job whose ranks share a reader: it notes what it gets. Started by test_share.py."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import resource
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
        dataset, batch_size=options["batch"], seed=7, rank=rank, num_replicas=world,
        output=options.get("output", "python"),
        memory=options["memory"], threads=options.get("threads", 1),
        share=None if options["share"] is None else rowdex.Share(**options["share"]),
    )  # fmt: skip
    if options.get("state"):
        loader.load_state_dict({"state": options["state"]})
    steps, note, kept = 0, open(options["note"], "a", buffering=1), []
    print("pid", os.getpid(), file=note)
    try:
        while loader.epoch < epochs:
            epoch = loader.epoch
            for batch in loader:
                steps += 1
                # Batches of Arrow are kept, with the memory that they are in.
                kept += [batch] if options.get("output") == "arrow" else []
                shown = batch.row_ids if options.get("output") == "arrow" else batch
                digest = hashlib.sha1(repr(shown).encode()).hexdigest()
                state = loader.state_dict()["state"]
                print("step", epoch, digest, state, file=note)
                if steps == options.get("kill"):
                    await_step(options.get("after"))
                    os.kill(os.getpid(), signal.SIGKILL)
                if steps == options.get("fork"):
                    fork(loader, note)
                if steps == options.get("limited"):
                    limit(options["resource"])
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


def await_step(note: str | None) -> None:
    """Waits until another rank has noted a step, if there is one to wait for."""
    while note is not None and "\nstep " not in pathlib.Path(note).read_text():
        time.sleep(0.01)


def limit(name: str) -> None:
    """From now on no file can be opened, or no more memory had than a few MB."""
    if name == "files":
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    else:
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + (6 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))


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
