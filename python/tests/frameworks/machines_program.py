"""A rank of test_machines.py: torchrun … machines_program.py INDEX FOLDER.

It trains one epoch with DDP. Rank 0 saves a checkpoint in FOLDER now and then; a later job resumes from it. SHARE in
the environment is the loader's `share`. In FOLDER/WORLD-RANK.jsonl the rank records where it begins, each batch that it
gets, and its weights at the end.
"""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import socket
import sys
from typing import Any

import rowdex
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BATCH_SIZE, WIDTH = 16, 32
STEPS_BETWEEN_CHECKPOINTS = 20


def main() -> None:
    index, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=200))
    rank, world = dist.get_rank(), dist.get_world_size()
    dataset = rowdex.Dataset(index, ["id", "x", "y"])
    share: Any = os.environ["SHARE"] or None
    loader = rowdex.Loader(
        dataset, batch_size=BATCH_SIZE, seed=1, memory="16MiB", threads=1, repeated="repeated", share=share
    )
    model = DistributedDataParallel(nn.Linear(WIDTH, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    saved, steps_before = folder / "checkpoint.pt", 0
    if saved.exists():
        checkpoint = torch.load(saved, weights_only=True)
        model.module.load_state_dict(checkpoint["model"])
        loader.load_state_dict(checkpoint["loader"])
        steps_before = checkpoint["steps"]

    with (folder / f"{world}-{rank}.jsonl").open("w", buffering=1) as records:

        def record(**fields: Any) -> None:
            print(json.dumps(fields), file=records)

        record(machine=socket.gethostname(), steps_before=steps_before, steps_left=loader.steps_left)
        for _ in range(loader.epoch, 1):
            for step, batch in enumerate(loader, steps_before + 1):
                ids, repeated = batch["id"].tolist(), batch["repeated"].tolist()
                record(step=step, ids=ids, repeated=repeated, bytes_fetched=dataset.counters.bytes_fetched)
                loss = nn.functional.cross_entropy(model(batch["x"]), batch["y"])
                optimizer.zero_grad()
                loss.backward()  # Waits for all ranks.
                optimizer.step()
                if rank == 0 and step % STEPS_BETWEEN_CHECKPOINTS == 0:
                    checkpoint = {"model": model.module.state_dict(), "loader": loader.state_dict(), "steps": step}
                    torch.save(checkpoint, folder / "part")
                    (folder / "part").rename(saved)
        record(weights=[weight.flatten().tolist() for weight in model.parameters()])
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
