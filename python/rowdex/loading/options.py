"""Keyword arguments that makers of batches pass on to their sampler: which there are, and what to write instead of
those of other loaders."""

from __future__ import annotations

import difflib
import operator
from collections.abc import Iterable, Mapping
from typing import Any

_ELSEWHERE = {
    "batch_sampler": "give sampler=rowdex.DistributedSampler(…, batch_size=…)",
    "buffer_size": "all rows are shuffled among all, and memory= bounds what is held",
    "collate_fn": "use collate= for functions of columns, or map= for a function of batches; a DataLoader with "
    "rowdex.torch.BatchSampler takes a collate_fn",
    "columns": "give them to the dataset",
    "epochs": "each iteration is an epoch",
    "generator": "use seed=",
    "map": "a rowdex.Loader has it; a DataLoader has collate_fn, and the Trainer data_collator",
    "memory": "give it to the rowdex.torch.Dataset",
    "multiprocessing_context": "there are threads, and no worker processes; use threads=",
    "num_epochs": "each iteration is an epoch",
    "num_shards": "use num_replicas=",
    "num_workers": "a Loader has its own threads, and no worker processes; use threads=",
    "pack": "a pack is made of pieces of rows: rowdex.Loader serves packs, see docs/sequences.md for each framework",
    "persistent_workers": "there are threads, and no worker processes",
    "prefetch": "batches are made ahead, as far as memory= allows",
    "prefetch_factor": "batches are made ahead, as far as memory= allows",
    "shard_id": "use rank=",
    **{f"share_{it}": f"write share=rowdex.Share({it}=…)" for it in ("name", "job", "ranks", "drift", "program")},
    "shuffle_buffer": "all rows are shuffled among all, and memory= bounds what is held",
    "threads": "use worker_threads= of the rowdex.torch.Dataset",
    "transform": "use map= for a function of batches, or decode= for functions of values",
    "worker_init_fn": "there are threads, and no worker processes",
    "world_size": "use num_replicas=",
}


def check(given: Iterable[str], known: Iterable[str], maker: str) -> None:
    """Refuses options that there are not.

    Raises:
        TypeError: naming the first of them, and what to write instead.
    """
    names = sorted(known)
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = _ELSEWHERE.get(name) or (f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}")
            raise TypeError(f"{name}: {maker} has no such option; {hint}")


def lengths(pad: Any) -> dict[str, int]:
    """The length that the lists of each column are padded to, where batches are of one shape."""
    if pad is None:
        return {}
    if not isinstance(pad, Mapping) or not all(hasattr(length, "__index__") for length in pad.values()):
        raise TypeError(
            f"pad={pad!r}: batches are of one shape, so give a length for each column of lists, pad={{'tokens': 512}}"
        )
    return {name: operator.index(length) for name, length in pad.items()}


def of_batches(sampling: dict[str, Any]) -> dict[str, Any]:
    """The options of a sampler whose batches are served: there ``drop_last`` is what it is for a ``DataLoader``."""
    if "drop_last" not in sampling:
        return sampling
    return {**sampling, "drop_last": "batch" if sampling["drop_last"] else False}
