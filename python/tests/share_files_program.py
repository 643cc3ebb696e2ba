"""A rank that keeps, changes or forks with what it got from a shared reader, and notes whether it stays right.

Started by test_share_files.py.
"""

from __future__ import annotations

import json
import os
import pathlib
import select
import sys
import time
from typing import Any

import numpy as np
import rowdex


def is_right(batch: dict[str, Any]) -> bool:
    """Whether each row has the values that it was written with."""
    return bool((batch["wide"] == batch["id"][:, None]).all())


def file_of(batch: dict[str, Any]) -> str:
    """The number of the memory file that a batch is in."""
    address = batch["wide"].ctypes.data
    for line in pathlib.Path("/proc/self/maps").read_text().splitlines():
        place, _, _, _, number, *_ = line.split()
        begin, end = (int(part, 16) for part in place.split("-"))
        if begin <= address < end:
            assert "memfd:rowdex-batch" in line, line
            return number
    raise AssertionError("a batch is in no map")


def open_files() -> int:
    """How many memory files the reader of this process has open."""
    found = 0
    for link in pathlib.Path("/proc/self/fd").iterdir():
        try:
            found += "memfd:rowdex-batch" in os.readlink(link)
        except OSError:
            # Closed meanwhile.
            pass
    return found


def fork(held: list[dict[str, Any]], note: Any) -> tuple[int, int]:
    """A child that looks at what its parent held when it is told to."""
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        ready, _, _ = select.select([told], [], [], 240)
        print("inherited", bool(ready) and len(held) > 0 and all(map(is_right, held)), file=note)
        note.flush()
        os._exit(0)
    os.close(told)
    return child, tell


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    mode, note = options["mode"], open(options["note"], "a", buffering=1)
    loader = rowdex.Loader(
        rowdex.Dataset(options["index"]), batch_size=options["batch"], seed=7, rank=options["rank"],
        num_replicas=options["world"], output="numpy", memory=options["memory"], threads=1,
        share=None if options["share"] is None else rowdex.Share(**options["share"]),
    )  # fmt: skip
    held: list[dict[str, Any]] = []
    children, steps = [], 0
    for epoch in range(options["epochs"]):
        for batch in loader:
            steps += 1
            print("step", epoch, is_right(batch), int(batch["id"].sum()), file=note)
            print("file", file_of(batch), file=note)
            if mode == "change":
                # In pages of its own, which nobody gets after it.
                batch["wide"][:] = -1
                assert np.all(batch["wide"] == -1)
            if mode in ("keep", "hold") or (mode == "fork" and steps % 7 < 3):
                held.append(batch)
            del batch
            if mode == "fork" and steps in (3, 10):
                children.append(fork(held, note))
                held = []
            if mode == "hold" and steps == options["hold"]:
                print("holds", file=note)
                time.sleep(240)
    if mode != "change":
        print("held", all(map(is_right, held)), file=note)
    print("open", open_files(), file=note)
    for child, tell in children:
        os.write(tell, b"x")
        os.waitpid(child, 0)
    print("end", file=note)


if __name__ == "__main__":
    main()
