"""Datasets for ``DataLoader``, with any sampler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch.utils.data

from .. import native
from ..batch import Batch, LoaderStep
from ..dataset import Dataset as _Dataset
from ..errors import StateError
from ..frameworks.sharded import Measured
from ..loading.convert import Convert
from ..loading.functions import row_failed
from ..loading.named import asked, called
from ..loading.share import Sharing, can_share
from ..loading.share import options as share_options
from ..native.arrays import Nulls
from ..native.imports import loaded
from ..native.library import PerProcess, call, count, library, size
from ..order import may_repeat
from .all_ranks import DealtStep, GlobalStep
from .reader import StepReader, check_workers, workers_of
from .rows import Rows, samples
from ..zipped import Zipped as _Zipped
from .samplers import Step


class Dataset(_Dataset, torch.utils.data.Dataset[Any], Measured):
    """A :class:`rowdex.Dataset` for ``DataLoader``, with any sampler.

    ``dataset[i]`` is a sample: a dict of Python values, with lists of numbers as tensors. Batches come as dicts of
    tensors, made at once rather than sample by sample, unless the ``DataLoader`` has a ``collate_fn``, which gets the
    samples.

    Args:
        memory: Bytes of decoded rows that all workers of a ``DataLoader`` together may hold when they know what comes
            (see :class:`BatchSampler`). Default: 1 GiB.
        worker_threads: Threads of each worker then. Default: 1 in workers, 2 without them. 0: none.
        nulls, strings: As :meth:`rowdex.Batch.to_numpy` has them.
        transform: A function of each sample, of which the ``DataLoader`` then makes batches. With a parameter ``rng``
            it gets the generator of the row, in the epoch of a :class:`BatchSampler` or :class:`IterableDataset`.
        share: ``"workers"``: the workers of a ``DataLoader`` over a :class:`BatchSampler` or an
            :class:`IterableDataset` have one reader, with the threads of all of them, where the system can (Linux), and
            steps come to workers in turn. ``None``: each reads for itself, with its part of the memory. ``"machine"``:
            one reader makes the batches of a :class:`BatchSampler` or :class:`IterableDataset` for the workers of all
            ranks on this machine. ``memory`` and ``worker_threads`` (default: 2) are then those of the machine. What is
            served stays the same. All ranks need the same arguments and the same number of workers, which should
            persist. If several ``DataLoader`` with different samplers run at a time, give each another dataset. A
            :class:`rowdex.Share` says more. Linux only.
        others: As :class:`rowdex.Dataset` has them.
    """

    def __init__(
        self,
        index: Any,
        columns: Sequence[str] | None = None,
        *,
        memory: int | str | None = None,
        worker_threads: int | None = None,
        nulls: Nulls = "error",
        strings: str = "list",
        transform: Callable[[Any], Any] | None = None,
        share: Sharing | Literal["workers"] = "workers",
        **others: Any,
    ) -> None:
        count(worker_threads, "worker_threads")
        Convert("torch", nulls, strings)
        self._torch: dict[str, Any] = {
            "memory": size(memory, "memory"),
            "worker_threads": worker_threads,
            "nulls": nulls,
            "strings": strings,
            "transform": transform,
            # `None`: not even among the workers of a rank.
            "share": {} if share == "workers" else share_options(share) or None,
        }
        super().__init__(index, columns, **others)

    def _set(self, arguments: dict[str, Any]) -> None:
        super()._set(arguments)
        if "torch" not in arguments:
            arguments["torch"] = self._torch
        self._torch = arguments["torch"]
        self._convert = Convert("torch", self._torch["nulls"], self._torch["strings"])
        self._asks = asked("transform", self._torch["transform"], "rng")
        # What the workers that are made now have in common.
        self._group: str | None = arguments.pop("group", None)
        self._readers = PerProcess(self._new_reader)
        # The step that was dealt last, or what a state says of it.
        self._served: Step | None = None
        self._dealt: dict[str, Any] | None = None

    def _new_reader(self) -> StepReader:
        return StepReader(self, self._torch, self._group)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "group": self._group}

    def _share_among_workers(self, group: str | None) -> None:
        """Gives the workers of a ``DataLoader`` that are made from now on a name in common, if they can share a reader.

        They must ask for all steps in turn, because a batch that waits for one worker holds up the others: another
        dataset, subclass or sampler may leave out steps.
        """
        in_turn = group is not None and type(self).__getitems__ is Dataset.__getitems__
        self._group = group if in_turn and can_share() else None

    def _leave(self) -> None:
        """Lets the other workers know that this one asks for no more steps."""
        self._readers.get().leave()

    def __getitem__(self, rows: Any) -> Any:
        if hasattr(rows, "__index__") and not getattr(rows, "shape", ()):
            return self._samples(self.take([rows]), None, False)[0]
        return super().__getitem__(rows)

    def __getitems__(self, rows: Any) -> Any:
        """The samples of a list of row ids, or of a :class:`Step`: a :class:`Rows`, or a list after ``transform``."""
        step = None
        if isinstance(rows, LoaderStep):
            return rows.batch()
        if isinstance(rows, GlobalStep):
            rows = rows.share()
        if isinstance(rows, DealtStep):
            self._deal(rows.step)
            step = rows.step
            rows = step if rows.rows is None else rows.rows
        reader = self._readers.get()
        if isinstance(rows, Step):
            step = rows
            batch = reader.serve(rows)
        else:
            batch = reader.take(rows)
        if self._torch["transform"] is None or not len(batch):
            return Rows(batch, self._convert)
        return self._samples(batch, step, isinstance(rows, Step))

    def _samples(self, batch: Batch, step: Step | None, positions: bool) -> list[Any]:
        """The samples of a batch of a step after ``transform``; with ``positions`` where rows repeat."""
        found = samples(batch)
        transform = self._torch["transform"]
        if transform is None:
            return found
        numbers = None
        if self._asks is not None:
            if step is None:
                raise TypeError(
                    "transform draws the random numbers of a row in an epoch, and a row id says no epoch: give the "
                    "DataLoader batch_sampler=rowdex.torch.BatchSampler(…)"
                )
            if not positions and may_repeat(step.spec.order):
                raise ValueError(
                    f"transform draws random numbers, and order={step.spec.order!r} may serve a row more than once: "
                    "give the DataLoader a rowdex.torch.BatchSampler rather than a GlobalBatchSampler"
                )
            numbers = loaded("rowdex.loading.random_numbers").RowNumbers.of(step.spec.seed, batch, step.epoch)
        made = []
        for place, sample in enumerate(found):
            try:
                made.append(called(transform, self._asks, sample, numbers, place))
            except Exception as error:
                row = batch.row_ids[place]
                raise row_failed(self, "transform", row, "", error, None, [row]) from error
        return made

    def state_dict(self) -> dict[str, Any]:
        """What torchdata's ``StatefulDataLoader`` keeps in addition to the number of steps it took: of which run these
        are.

        Accelerate wraps a :class:`GlobalBatchSampler` in an object without a state, so that torchdata resumes by
        counting.
        """
        return {"workers": workers_of(), "dealt": self._dealt if self._served is None else self._state_of(self._served)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuses a state of another number of workers; a step that is assigned otherwise than before is refused later.
        """
        check_workers(state_dict)
        self._dealt, self._served = state_dict.get("dealt"), None

    def _state_of(self, step: Step) -> dict[str, Any]:
        spec, text = step.spec, ctypes.create_string_buffer(native.STATE_CAPACITY)
        whole = self._readers.get().opened(spec).whole
        call(library.sampler_state, whole, step.epoch, step.step + 1, text, len(text))
        return {"shards": spec.world_size // spec.replicas, "batch_size": spec.batch_size, "state": text.value.decode()}

    def _deal(self, step: Step) -> None:
        """Records a step that a :class:`GlobalBatchSampler` has assigned."""
        before, self._dealt = self._dealt, None
        self._served = step
        if before is None:
            return
        spec = step.spec
        if (before["shards"], before["batch_size"]) != (spec.world_size // spec.replicas, spec.batch_size):
            raise StateError(
                f"the state is of {before['shards']} ranks with {before['batch_size']} rows per step each, and now "
                f"{spec.world_size // spec.replicas} have {spec.batch_size}: the same steps are other rows. Keep "
                "both as before, or use rowdex.accelerate.Loader, whose state resumes with any"
            )
        # Refuses another order, seed or dataset.
        epoch = spec._replace(resumed=before["state"]).open(self).resumed_epoch
        assert epoch is not None
        if not epoch <= step.epoch <= epoch + 1:
            raise StateError(
                f"the state is of epoch {epoch}, and epoch {step.epoch} begins: Accelerate counts epochs from 0 in "
                f"every process, so call set_epoch({epoch}) of the prepared loader before its first iteration, or use "
                "rowdex.accelerate.Loader, whose epochs follow its state"
            )


class Zipped(Dataset, _Zipped):
    """A :class:`rowdex.Zipped` for ``DataLoader``, with any sampler.

    Args:
        index: What :class:`rowdex.Zipped` has as ``datasets``.
        others: As :class:`Dataset` and :class:`rowdex.Zipped` have them.
    """
