"""What PyTorch's ``DataLoader`` takes.

The best way is :class:`Dataset` with :class:`BatchSampler`: workers receive which step to make, plan ahead for the
steps that are theirs, and decode each row group seldom::

    dataset = rowdex.torch.Dataset("train.rdx")
    sampler = rowdex.torch.BatchSampler(dataset, batch_size=256, seed=42)
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=4)

With samplers that are not rowdex's, :class:`Dataset` serves whatever row ids it is asked for; :meth:`Dataset.follow`
makes that fast for PyTorch's own ``DistributedSampler``.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from . import _counted, _sharded, native
from ._arrays import Nulls
from ._gathered import batch_of, dealt
from ._iterations import Announced, Told, Workers, tell_if_starting
from ._library import Handle, PerProcess, call, count, library, loader_options, size
from ._share import close_at_exit
from ._share import options as share_options
from .batch import Batch
from .dataset import Dataset as _Dataset
from .errors import StateError
from .loader import Convert
from .sampler import STEPS_ARE_NO_ROWS, OpenSampler, SamplerSpec, sampler_info, sampler_of, steps_left, world
from .sampler import DistributedSampler as _DistributedSampler
from .steps import LoaderStep

if TYPE_CHECKING:
    from torch.utils.data import DistributedSampler as _StockSampler


class Step(NamedTuple):
    """Which batch a worker is to make: all that it needs to know to make it, and to plan for those that come after."""

    spec: SamplerSpec
    epoch: int
    step: int
    resumed: bool
    """Whether the epoch is the one that the run was resumed within."""

    def __index__(self) -> int:
        raise TypeError(STEPS_ARE_NO_ROWS)


class DealtStep(NamedTuple):
    """The step of a rank that a :class:`GlobalBatchSampler` has dealt to it."""

    step: Step
    rows: list[int] | None
    """Its row ids, where they are not those of the step."""


class DistributedSampler(_DistributedSampler, torch.utils.data.DistributedSampler[Any]):  # type: ignore[override]
    """:class:`rowdex.DistributedSampler` as an instance of PyTorch's, which frameworks leave alone: Lightning, Fabric
    and Ray shard any other sampler again. ``rowdex.DistributedSampler(...)`` makes one where PyTorch is imported.
    """

    @property
    def dataset(self) -> Any:  # type: ignore[override]
        """The dataset, if it is one of rowdex."""
        return self._dataset

    @property
    def shuffle(self) -> bool:  # type: ignore[override]
        """Whether rows are served in another order than theirs."""
        return self._spec.order != "sequential"

    @property
    def seed(self) -> int:  # type: ignore[override]
        """The same on all ranks."""
        return self._spec.seed

    @property
    def drop_last(self) -> bool:  # type: ignore[override]
        """Whether rows that do not divide evenly are dropped."""
        return self._spec.tail == "drop"

    @property
    def num_samples(self) -> int:  # type: ignore[override]
        """How many samples this rank has in every epoch."""
        return len(self)

    @property
    def total_size(self) -> int:  # type: ignore[override]
        """How many samples all ranks have in every epoch, where each has as many as this one."""
        return len(self) * self._shards


class BatchSampler(torch.utils.data.Sampler[Step]):
    """The batches of one rank, for ``DataLoader(dataset, batch_sampler=...)``: it hands out steps, and the dataset
    makes the batches.

    Each iteration is an epoch, and the next one the next epoch, with or without :meth:`set_epoch`. ``len()`` is the
    number of steps, the same on every rank.

    Args:
        dataset: The dataset that the ``DataLoader`` has, or the :class:`rowdex.DistributedSampler` to take batches
            from, which needs a batch size.
        batch_size: Rows per step and rank.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes. ``drop_last`` is what it is for a ``DataLoader``: it leaves out a
            short last batch, as ``drop_last_batch`` does.
    """

    def __init__(self, dataset: _Dataset | _DistributedSampler, batch_size: int | None = None, **sampling: Any) -> None:
        if isinstance(dataset, _DistributedSampler):
            if batch_size is not None or sampling:
                raise TypeError("batch size and other options belong to the sampler")
            self.sampler = dataset
        else:
            self.sampler = sampler_of(dataset, "BatchSampler", batch_size=batch_size, **sampling)
        if self.sampler.batch_size is None:
            raise ValueError("no batch size: give batch_size, to the sampler if there is one")

    def __iter__(self) -> Iterator[Step]:
        return _Steps(self.sampler)

    def __len__(self) -> int:
        return self.sampler.steps

    def __repr__(self) -> str:
        return f"BatchSampler({self.sampler!r})"

    @property
    def _shards(self) -> int:
        return self.sampler._shards

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self.sampler.set_epoch(epoch)

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state once every rank has trained on this step. Workers read ahead, so this is what to save."""
        return self.sampler.state_after(epoch, step)

    def state_dict(self) -> dict[str, str]:
        """The state after the last step that was handed out to the workers, which is further than training is."""
        return self.sampler.state_dict()

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        """Goes on from a state, which may come from another number of ranks, workers, and another batch size."""
        self.sampler.load_state_dict(state_dict)


