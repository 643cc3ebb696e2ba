"""A DDP training job on Parquet files, with a checkpoint in the middle of each epoch. It resumes from the checkpoint if
there is one, on any number of ranks.

    torchrun --nproc-per-node 4 examples/ddp.py train.rdx
    torchrun --nproc-per-node 4 examples/ddp.py train.rdx --share

With --share the ranks of a machine have one reader, and its memory is what they have together.

Without arguments it makes a small dataset in a temporary folder (which needs pyarrow) and starts itself with two ranks.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import rowdex
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

EPOCHS = 2
BATCH_SIZE = 64


def train(index: str, folder: pathlib.Path, share: bool) -> None:
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    dataset = rowdex.Dataset(index, columns=["features", "label"])
    # Rank and world size are those of the process group.
    sharing: dict[str, Any] = {"share": "machine"} if share else {}
    loader = rowdex.Loader(dataset, batch_size=BATCH_SIZE, seed=42, memory=256 << 20, **sharing)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    saved = folder / "checkpoint.pt"
    if saved.exists():
        checkpoint = torch.load(saved, weights_only=True)
        model.module.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])

    for epoch in range(loader.epoch, EPOCHS):
        for step, batch in enumerate(loader, len(loader) - loader.steps_left):
            loss = nn.functional.cross_entropy(model(batch["features"]), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == len(loader) // 2 and rank == 0:
                # The same on every rank, so one saves it. Another number of ranks may resume from it.
                checkpoint = {
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "loader": loader.state_dict(),
                }
                torch.save(checkpoint, saved)
        steps = torch.tensor([step + 1])
        dist.all_reduce(steps)
        if rank == 0:
            # All ranks took the same number of steps, or the last gradients would wait without end.
            print(
                f"epoch {epoch}: {int(steps) // world_size} steps on each of {world_size} ranks, loss {loss.item():.3f}"
            )

    dist.barrier()
    loader.load_state_dict(torch.load(saved, weights_only=True)["loader"])
    if rank == 0:
        print(f"a run that resumes from the checkpoint has {loader.steps_left} steps left in epoch {loader.epoch}")
    dist.destroy_process_group()


def example(folder: pathlib.Path) -> str:
    """A dataset that a model can learn: the label says whether the features are positive on average."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = torch.Generator().manual_seed(1)
    for number in range(3):
        features = torch.randn(2_001, 8, generator=generator)
        columns: dict[str, Any] = {
            "features": pa.FixedSizeListArray.from_arrays(features.flatten().numpy(), 8),
            "label": (features.mean(dim=1) > 0).long().numpy(),
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=500)
    rowdex.build(folder, folder / "train.rdx")
    return str(folder / "train.rdx")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if "RANK" in os.environ:
            index = sys.argv[1]
            train(index, pathlib.Path(index).parent, "--share" in sys.argv[2:])
        else:
            launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            subprocess.run([*launcher, __file__, example(folder), *sys.argv[1:]], check=True)


if __name__ == "__main__":
    main()
