"""Ranks that train with Accelerate, forked by jobs.py."""

from __future__ import annotations

import os
import pathlib
from typing import Any

import rowdex
import rowdex.accelerate
import rowdex.torch
import torch
import torch._dynamo  # Optimizers import it, which takes seconds: once here, not in every rank.
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration
from torch.utils.data import DataLoader

SIZE = 64


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def plain(index: str, epochs: int, size: int = SIZE, **options: Any) -> list[list[list[int]]]:
    """What the loader serves that no framework has touched."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=size, seed=3, **options)
    return [ids(loader) for _ in range(epochs)]


def accelerator(**configuration: Any) -> Accelerator:
    return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**configuration))


def prepared(index: str, kind: str, workers: int = 0, **configuration: Any) -> tuple[Any, Any]:
    """An accelerator and a loader that it prepared."""
    made = accelerator(**configuration)
    dataset = rowdex.torch.Dataset(index, ["id"])
    if kind == "loader":
        loader: Any = rowdex.accelerate.Loader(dataset, batch_size=SIZE, seed=3)
    elif kind == "global":
        split = configuration.get("split_batches", False)
        size = SIZE * (2 if split else 1)
        batches: Any = rowdex.torch.GlobalBatchSampler(dataset, size, split_batches=split, seed=3)
        loader = DataLoader(dataset, batch_sampler=batches, num_workers=workers)
    elif kind == "batches":
        loader = DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, SIZE, seed=3))
    elif kind == "samples":
        loader = DataLoader(dataset, batch_size=SIZE, sampler=rowdex.DistributedSampler(dataset, seed=3))
    elif kind == "steps":
        steps = rowdex.Loader(dataset, batch_size=SIZE, seed=3)
        parts: Any = {"batch_sampler": steps.batch_sampler, "collate_fn": steps.collate_fn}
        loader = DataLoader(dataset, **parts, num_workers=workers)
    else:
        loader = DataLoader(rowdex.torch.IterableDataset(dataset, SIZE, seed=3), batch_size=None)
    return made, made.prepare(loader)


def epochs(index: str, kind: str, number: int, **options: Any) -> dict[str, Any]:
    """The batches of some epochs, and those of the plain loader; decodes, and the steps that are announced."""
    _, loader = prepared(index, kind, **options)
    found = [ids(loader) for _ in range(number)]
    counters = loader.dataset.counters
    return {"found": found, "plain": plain(index, number), "len": len(loader), "decodes": counters.decodes}


def goes_on(index: str, folder: str, stop: int) -> dict[str, Any]:
    """Saves a state in the second epoch, reads on, and goes on from it in another loader."""
    made, loader = prepared(index, "loader")
    ids(loader)
    for step, _ in enumerate(loader, 1):
        if step == stop:
            made.save_state(folder)
            break
    # The main process writes the file that the others read.
    made.wait_for_everyone()
    again, other = prepared(index, "loader")
    again.load_state(folder)
    return {"rest": ids(other), "next": ids(other), "plain": plain(index, 3)}


def gathers_the_rest(index: str, folder: str) -> list[int]:
    """The rows of what is left of an epoch as gather_for_metrics gives them."""
    made, loader = prepared(index, "loader")
    made.load_state(folder)
    return [row for batch in loader for row in made.gather_for_metrics(batch["id"]).tolist()]


def substitutes(index: str) -> list[bool]:
    """Whether loaders that serve substitutes are refused: of two ranks, of five, and of five without pads."""
    accelerator()
    dataset = rowdex.Dataset(index, ["id"])
    subset = rowdex.order.Subset("global", rowdex.order.IdSet(len(dataset), range(1000)))

    def is_refused(world: int, **options: Any) -> bool:
        def make() -> Any:
            ranks = {"num_replicas": world, "rank": 0, "on_error": "substitute"}
            return rowdex.accelerate.Loader(dataset, batch_size=SIZE, **ranks, **options)

        return "use tail='drop'" in error_of(make)

    return [is_refused(2), is_refused(5), is_refused(5, order=subset), is_refused(5, drop_last="batch")]


def deals_the_rest(index: str) -> dict[str, Any]:
    """What a global sampler deals to three ranks of the rest of an epoch of one rank."""
    dataset = rowdex.torch.Dataset(index, ["id"])
    before = rowdex.DistributedSampler(dataset, 1, 0, batch_size=10, seed=3)
    begun = next(iter(before.batches())).row_ids
    batches = rowdex.torch.GlobalBatchSampler(dataset, 64, num_shards=3, seed=3)
    batches.sampler.load_state_dict(before.state_dict())
    # One process, in which nothing is dealt to others.
    batches._check_dealt = lambda: None  # type: ignore[method-assign]
    dealt = [int(row["id"]) for step in batches for row in dataset.__getitems__(step.share())]
    return {"begun": begun, "rest": dealt}


def skips(index: str, kind: str, number: int) -> dict[str, Any]:
    if kind == "plain":
        made = accelerator()
        loader: Any = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE, seed=3)
    else:
        made, loader = prepared(index, kind)
    first = ids(loader)
    if hasattr(loader, "set_epoch") and kind == "global":
        loader.set_epoch(1)
    skipped = made.skip_first_batches(loader, number)
    ends = []
    found = []
    for batch in skipped:
        found.append(batch["id"].tolist())
        ends.append(made.gradient_state.end_of_dataloader)
    if kind == "global":
        loader.set_epoch(2)
    return {"found": [first, found, ids(loader)], "plain": plain(index, 3), "ends": ends, "len": len(skipped)}


def accumulates(index: str, kind: str) -> list[int]:
    """After how many batches an optimizer stepped, with gradients accumulated over 10 batches."""
    made, loader = prepared(index, kind)
    made.gradient_accumulation_steps = 10
    model = torch.nn.Linear(1, 1)
    model, optimizer = made.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-9))
    stepped = []
    for number, batch in enumerate(loader, 1):
        with made.accumulate(model):
            made.backward(model(batch["id"].float()[:, None]).mean())
            optimizer.step()
            if made.sync_gradients:
                stepped.append(number)
            optimizer.zero_grad()
    return stepped


def metrics(index: str, kind: str) -> list[int]:
    """The rows of an epoch as gather_for_metrics gives them."""
    made, loader = prepared(index, kind)
    found = []
    for batch in loader:
        found += made.gather_for_metrics(batch["id"]).tolist()
    return found


def restart(index: str) -> str:
    """Loads a state of a later epoch into the sampler of a loader that Accelerate counts the epochs of."""
    dataset = rowdex.torch.Dataset(index, ["id"])
    batches = rowdex.torch.BatchSampler(dataset, SIZE, seed=3)
    batches.load_state_dict(batches.state_after(2, 4))
    loader = accelerator().prepare(DataLoader(dataset, batch_sampler=batches))
    return str(ids(loader)[0])


def world_changes(index: str) -> int:
    """A loader that is made before there is a process group."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE)
    explicit = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE, num_replicas=1, rank=0)
    store = f"file://{pathlib.Path.cwd()}/late"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    assert len(ids(loader)) == len(ids(explicit))
    return len(loader)