class _Steps(Iterator[Step]):
    """The steps of an epoch, which begins when the first of them is asked for.

    Its state is whether they were all handed out: torchdata's ``StatefulDataLoader`` goes on from the end of an epoch
    with an iteration of nothing, and where it stands within one it has from the sampler.
    """

    def __init__(self, sampler: _DistributedSampler) -> None:
        self._sampler = sampler
        self._steps: Iterator[Step] | None = None
        self._ended = False

    def __next__(self) -> Step:
        if self._ended:
            raise StopIteration
        if self._steps is None:
            self._steps = _Steps._of_epoch(weakref.proxy(self))
        return next(self._steps)

    def _of_epoch(self) -> Iterator[Step]:
        sampler = self._sampler
        spec, epoch = sampler.spec, sampler._begin()
        resumed = epoch == sampler._resumed_epoch
        steps = sampler._steps(epoch)
        for refusal in sampler._refusals(steps.start):
            steps = range(0)
            yield refusal
        for step in steps:
            sampler._served = (epoch, step + 1)
            self._ended = step + 1 == steps.stop
            yield Step(spec, epoch, step, resumed)

    def state_dict(self) -> dict[str, Any]:
        return {"ended": self._ended}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._ended = bool(state_dict["ended"])


class GlobalBatchSampler(torch.utils.data.Sampler[Any]):
    """The batches of all ranks, for a ``DataLoader`` that a framework shards by batches: Accelerate, the ``Trainer`` of
    Hugging Face. Every rank then serves the batches that it serves with :class:`BatchSampler`, as fast. Each iteration
    is an epoch, and the next one the next epoch::

        batches = rowdex.torch.GlobalBatchSampler(dataset, batch_size=256, seed=42)
        loader = accelerator.prepare(DataLoader(dataset, batch_sampler=batches, num_workers=4))

    All batches have the length that is due, so that ``even_batches`` makes no difference: the ranks' steps are equal
    as they are. In the last step the rows are dealt so that ``gather_for_metrics`` drops those that are served twice.

    Args:
        dataset: The dataset that the ``DataLoader`` has.
        batch_size: Rows per step and rank; with ``split_batches``, rows per step of all ranks together.
        split_batches: Whether the framework takes a part of every batch for each rank, rather than batches in turn:
            as it was told.
        num_shards: Among how many ranks it deals. Default: the world size.
        sampling: ``seed``, ``shuffle``, ``order``, ``tail`` and all else that :class:`rowdex.DistributedSampler` takes,
            but no ``num_replicas`` and ``rank``.
    """

    drop_last = True
    """So that nobody completes the last batch, which needs none."""

    def __init__(
        self, dataset: _Dataset, batch_size: int, *, split_batches: bool = False, num_shards: int | None = None,
        **sampling: Any,
    ) -> None:  # fmt: skip
        for name in {"num_replicas", "rank", "replicas"} & set(sampling):
            raise TypeError(f"{name}: a GlobalBatchSampler has the batches of all ranks; use num_shards")
        shards = world()[0] if num_shards is None else num_shards
        if split_batches and batch_size % shards != 0:
            raise ValueError(f"a batch size of {batch_size} does not split among {shards} ranks")
        size = batch_size // shards if split_batches else batch_size
        self.batch_size, self.split_batches = batch_size, split_batches
        self.sampler = sampler_of(
            dataset, "GlobalBatchSampler", ("num_shards",), num_replicas=shards, rank=0, batch_size=size, **sampling
        )
        if self.sampler.steps:
            last = dealt(self.sampler, self.sampler.epoch, self.sampler.steps - 1)
            kept = len(dataset) % (size * shards) or last.total
            if min(kept, last.total) != last.real:
                raise ValueError(
                    f"the last step of an epoch has {last.real} rows, of which gather_for_metrics of Accelerate would "
                    f"keep {kept}, because it knows the dataset's length alone: use rowdex.accelerate.Loader"
                )

    def __len__(self) -> int:
        return self.sampler.steps * (1 if self.split_batches else self._shards)

    def __repr__(self) -> str:
        return f"GlobalBatchSampler({self.sampler!r}, split_batches={self.split_batches})"

    def __iter__(self) -> Iterator[GlobalStep]:
        sampler = self.sampler
        epoch = sampler._begin()
        steps = sampler._steps(epoch)
        for refusal in sampler._refusals(steps.start):
            steps = range(0)
            yield refusal
        for step in steps:
            if self.split_batches:
                yield GlobalStep(self, epoch, step, None)
            else:
                for rank in range(self._shards):
                    yield GlobalStep(self, epoch, step, rank)

    @property
    def _shards(self) -> int:
        return self.sampler.num_replicas

    def _check_wrapped(self, wrappers: list[Any]) -> None:
        for wrapper in wrappers:
            shards, split = getattr(wrapper, "num_processes", None), getattr(wrapper, "split_batches", None)
            if shards != self._shards or split != self.split_batches or len(wrappers) > 1:
                raise RuntimeError(
                    f"a GlobalBatchSampler with num_shards={self._shards}, split_batches={self.split_batches} is "
                    f"sharded with {shards} and {split}: make it with these"
                )
        if not wrappers:
            raise RuntimeError(
                f"a GlobalBatchSampler has the batches of all {self._shards} ranks, and nobody deals them: give the "
                "DataLoader to accelerator.prepare(), or use rowdex.torch.BatchSampler"
            )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self.sampler.set_epoch(epoch)


