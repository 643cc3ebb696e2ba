"""Ranks of a DDP job, forked from one process: python ddp_program.py HOW INDEX WORLD BATCH FOLDER OPTIONS.

HOW is `rowdex` or `row-groups`: dealt round-robin, as loaders do that shard files. Every rank notes each of its steps
in FOLDER, and ends the epoch as jobs do: it waits until all ranks are done, to save the model. OPTIONS are JSON:
`replicas`, `stop` (after so many steps, noting the state) and `state` (to go on from).
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import rowdex
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 2


def row_groups(dataset: rowdex.Dataset, rank: int, world: int, size: int) -> Iterator[Any]:
    """Row groups dealt round-robin: the control."""
    rows = []
    for number, start in enumerate(starts := groups(dataset)):
        if number % world == rank:
            end = starts[number + 1] if number + 1 < len(starts) else len(dataset)
            rows += range(start, end)
    for first in range(0, len(rows), size):
        yield dataset.take(rows[first : first + size]).to_torch()


def groups(dataset: rowdex.Dataset) -> list[int]:
    starts, last = [], None
    for row in range(len(dataset)):
        place = dataset.index.locate(row)[:2]
        if place != last:
            starts.append(row)
            last = place
    return starts


def run(rank: int, how: str, index: str, world: int, size: int, folder: pathlib.Path, options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    dataset = rowdex.Dataset(index, ["id", "x", "label"])
    model = DistributedDataParallel(nn.Linear(1, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    notes = (folder / f"rank-{rank}").open("w", buffering=1)
    replicas = options.get("replicas", 1)
    loader = (
        rowdex.Loader(dataset, batch_size=size, seed=1, memory=1 << 20, threads=1, replication=replicas)
        if how == "rowdex"
        else None
    )
    if loader is not None and "state" in options:
        loader.load_state_dict({"state": options["state"]})
    for epoch in range(EPOCHS):
        for step, batch in enumerate(loader if loader is not None else row_groups(dataset, rank, world, size)):
            if loader is not None and step == options.get("stop"):
                break
            loss = nn.functional.cross_entropy(model(batch["x"][:, None] / 1000), batch["label"].long())
            optimizer.zero_grad()
            loss.backward()  # Waits for all ranks.
            optimizer.step()
            print("step", *batch["id"].tolist(), file=notes)
            state = loader.state_dict()["state"] if loader is not None else ""
        print("epoch", epoch, state, file=notes)
        # Without a collective, so that nobody takes part in a rank's gradients by mistake.
        (folder / f"done-{epoch}-{rank}").touch()
        if "stop" in options:
            break
        while not all((folder / f"done-{epoch}-{other}").exists() for other in range(world)):
            time.sleep(0.01)
    weights = [weight.detach().flatten().tolist() for weight in model.parameters()]
    print("weights", *weights, file=notes)
    print("end", file=notes)
    os._exit(0)


def main() -> None:
    how, index, world, size, folder, options = sys.argv[1:]
    children = []
    for rank in range(int(world)):
        pid = os.fork()
        if pid == 0:
            try:
                run(rank, how, index, int(world), int(size), pathlib.Path(folder), json.loads(options))
            finally:
                os._exit(1)
        children.append(pid)
    failed = [pid for pid in children if os.waitpid(pid, 0)[1] != 0]
    sys.exit(len(failed))


if __name__ == "__main__":
    main()
