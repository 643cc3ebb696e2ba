"""Ranks that read through torchdata, forked by jobs.py."""

from __future__ import annotations

from typing import Any

import rowdex
import rowdex.torch
from torchdata.stateful_dataloader import StatefulDataLoader

SAMPLING: dict[str, Any] = {"seed": 3}


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def plain(index: str, size: int, epochs: int) -> list[list[list[int]]]:
    """What the loader serves that no framework has touched."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
    return [ids(loader) for _ in range(epochs)]


def stateful(index: str, size: int, kind: str, workers: int) -> Any:
    dataset = rowdex.torch.Dataset(index, ["id"])
    if kind == "batches":
        batches = rowdex.torch.BatchSampler(dataset, size, **SAMPLING)
        return StatefulDataLoader(dataset, batch_sampler=batches, num_workers=workers)
    sampler = rowdex.DistributedSampler(dataset, batch_size=48, **SAMPLING)
    return StatefulDataLoader(dataset, batch_size=size, sampler=sampler, num_workers=workers)


def goes_on(index: str, size: int, kind: str, workers: int, stop: int) -> dict[str, Any]:
    """Stops in the second epoch, and goes on from the state in another loader."""
    before = stateful(index, size, kind, workers)
    first = ids(before)
    begun = []
    for batch in before:
        begun.append(batch["id"].tolist())
        if len(begun) == stop:
            break
    after = stateful(index, size, kind, workers)
    after.load_state_dict(before.state_dict())
    return {"plain": plain(index, size, 3), "found": [first, begun + ids(after), ids(after)]}