class GlobalStep(Sequence[Any]):
    """A batch of a :class:`GlobalBatchSampler` on its way through a framework, which looks at its length, takes it or
    leaves it, or takes a slice of it.
    """

    __slots__ = ("_epoch", "_rank", "_sampler", "_step")

    def __init__(self, sampler: GlobalBatchSampler, epoch: int, step: int, rank: int | None) -> None:
        self._sampler, self._epoch, self._step, self._rank = sampler, epoch, step, rank

    def __len__(self) -> int:
        return self._sampler.batch_size

    def __getitem__(self, part: Any) -> Any:
        size = self._sampler.sampler.spec.batch_size
        start, stop, stride = part.indices(len(self)) if isinstance(part, slice) else (0, 0, 0)
        if self._rank is not None or stride != 1 or start % size != 0 or stop - start != size:
            raise TypeError(f"batch[{part}] of a GlobalBatchSampler, which deals whole batches of {size} rows")
        return GlobalStep(self._sampler, self._epoch, self._step, start // size)

    def share(self) -> DealtStep:
        """What the dataset is asked for."""
        if self._rank is None:
            raise TypeError("a batch of all ranks that nobody has split: use split_batches=False")
        sampler = self._sampler.sampler
        step = Step(sampler.spec._replace(rank=self._rank), self._epoch, self._step, False)
        last = self._step + 1 == sampler.steps
        return DealtStep(step, dealt(sampler, self._epoch, self._step).rows[self._rank] if last else None)

    def __reduce__(self) -> Any:
        # Workers get what it stands for.
        return _share, (self.share(),)


def _share(share: DealtStep) -> DealtStep:
    return share


class Row(dict[str, Any]):
    """A sample: a dict of tensors and Python values. PyTorch's collation leaves samples of a whole batch to the dataset
    that made them."""

    def __missing__(self, key: Any) -> Any:
        if key == 0:
            # PyTorch's collation looks at the first of the samples, and this is only one.
            raise RuntimeError(
                "a collate_fn was given one sample, and not a list of them: a framework has put a sampler of its own "
                "in the place of a rowdex.torch.BatchSampler, which is sharded already. With Ray, write "
                "prepare_data_loader(loader, add_dist_sampler=False)"
            )
        raise KeyError(key)


class Rows(Sequence[Row]):
    """The samples of a batch, which are made when they are looked at.

    ``default_collate``, which a ``DataLoader`` has unless told otherwise, looks at the first and gets the columns of
    the whole batch as tensors. A ``collate_fn`` of one's own sees a list of samples.
    """

    def __init__(self, batch: Batch, convert: Convert) -> None:
        self.batch = batch
        self._convert = convert
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        return self.batch.num_rows

    def __getitem__(self, row: Any) -> Any:
        if self._rows is None:
            self._rows = _samples(self.batch)
        if not self._rows and row == 0:
            # In the last step a rank may have no row, and collation goes by the type of the first all the same.
            return Row()
        return self._rows[row]

    def __iter__(self) -> Iterator[Row]:
        return iter([self[row] for row in range(len(self))])

    def columns(self) -> Any:
        """The columns as tensors."""
        return self._convert(self.batch)


def _collate(samples: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(samples, Rows):
        return samples.columns()
    # Samples that somebody picked out or changed.
    return torch.utils.data.default_collate([dict(sample) for sample in samples])


# The way to teach `default_collate` about a type that its documentation gives.
default_collate_fn_map[Row] = _collate


def _samples(batch: Batch) -> list[Row]:
    """Rows with lists of numbers as tensors, and Python values otherwise."""
    fields = batch.schema.fields
    array = batch._export().array
    columns: list[Any] = []
    for i, field in enumerate(fields):
        if field.format.startswith(("+w:", "+l", "+L", "+vl", "+vL")):
            columns.append(_lists(batch, field.name) or batch_values(batch, array, i))
        else:
            columns.append(batch_values(batch, array, i))
    names = batch.column_names
    return [Row(zip(names, row)) for row in zip(*columns)] if columns else [Row() for _ in range(len(batch))]


def batch_values(batch: Batch, array: Any, column: int) -> list[Any]:
    from . import _values

    return _values.values(batch.schema.fields[column], array.children[column].contents, array.offset, len(batch))


def _lists(batch: Batch, name: str) -> list[Any] | None:
    """The lists of a column as tensors; ``None`` if they are not of numbers, or there are nulls."""
    try:
        found = batch.to_torch([name])[name]
    except ValueError:
        return None
    if isinstance(found, torch.Tensor):
        return list(found)
    values, offsets = found.values, found.offsets
    if not isinstance(values, torch.Tensor):
        return None
    return list(torch.tensor_split(values, offsets[1:-1].to(torch.int64))) if len(offsets) > 1 else []


class Dataset(_Dataset, torch.utils.data.Dataset[Any]):
    """A :class:`rowdex.Dataset` for ``DataLoader``, with any sampler.

    ``dataset[i]`` is a sample: a dict of Python values, with lists of numbers as tensors. Batches come as dicts of
    tensors, made at once rather than sample by sample, unless the ``DataLoader`` has a ``collate_fn``, which gets the
    samples.

    Args:
        memory: Bytes of decoded rows that all workers of a ``DataLoader`` together may hold when they know what comes
            (see :class:`BatchSampler` and :meth:`follow`). Default: 1 GiB.
        worker_threads: Threads of each worker then. Default: 1 in workers, 2 without them. 0: none.
        nulls, strings: As :meth:`rowdex.Batch.to_numpy` has them.
        share: ``"machine"``: one reader makes the batches of a :class:`BatchSampler` or :class:`IterableDataset` for
            the workers of all ranks on this machine. ``memory`` and ``worker_threads`` (default: 2) are then those of
            the machine. What is served stays the same. All ranks need the same arguments and the same number of
            workers, which should persist. Linux only.
        share_name, share_job, share_ranks, share_drift, share_on_death: As :class:`rowdex.Loader` has them. A dataset
            that is used by several ``DataLoader`` at a time, with samplers that differ, is to be made once for each of
            them.
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
        share: Literal["machine"] | None = None,
        share_name: str | None = None,
        share_job: str | None = None,
        share_ranks: int | None = None,
        share_drift: int | None = None,
        share_on_death: Literal["continue", "fail"] | None = None,
        **others: Any,
    ) -> None:
        count(worker_threads, "worker_threads")
        Convert("torch", nulls, strings)
        self._torch: dict[str, Any] = {
            "memory": size(memory, "memory"),
            "worker_threads": worker_threads,
            "nulls": nulls,
            "strings": strings,
            "share": share_options(share, share_name, share_job, share_ranks, share_drift, share_on_death),
        }
        super().__init__(index, columns, **others)

    def _set(self, arguments: dict[str, Any]) -> None:
        super()._set(arguments)
        if "torch" not in arguments:
            arguments["torch"] = self._torch
        self._torch = arguments["torch"]
        self._convert = Convert("torch", self._torch["nulls"], self._torch["strings"])
        followed = arguments.pop("followed", None)
        # Gives PyTorch's sampler, which has the dataset and is not kept alive by it, or what was known of it.
        self._followed: Callable[[], Any] = lambda: followed
        self._readers = PerProcess(self._new_reader)
        # The step that was dealt last, or what a state says of it.
        self._served: Step | None = None
        self._dealt: dict[str, Any] | None = None

    def _new_reader(self) -> _StepReader:
        return _StepReader(self)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # The sampler is read when workers start: then it has the epoch that they begin with.
        followed = self._followed()
        return state if followed is None else {**state, "followed": _Followed.of(followed)}

    def __getitem__(self, rows: Any) -> Any:
        if hasattr(rows, "__index__") and not getattr(rows, "shape", ()):
            return _samples(self.take([rows]))[0]
        return super().__getitem__(rows)

    def __getitems__(self, rows: Any) -> Any:
        """The samples of a list of row ids, or of a :class:`Step`: a :class:`Rows`."""
        if isinstance(rows, LoaderStep):
            return rows.batch()
        if isinstance(rows, _counted.Refusal):
            rows.__index__()
        if isinstance(rows, GlobalStep):
            rows = rows.share()
        if isinstance(rows, DealtStep):
            self._deal(rows.step)
            rows = rows.step if rows.rows is None else rows.rows
        followed = self._followed()
        if isinstance(rows, Step):
            batch = self._readers.get().serve(rows)
        elif followed is not None:
            batch = self._readers.get().follow(_Followed.of(followed), list(rows))
        else:
            batch = self.take(rows)
        return Rows(batch, self._convert)

    def state_dict(self) -> dict[str, Any]:
        """What torchdata's ``StatefulDataLoader`` keeps beside how many steps it took: of what these are.

        Accelerate wraps a :class:`GlobalBatchSampler` in what has no state, so that torchdata goes on by counting.
        """
        return {"workers": _workers(), "dealt": self._dealt if self._served is None else self._state_of(self._served)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Refuses a state of another number of workers; a step that is dealt otherwise than before is refused later."""
        _check_workers(state_dict)
        self._dealt, self._served = state_dict.get("dealt"), None

    def _state_of(self, step: Step) -> dict[str, Any]:
        spec, text = step.spec, ctypes.create_string_buffer(native.STATE_CAPACITY)
        whole = self._readers.get().opened(spec).whole
        call(library.sampler_state, whole, step.epoch, step.step + 1, text, len(text))
        return {"shards": spec.world_size // spec.replicas, "batch_size": spec.batch_size, "state": text.value.decode()}

    def _deal(self, step: Step) -> None:
        """Takes note of a step that a :class:`GlobalBatchSampler` has dealt."""
        before, self._dealt = self._dealt, None
        self._served = step
        if before is None:
            return
        spec = step.spec
        if (before["shards"], before["batch_size"]) != (spec.world_size // spec.replicas, spec.batch_size):
            raise StateError(
                f"the state is of {before['shards']} ranks with {before['batch_size']} rows per step each, and now "
                f"{spec.world_size // spec.replicas} have {spec.batch_size}: as many steps are other rows. Go on with "
                "both as before, or use rowdex.accelerate.Loader, whose state goes on with any"
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

    def follow(self, sampler: _StockSampler[Any]) -> Dataset:
        """Plans for what PyTorch's own ``DistributedSampler`` will ask for, and returns this dataset.

        Order ``torch`` has the very numbers of that sampler, so every worker knows which row ids it will get and reads
        ahead for them, within ``memory``. A wrong guess is no error: what comes is served all the same, but slower. It
        costs 4 bytes a row in every worker::

            sampler = torch.utils.data.DistributedSampler(dataset, seed=1)
            loader = DataLoader(dataset.follow(sampler), batch_size=256, sampler=sampler, num_workers=4)
        """
        if self._torch["share"]:
            raise TypeError("follow() of a dataset with share: only what a rowdex sampler hands out is shared")
        if isinstance(sampler, _DistributedSampler):
            raise TypeError(
                "follow() is for PyTorch's own sampler: with rowdex's, use batch_sampler=rowdex.torch.BatchSampler(...)"
            )
        for name in ("num_replicas", "rank", "shuffle", "seed", "drop_last", "epoch"):
            if not hasattr(sampler, name):
                raise TypeError(
                    f"{type(sampler).__name__} has no {name}: follow() is for torch.utils.data.DistributedSampler"
                )
        self._followed = weakref.ref(sampler)
        self._readers.forget()
        return self


class _Followed(NamedTuple):
    """What there is to know of PyTorch's sampler."""

    num_replicas: int
    rank: int
    shuffle: bool
    seed: int
    drop_last: bool
    epoch: int

    @staticmethod
    def of(sampler: Any) -> _Followed:
        return _Followed(*(getattr(sampler, name) for name in _Followed._fields))


class _Stream:
    """A loader of one worker's steps of a sampler: ``first``, ``first + workers`` and so on."""

    def __init__(
        self,
        dataset: Dataset,
        spec: SamplerSpec,
        opened: OpenSampler,
        resumed: bool,
        first: int,
        workers: int,
        epochs: int,
    ) -> None:
        self.key = (spec, resumed, first, workers)
        sampler = opened.sampler(resumed)
        own = Handle(library.sampler_free, library.sampler_worker, sampler, first - steps_left(sampler).start, workers)
        options = dataset._torch
        threads = options["worker_threads"]
        shared = options["share"]
        # What nobody has chosen is the reader's own choice where one is shared.
        if threads is None and not shared:
            threads = 2 if torch.utils.data.get_worker_info() is None else 1
        memory = options["memory"]
        memory = memory if shared else max((memory or 1 << 30) // workers, 1)
        loader = loader_options(memory=memory, threads=count(threads, "threads"), epochs=epochs, **shared)
        self._loader = Handle(library.loader_free, library.loader_new, dataset._pointer, own, ctypes.byref(loader))
        self._schema, self._first, self._workers = dataset.schema, first, workers
        self._steps = int(sampler_info(own).steps)
        if shared:
            close_at_exit(self)

    def close(self) -> None:
        """Ends what it does in this process."""
        if not self._loader.inherited:
            library.loader_close(self._loader)

    @property
    def next(self) -> tuple[int, int]:
        """The epoch and the step that come next, counted over all workers."""
        info = native.LoaderInfo()
        call(library.loader_get_info, self._loader, ctypes.byref(info))
        return int(info.epoch), self._first + int(info.step) * self._workers

    def go_to(self, epoch: int, step: int) -> None:
        """Makes this step, one of its own, the next."""
        call(library.loader_seek, self._loader, epoch, (step - self._first) // self._workers)

    def has(self, step: int) -> bool:
        """Whether this rank has rows in one of its steps."""
        return (step - self._first) // self._workers < self._steps

    def take(self) -> Batch:
        """The batch that comes next."""
        handle = Handle(library.batch_free, library.loader_next, self._loader)
        if not handle:
            raise RuntimeError("the loader of a worker ended before the step that was asked for")
        return Batch(handle, self._schema)


class _StepReader:
    """What one process knows of what comes."""

    def __init__(self, dataset: Dataset) -> None:
        # Which has this reader.
        self._dataset: Dataset = weakref.proxy(dataset)
        self._opened: dict[SamplerSpec, OpenSampler] = {}
        self._stream: _Stream | None = None
        self._misses = 0
        # A DataLoader without workers reads in the thread that iterates, and there may be several of these.
        self._lock = threading.Lock()

    def opened(self, spec: SamplerSpec) -> OpenSampler:
        """The samplers of a spec."""
        with self._lock:
            return self._open(spec)

    def serve(self, step: Step) -> Batch:
        """The batch of a step."""
        with self._lock:
            return self._serve(step)

    def _serve(self, step: Step) -> Batch:
        workers = _workers()
        opened = self._open(step.spec)
        begin = steps_left(opened.sampler(step.resumed)).start
        first = begin + (step.step - begin) % workers
        # The C API counts a worker's epochs from a whole one; within a resumed one there is nothing after it.
        key = (step.spec, step.resumed, first, workers)
        stream = self._stream
        if stream is None or stream.key != key:
            epochs = step.epoch + 1 if step.resumed else 0
            stream = self._stream = _Stream(self._dataset, step.spec, opened, step.resumed, first, workers, epochs)
        if not stream.has(step.step):
            rows, _ = batch_of(opened.sampler(step.resumed), step.spec, step.epoch, step.step)
            return self._dataset.take(rows)
        if stream.next != (step.epoch, step.step):
            stream.go_to(step.epoch, step.step)
        try:
            return stream.take()
        except BaseException:
            # A loader is at its end after an error: the next step begins with another one.
            self._stream = None
            raise

    def follow(self, sampler: _Followed, rows: list[int]) -> Batch:
        """The batch of rows that PyTorch's sampler asked for."""
        with self._lock:
            found = self._guess(sampler, rows) if self._misses < 3 and rows else None
            if found is not None:
                self._misses = 0
                return self._serve(found)
        return self._dataset.take(rows)

    def _guess(self, sampler: _Followed, rows: list[int]) -> Step | None:
        info = torch.utils.data.get_worker_info()
        first = 0 if info is None else info.id
        stream = self._stream
        if stream is not None and self._asks(stream.key[0], *stream.next, rows):
            return Step(stream.key[0], *stream.next, False)
        spec = SamplerSpec(
            rows=len(self._dataset),
            order="torch" if sampler.shuffle else "sequential",
            seed=sampler.seed,
            rank=sampler.rank,
            world_size=sampler.num_replicas,
            batch_size=len(rows),
            tail="drop" if sampler.drop_last else "wrap",
        )
        epochs = [sampler.epoch] if sampler.shuffle else [0]
        if stream is not None and sampler.shuffle:
            epochs += [stream.next[0], stream.next[0] + 1]
            spec = spec._replace(batch_size=max(len(rows), stream.key[0].batch_size))
        for epoch in dict.fromkeys(epochs):
            if self._asks(spec, epoch, first, rows):
                return Step(spec, epoch, first, False)
        self._misses += 1
        return None

    def _asks(self, spec: SamplerSpec, epoch: int, step: int, rows: list[int]) -> bool:
        pointer = self._open(spec).sampler(False)
        if step >= sampler_info(pointer).steps:
            return False
        return batch_of(pointer, spec, epoch, step)[0] == rows

    def _open(self, spec: SamplerSpec) -> OpenSampler:
        opened = self._opened.get(spec)
        if opened is None:
            if len(self._opened) > 8:
                self._opened.clear()
            opened = self._opened[spec] = spec.open(self._dataset)
        return opened


def _refused(message: str) -> Iterator[Any]:
    """Batches of which the first is an error: what a worker that persists raises before, it does not outlive."""
    raise RuntimeError(message)
    yield


def _workers() -> int:
    info = torch.utils.data.get_worker_info()
    return 1 if info is None else int(info.num_workers)


def _check_workers(state_dict: dict[str, Any]) -> None:
    """Refuses the state of a worker where there is another number of them, of which torchdata says nothing."""
    before, workers = state_dict.get("workers", _workers()), _workers()
    if before != workers:
        raise StateError(
            f"a state of {before} workers, where now there are {workers}: torchdata keeps a state for each. Use as "
            f"many (num_workers={before}), or save state_after(epoch, step) of the sampler or the IterableDataset, "
            "which goes on with any number of ranks and workers"
        )


class IterableDataset(torch.utils.data.IterableDataset[Any], Announced):
    """Batches of one rank, shared out among the workers of a ``DataLoader(dataset, batch_size=None)``: dicts of
    tensors.

    What comes, and in which order, does not depend on the number of workers. Every iteration is an epoch, and the next
    one the next epoch, with or without :meth:`set_epoch`, and whether or not workers persist. An iteration counts when
    it begins, also if it is given up.

    It has a state (``state_dict``, ``load_state_dict``) for torchdata's ``StatefulDataLoader``, which keeps one for
    each worker, so the number of workers must stay. To go on with another number of ranks or workers, save
    :meth:`state_after` and give it to :meth:`load_run_state`.

    Args:
        dataset: A :class:`Dataset`.
        batch_size: Rows per step and rank.
        sampling: ``seed``, ``shuffle``, ``num_replicas``, ``rank``, and all else that
            :class:`rowdex.DistributedSampler` takes.
    """

    _makes_batches = True

    def __init__(self, dataset: Dataset, batch_size: int, **sampling: Any) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(f"an IterableDataset of {dataset!r}: give it a rowdex.torch.Dataset")
        self.__setstate__({"dataset": dataset, "sampler": BatchSampler(dataset, batch_size, **sampling)})

    def __getstate__(self) -> dict[str, Any]:
        tell_if_starting(self)
        return {
            "dataset": self.dataset, "sampler": self._sampler, "begun": self._begun, "told": self._told,
            "chosen": self._chosen, "at": self._at, "go_on": self._go_on, "counted_by": self._counted_by,
            "refused": self._refused,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.dataset: Dataset = state["dataset"]
        self._sampler: BatchSampler = state["sampler"]
        # Whether workers were told to serve the epoch that the sampler is at. The sampler stays there until something
        # else happens, because workers are made of this object as it is.
        self._begun: bool = state.get("begun", False)
        self._told: Told | None = state.get("told")
        # Whether somebody said which epoch to serve.
        self._chosen: bool = state.get("chosen", False)
        # The epoch that is served, which of this worker's steps comes next, and whether that was the last.
        self._at: tuple[int, int, bool] | None = state.get("at")
        # The state of the run where that epoch began.
        self._begins: str | None = None
        # Why there is no epoch to serve, until another one is asked for.
        self._refused: Exception | None = state.get("refused")
        self._go_on: tuple[int, int] | None = state.get("go_on")
        # What counts the steps of its workers, and tells nobody where it goes on.
        self._counted_by: str = state.get("counted_by", "")
        # The workers of each iterator of a DataLoader, and the sampler's spec that they have.
        self._iterators: weakref.WeakKeyDictionary[Any, tuple[Workers, SamplerSpec]] = weakref.WeakKeyDictionary()

    @property
    def _shards(self) -> int:
        return self._sampler._shards

    def __repr__(self) -> str:
        return f"IterableDataset({self.dataset!r}, {self._sampler!r})"

    def __len__(self) -> int:
        """How many batches every rank has in the current epoch."""
        if torch.utils.data.get_worker_info() is None:
            # A framework that counts steps asks for it before workers are made.
            self._counted_by = _counted.in_workers(self)
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        in_worker = torch.utils.data.get_worker_info() is not None
        if not in_worker:
            self._settle()
        if not in_worker and self._go_on is not None and self._go_on[1] == 0:
            # StatefulDataLoader makes an iterator that it never uses when it goes on from the end of an epoch.
            return self._begin_late()
        return self._begin()

    def _begin_late(self) -> Iterator[Any]:
        yield from self._begin()

    def _begin(self) -> Iterator[Any]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        place, sampler = 0, self._sampler.sampler
        if info is not None and self._counted_by:
            raise RuntimeError(
                f"{self._counted_by} counts the steps of a run and goes on from a checkpoint at that count, which the "
                "workers of an IterableDataset cannot see: with Lightning use "
                f"{_counted.MODULE}, or torchdata's StatefulDataLoader; with the Trainer {_counted.MIXIN}"
            )
        told = None if info is None else self._told
        if told is not None and told.refusal is not None:
            return _refused(told.refusal)
        if self._go_on is not None:
            (epoch, place), self._go_on = self._go_on, None
            self._go_to(epoch)
            if told is not None:
                told.go_on(epoch)
        elif info is not None and told is None:
            self._warn()
        elif told is not None and not self._begun:
            # These workers persist. The first time, they are at the epoch already.
            self._go_to(told.epoch)
        self._begun = False
        epoch = sampler._begin()
        resumed = epoch == sampler._resumed_epoch
        steps = sampler._steps(epoch)[worker::workers]
        place = min(place, len(steps))
        refusals = [] if info is not None else list(sampler._refusals(steps.start + place))
        self._begins = sampler._state(epoch, sampler._steps(epoch).start)["state"]
        self._at = (epoch, place, 0 < place == len(steps))
        return self._serve(sampler.spec, epoch, resumed, steps, place, refusals)

    def _serve(
        self, spec: SamplerSpec, epoch: int, resumed: bool, steps: range, place: int, refusals: list[Any]
    ) -> Iterator[Any]:
        if self._refused is not None:
            raise self._refused
        for refusal in refusals:
            refusal.__index__()
        for next_place, step in enumerate(steps[place:], place + 1):
            batch = self.dataset.__getitems__(Step(spec, epoch, step, resumed))
            self._at = (epoch, next_place, False)
            yield batch.columns()
        self._at = (epoch, len(steps), True)

    def _start_workers(self, iterator: Any, loader: Any) -> None:
        if iterator in self._iterators:
            return
        try:
            self._iterators[iterator] = (Workers(iterator, self), self._sampler.sampler.spec)
        except Exception as error:
            # Without memory to share, workers have it with the rest of this object.
            self._refused = error
            return
        self._begin_workers(iterator, loader)

    def _begin_workers(self, iterator: Any, loader: Any) -> None:
        workers, spec = self._iterators[iterator]
        try:
            workers.watch()
            self._settle()
            self._check_workers(loader, spec)
            if self._go_on is not None:
                self._go_to(self._go_on[0])
        except Exception as error:
            workers.told.refuse(error)
        else:
            workers.told.begin(self._sampler.sampler.epoch)
            self._begun, self._at = True, None
        self._told = workers.told

    def _check_workers(self, loader: Any, spec: SamplerSpec) -> None:
        _sharded.check(loader)
        sampler = self._sampler.sampler
        sampler._check_world()
        sampler._follow()
        if spec is not sampler.spec:
            raise RuntimeError(
                "a state was loaded after the workers of this DataLoader were started: make another DataLoader"
            )

    def _settle(self) -> None:
        """Leaves the epoch that workers were told to serve."""
        if not self._begun:
            return
        self._begun, self._go_on = False, None
        self._sampler.sampler._advance()
        if self._told is not None and self._told.following is not None:
            self._go_to(self._told.following)

    def _go_to(self, epoch: int) -> None:
        # An epoch that was resumed stays resumed.
        if self._sampler.sampler.epoch != epoch:
            self._sampler.set_epoch(epoch)

    def _warn(self) -> None:
        if not self._chosen:
            warnings.warn(
                "this worker does not know which epoch it is to serve, and serves the first: call set_epoch() of the "
                "rowdex.torch.IterableDataset before each epoch",
                stacklevel=2,
            )

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``."""
        self._settle()
        self._chosen, self._go_on, self._refused = True, None, None
        self._sampler.set_epoch(epoch)

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state of the run once every rank has trained on this step."""
        return self._sampler.state_after(epoch, step)

    def load_run_state(self, state_dict: dict[str, str]) -> None:
        """Goes on from :meth:`state_after`, with any number of ranks and workers."""
        self._settle()
        self._sampler.load_state_dict(state_dict)
        self._chosen, self._go_on, self._at, self._refused = True, None, None, None

    def state_dict(self) -> dict[str, Any]:
        """Where this worker stands."""
        sampler = self._sampler.sampler
        found: dict[str, Any] = {"workers": _workers(), "shards": sampler._shards, "batch_size": sampler.batch_size}
        if self._go_on is not None:
            return found | {"epoch": self._go_on[0], "batches": self._go_on[1], "state": sampler.spec.resumed}
        if self._at is None:
            begins = sampler._state(sampler.epoch, sampler._steps(sampler.epoch).start)
            return found | begins | {"epoch": sampler.epoch, "batches": 0}
        epoch, place, ended = self._at
        if ended:
            return found | sampler._state(epoch + 1, 0) | {"epoch": epoch + 1, "batches": 0, "ended": True}
        return found | {"epoch": epoch, "batches": place, "state": self._begins}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from where a worker stood.

        Raises:
            StateError: if its batches were others: of another number of workers, ranks or rows, or in another order.
        """
        _check_workers(state_dict)
        self._refused = None
        sampler = self._sampler.sampler
        own = (sampler._shards, sampler.batch_size)
        before = tuple(state_dict.get(name, now) for name, now in zip(("shards", "batch_size"), own))
        if before != own:
            # Said where the first batch is asked for: what is raised before may be lost.
            self._refused = StateError(
                f"the state is of {before[0]} ranks with {before[1]} rows per step each, and now {own[0]} have "
                f"{own[1]}: as many batches are other rows. Save state_after(epoch, step), and give it to "
                "load_run_state(), which goes on with any"
            )
            return
        epoch, place = int(state_dict["epoch"]), int(state_dict["batches"])
        if torch.utils.data.get_worker_info() is None:
            self._settle()
        elif state_dict.get("ended"):
            # The iteration that goes on is the one of which this worker had done its part.
            epoch, place = epoch - 1, sys.maxsize
        text = state_dict.get("state")
        if text is not None:
            # Refuses another order, seed or dataset.
            opened = sampler.spec._replace(resumed=text).open(self.dataset)
            if steps_left(opened.sampler(True)).start > 0:
                # Its batches are counted from where the run had been resumed itself.
                self._sampler.load_state_dict({"state": text})
        self._chosen, self._go_on = True, (epoch, place)


def __getattr__(name: str) -> Any:
    # torchdata is not needed for anything else here.
    if name == "Node":
        from ._node import Node

        return Node
    raise AttributeError(f"module 'rowdex.torch' has no attribute {name!r}")


__all__ = [
    "BatchSampler", "Dataset", "DistributedSampler", "GlobalBatchSampler", "GlobalStep", "IterableDataset", "Row",
    "Rows", "Step",
]  # fmt: skip
