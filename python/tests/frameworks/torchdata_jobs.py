"""Ranks that read through torchdata, forked by jobs.py."""

from __future__ import annotations

from typing import Any

import rowdex
import rowdex.torch
import torchdata.nodes
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


def leaves_an_epoch(index: str, size: int) -> dict[str, Any]:
    """Leaves the first epoch after three batches, and reads two more."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
    node: Any = torchdata.nodes.IterableWrapper(loader)
    batches: Any = torchdata.nodes.Loader(node)
    found = [ids(batch for _, batch in zip(range(3), batches))]
    return {"plain": plain(index, size, 3), "found": [*found, ids(batches), ids(batches)]}


def another_number_of_workers(index: str, kind: str) -> str:
    """Saves with one worker, and goes on with two."""
    before = loader_of(index, kind, 1)
    next(iter(before))
    after = loader_of(index, kind, 2)
    after.load_state_dict(before.state_dict())
    try:
        ids(after)
    except ValueError as error:
        return str(error)
    return ""


def loader_of(index: str, kind: str, workers: int) -> Any:
    if kind == "iterable":
        dataset = rowdex.torch.IterableDataset(rowdex.torch.Dataset(index, ["id"]), 64, **SAMPLING)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)
    return stateful(index, 64, kind, workers)


def resumed_twice(index: str) -> Any:
    """An iterable dataset goes on from the state of a run, and then from that of torchdata."""
    dataset = rowdex.torch.IterableDataset(rowdex.torch.Dataset(index, ["id"]), 64, **SAMPLING)
    dataset.load_run_state(dataset.state_after(0, 9))
    before: Any = StatefulDataLoader(dataset, batch_size=None, num_workers=1)
    found = [batch["id"].tolist() for _, batch in zip(range(5), before)]
    after = loader_of(index, "iterable", 1)
    after.load_state_dict(before.state_dict())
    return {"found": found + ids(after), "plain": plain(index, 64, 1)[0][10:]}
