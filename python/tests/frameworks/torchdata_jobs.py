"""Ranks that read through torchdata, forked by jobs.py."""

from __future__ import annotations

import json
from typing import Any

import rowdex
import rowdex.torch
import torchdata.nodes
from torch.distributed import checkpoint
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



def nodes(index: str, size: int, stop: int, threads: bool) -> dict[str, Any]:
    """Stops in the second epoch of a pipeline of nodes, and goes on in another one."""

    def pipeline() -> Any:
        loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
        node: Any = rowdex.torch.Node(loader)
        return torchdata.nodes.Loader(torchdata.nodes.Prefetcher(node, prefetch_factor=3) if threads else node)

    before = pipeline()
    found = [ids(before)]
    at_end = json.loads(json.dumps(before.state_dict())) if not threads else None
    begun = []
    for batch in before:
        begun.append(batch["id"].tolist())
        if len(begun) == stop:
            break
    after = pipeline()
    after.load_state_dict(before.state_dict())
    found += [begun + ids(after), ids(after)]
    if at_end is not None:
        third = pipeline()
        third.load_state_dict(at_end)
        assert ids(third) == found[1]
    return {"plain": plain(index, size, 3), "found": found}


def leaves_an_epoch(index: str, size: int) -> dict[str, Any]:
    """Leaves the first epoch after three batches, and reads two more."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
    node: Any = rowdex.torch.Node(loader)
    batches: Any = torchdata.nodes.Loader(node)
    found = [ids(batch for _, batch in zip(range(3), batches))]
    return {"plain": plain(index, size, 3), "found": [*found, ids(batches), ids(batches)]}


def checkpoints(index: str, size: int, folder: str, stop: int) -> dict[str, Any]:
    """Saves a loader in a distributed checkpoint, and what the epoch has left then."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
    ids(loader)
    begun = [batch["id"].tolist() for _, batch in zip(range(stop), loader)]
    return {"begun": begun, "state": loader.state_dict(), "saved": save(loader, folder)}


def save(loader: Any, folder: str) -> bool:
    checkpoint.save({"loader": loader}, checkpoint_id=folder)
    return True


def goes_on_from_a_checkpoint(index: str, size: int, folder: str) -> dict[str, Any]:
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, **SAMPLING)
    checkpoint.load({"loader": loader}, checkpoint_id=folder)
    return {"state": loader.state_dict(), "rest": ids(loader), "next": ids(loader)}


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