def error_of(run: Any) -> str:
    try:
        run()
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def refused(index: str, kinds: list[str]) -> dict[str, list[str]]:
    """The errors of loaders that Accelerate shards in its three ways."""
    found: dict[str, list[str]] = {}
    for dispatch in (None, True, False):
        errors = [error_of(lambda: epochs(index, kind, 1, dispatch_batches=dispatch)) for kind in kinds]
        found[str(dispatch)] = [error for error in errors if error]
    return found


class Own(torch.utils.data.Dataset):  # type: ignore[misc]
    """A dataset that rowdex does not know."""

    def __init__(self, index: str) -> None:
        self.rows = rowdex.Dataset(index, ["id"])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Any:
        return self.rows[row]


def refused_around_another_dataset(index: str) -> str:
    own = Own(index)
    loader = DataLoader(own, batch_size=SIZE, sampler=rowdex.DistributedSampler(own, seed=3), drop_last=True)
    return error_of(lambda: ids(accelerator().prepare(loader)))


def misused(index: str) -> list[str]:
    dataset = rowdex.torch.Dataset(index, ["id"])

    def loader(size: int = SIZE, **options: Any) -> Any:
        batches = rowdex.torch.GlobalBatchSampler(dataset, size, seed=3, **options)
        return DataLoader(dataset, batch_sampler=batches)

    return [
        error_of(lambda: ids(accelerator(split_batches=True).prepare(loader()))),
        error_of(lambda: ids(loader())),
        # Of 10,007 rows 10,000 are served, and Accelerate would keep 7 rows of the last step.
        error_of(lambda: ids(accelerator().prepare(loader(1000, drop_last="batch")))),
    ]


def late_group(index: str) -> None:
    """Makes a loader, and then joins a process group."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE)
    store = f"file://{pathlib.Path.cwd()}/late"
    torch.distributed.init_process_group("gloo", init_method=store, rank=int(os.environ["JOB_RANK"]), world_size=2)
    # So that neither ends while the other one connects.
    torch.distributed.barrier()
    ids(loader)


def forgotten_epoch(index: str, folder: str) -> str:
    """Goes on within the second epoch without saying so to Accelerate."""
    options: Any = {"use_stateful_dataloader": True}
    made, loader = prepared(index, "global", **options)
    ids(loader)
    for step, _ in enumerate(loader, 1):
        if step == 30:
            made.save_state(folder)
            break
    made.wait_for_everyone()
    again, other = prepared(index, "global", **options)
    again.load_state(folder)
    return error_of(lambda: ids(other))


def skips_twice(index: str, folder: str) -> str:
    """Loads a state, and skips what it has skipped."""
    made, loader = prepared(index, "loader")
    for step, _ in enumerate(loader, 1):
        if step == 30:
            made.save_state(folder)
            break
    made.wait_for_everyone()
    again, other = prepared(index, "loader")
    again.load_state(folder)
    return error_of(lambda: ids(again.skip_first_batches(other, 30)))


def dispatched_with_a_state(index: str) -> list[str]:
    """Accelerate begins a ``StatefulDataLoader`` while it makes what dispatches it."""
    options = {"use_stateful_dataloader": True, "dispatch_batches": True}
    return [error_of(lambda: epochs(index, kind, 1, **options)) for kind in ("iterable", "batches")]
