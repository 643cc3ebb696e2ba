"""Refuses an epoch of a ``DataLoader`` in which a framework shards again what a sampler of rowdex has sharded already.

Frameworks wrap samplers and datasets when they take over a loader, and every rank then gets a part of its part. What
they wrap it in says of how many shards it takes one (``num_processes`` with Accelerate, ``num_replicas`` with PyTorch,
Lightning and Ray), so it is found by looking. Nobody tells a sampler which loader has it. So when an epoch begins, the
loader is looked for among what is running.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

REMEDY = (
    "Give accelerator.prepare() a rowdex.accelerate.Loader, or a DataLoader with batch_sampler="
    "rowdex.torch.GlobalBatchSampler(...), or do not prepare this DataLoader (Lightning: use_distributed_sampler=False)"
)

UNORDERED = (
    "in_order=False of a DataLoader hands batches out as its workers finish them, so nothing says which rows so many "
    "steps were: leave it out, or save and go on at the end of an epoch"
)

LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader")
"""Where the methods are with which a ``DataLoader`` is iterated over."""


def running(*modules: str) -> Iterator[tuple[Any, str]]:
    """The objects that have methods of these modules running in this thread, and which, innermost first.

    Only the variables of these modules are looked at, because a frame keeps alive what was seen in it.
    """
    data = sys.modules.get("torch.utils.data")
    # A forked worker has the stack of its parent below its own, as it was.
    in_worker = data is not None and data.get_worker_info() is not None
    frame: Any = None if in_worker else sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(modules):
            own = frame.f_locals.get("self")
            if own is not None:
                yield own, frame.f_code.co_name
        frame = frame.f_back


def check_begun() -> Any:
    """Raises a ``RuntimeError`` if the epoch that a ``DataLoader`` begins in this thread would not be right. Returns
    that loader, or its iterator, and ``None`` if there is none.
    """
    begun = _begun()
    if begun is not None:
        check(begun)
    return begun


def rows_of_step(loader: Any, sampler: Any) -> int | None:
    """How many rows of a sampler a step of a ``DataLoader``, or of its iterator, has that makes batches of them."""
    batches = getattr(loader, "_index_sampler", None)
    rows: int | None = getattr(batches, "batch_size", None) if getattr(batches, "sampler", None) is sampler else None
    return rows


def is_unordered(loader: Any) -> bool:
    """Whether a ``DataLoader``, or its iterator, hands batches out as workers finish them."""
    workers = getattr(loader, "num_workers", getattr(loader, "_num_workers", 0))
    return workers > 1 and not getattr(loader, "in_order", getattr(loader, "_in_order", True))


def check(loader: Any) -> None:
    """Raises a ``RuntimeError`` if an epoch of a ``DataLoader``, or of its iterator, would not be right."""
    for above, ours in _chains(loader):
        shards = ours._shards
        if shards == 1:
            continue
        name = type(ours).__name__
        if _is_dispatched(loader):
            raise RuntimeError(
                f"Accelerate reads this {name} in one process and deals out what it reads, and it is one of {shards} "
                f"shards already: every rank would get a part of its part. Use dispatch_batches=False"
                + (f". {REMEDY}" if not hasattr(ours, "_check_wrapped") else ", or a rowdex.accelerate.Loader")
            )
        wrappers = [value for value in above if _wrapper_shards(value) > 1]
        check_wrapped = getattr(ours, "_check_wrapped", None)
        if check_wrapped is not None:
            check_wrapped(wrappers)
        elif wrappers:
            kind = type(wrappers[0])
            raise RuntimeError(
                f"{kind.__module__}.{kind.__name__} takes one of {_wrapper_shards(wrappers[0])} shards of this {name}, "
                f"which is one of {shards} shards already: every rank would get a part of its part. {REMEDY}"
            )
    if isinstance(loader, sys.modules["torch.utils.data"].DataLoader):
        _check_options(loader)


def _check_options(loader: Any) -> None:
    collate = loader.collate_fn
    # One of the user's own may join batches; those of frameworks make a batch of samples.
    of = getattr(collate, "__module__", None) or type(collate).__module__
    collated = of.partition(".")[0] in ("torch", "transformers", "lightning", "accelerate", "datasets", "trl")
    if getattr(loader.dataset, "_makes_batches", False) and loader.batch_size is not None and collated:
        raise RuntimeError(
            f"a DataLoader that makes batches of {loader.batch_size} of the batches of an IterableDataset of rowdex: "
            "write DataLoader(dataset, batch_size=None), and give the dataset the batch size; the Trainer of Hugging "
            "Face takes the rowdex.Dataset, with rowdex.transformers.TrainerMixin"
        )
    if is_unordered(loader) and _is_shared(loader):
        raise RuntimeError(
            "in_order=False with share='machine': steps belong to workers, as ranks of the shared reader, and would go "
            "to any of them: leave out one of the two"
        )


def _is_shared(loader: Any) -> bool:
    """Whether the steps of a sampler of rowdex go to workers that share a reader."""
    shared = getattr(loader.dataset, "_torch", {}).get("share")
    return bool(shared) and any(hasattr(type(ours), "state_after") for _, ours in _chains(loader))


def _wrapper_shards(wrapper: Any) -> int:
    for name in ("num_processes", "num_replicas"):
        found = getattr(wrapper, name, None)
        if isinstance(found, int):
            return found
    return 1


def check_worker(name: str, made_in: int, assumed: bool, chosen: bool) -> None:
    """Refuses to serve all batches of a rank in each of several workers of a ``DataLoader``.

    Args:
        name: What would serve them.
        made_in: The process that made it.
        assumed: Whether nobody said which rank it is for.
        chosen: Whether its epoch is another one than each worker begins with.
    """
    data = sys.modules.get("torch.utils.data")
    worker = None if data is None else data.get_worker_info()
    if worker is None:
        return
    inherited = made_in != os.getpid()
    if worker.num_workers > 1 and (inherited or assumed):
        raise RuntimeError(
            f"a {name} in one of the {worker.num_workers} workers of a DataLoader: each of them would serve every batch"
            " of this rank. Use rowdex.torch.IterableDataset, which deals batches to workers, or num_workers=0 and map="
            " of the loader; or make a loader in each worker, with num_replicas and rank of its own"
        )
    if inherited and not chosen:
        warnings.warn(
            f"this {name} was copied to the worker of a DataLoader, and every worker that is started begins with the "
            "same epoch: use persistent_workers=True, call set_epoch() of the loader before each epoch, or use "
            "rowdex.torch.IterableDataset",
            stacklevel=5,
        )


# What the wrappers, and the iterators, of PyTorch, torchdata, Accelerate and Lightning keep what they have in.
_INSIDE = ("batch_sampler", "sampler", "dataset", "_sampler", "data_source", "datasets", "_index_sampler", "_dataset")


def _chains(loader: Any) -> Iterator[tuple[list[Any], Any]]:
    """What within a loader says of how many shards it is one, each with what it is wrapped in."""

    def within(value: Any, above: list[Any]) -> Iterator[tuple[list[Any], Any]]:
        if hasattr(type(value), "_shards"):
            yield above, value
        elif value is not None and len(above) < 8 and not isinstance(value, (str, bytes, range)):
            if isinstance(value, (list, tuple)):
                parts = list(value[:100]) if all(hasattr(part, "__dict__") for part in value[:1]) else []
            else:
                attributes = getattr(value, "__dict__", {})
                parts = [attributes[name] for name in _INSIDE if name in attributes]
            for part in parts:
                yield from within(part, [*above, value])

    yield from within(loader, [])


def _is_dispatched(loader: Any) -> bool:
    """Whether a ``DataLoaderDispatcher`` of Accelerate is what reads this loader."""
    return any(
        # One that is being made, which begins a StatefulDataLoader, has no state yet.
        (getattr(own, "state", None) or sys.modules["accelerate.state"].PartialState()).num_processes > 1
        for own, _ in running("accelerate.data_loader")
        if type(own).__name__ == "DataLoaderDispatcher" and own.base_dataloader is loader
    )


def _begun() -> Any:
    """The ``DataLoader`` that is iterated over in this thread, or its iterator where no more of it is to be seen."""
    data, iterator = sys.modules.get("torch.utils.data"), None
    if data is None:
        return None
    for own, _ in running(*LOADERS, "accelerate.data_loader"):
        # Accelerate has a loader of its own, and in it the one that it was given.
        loader = getattr(own, "base_dataloader", own)
        if isinstance(loader, data.DataLoader):
            return loader if iterator is None or loader.dataset is iterator._dataset else iterator
        if iterator is None and hasattr(own, "_index_sampler"):
            iterator = own
    return iterator
