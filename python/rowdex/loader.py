"""Batches in the order of a sampler, at about the speed of a scan."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

from . import native
from .batch import Batch
from .dataset import Dataset
from .frameworks import sharded as _sharded
from .loading import arguments as _arguments, sequences as _sequences, share as _share
from .loading.convert import Added, Convert, Output, Plain
from .loading.engine import LibraryLoader
from .loading.functions import RowErrors, Transforms, kept
from .loading.reports import LostGroup, LostRow, Estimate, estimated
from .loading.share import Sharing
from .loading.stats import COUNTS, TIMES, LoaderStats, Meter
from .loading.steps import LoaderSteps
from .loading.substitutes import Substitutes
from .loading.threads import Mapping
from .native.arrays import Nulls
from .native.library import PerProcess, count, exception_of, no_nul, size
from .index import Path
from .opening import open as opened
from .sampler import DistributedSampler, sampler_of
from .schema import Schema
from .shown import table
from .spec import SamplerSpec, epoch_number, refuse_earlier, state_text
from .stages import Stages

class Loader:
    """Serves the batches of a sampler, epoch after epoch, from its own threads and within a budget of memory.

    Iterating gives the batches of one epoch, and the next time those of the next. ``len(loader)`` is how many these
    are, also after a resume::

        loader = rowdex.Loader(dataset, batch_size=256, seed=42, memory=4 << 30)
        for epoch in range(loader.epoch, 10):     # after load_state_dict, the epochs that are left
            for batch in loader:          # a dict of tensors
                step(batch["features"], batch["label"])

    Args:
        dataset: The rows, or what :func:`rowdex.open` takes for them: ``"data/"``.
        sampler: Who gets which rows when: a :class:`DistributedSampler` with a batch size. It is copied: the
            epoch that it would iterate over next comes first. Default: one with the other arguments.
        memory: Bytes of decoded rows to hold at most: a number, or a text such as ``"4GiB"``. Default: 1 GiB. Less
            means that row groups are decoded more often, see :meth:`estimate`.
        threads: Threads that read, decode and assemble, and the same number again that run ``decode``, ``collate``,
            ``pad``, ``map`` and ``pin_memory``, a batch each; at most two batches a thread wait behind these, in
            addition to what ``memory`` allows. Default: 2. 0: all work is done where batches are asked for.
        output: ``"torch"`` and ``"numpy"`` give dicts as :meth:`Batch.to_torch` and :meth:`Batch.to_numpy` do,
            ``"python"`` as :meth:`Batch.to_pydict`, ``"arrow"`` gives each :class:`Batch`.
        nulls, strings: As :meth:`Batch.to_numpy` has them. ``strings="views"`` serves top-level strings and binary as
            Arrow's views, without copying their values into batches: for wide ones, and ``output="arrow"``. A batch
            then keeps alive what its values are in.
        row_ids: Adds the row ids under this name. Shape ``(rows,)``, int64.
        repeated: Adds under this name whether a row is repeated: another rank or an earlier step serves it, too. Shape
            ``(rows,)``, bool.
        on_error: What to do about a row group that cannot be read: ``"raise"`` raises at the step that needs it;
            ``"substitute"`` replaces each of its rows by another one that can be read, the same on all ranks that can
            read the same files. The numbers of steps and rows stay the same. See :attr:`lost_groups`. It replaces rows
            that ``decode`` fails for, too; that must depend on the value and ``rng`` alone: see :attr:`lost_rows`.
        decode: Functions of single values by column, ``{"image": rowdex.transforms.Image()}``. They get Python values,
            ``None`` for nulls, and the generator of the row if they have a parameter ``rng``, see docs/orders.md.
            Results that are numbers, or arrays of one shape, become an array or tensor, lists of numbers a
            :class:`rowdex.Ragged`, and others a list.
        collate: Functions of whole columns, after that: of a list of what ``decode`` gave, or of the column.
        pad: Makes one array of lists of numbers: ``"longest"``, a length, a :class:`rowdex.transforms.Pad`, or a dict
            of these by column. Without a dict it is for all columns of lists that are not of a fixed size.
        map: A function of the batch, or several to be called one after another. What it returns is handed out. With a
            parameter ``rngs`` it gets a generator for each row.
        pin_memory: Copies tensors to memory that a GPU reads without waiting, if there is a GPU.
        share: ``"machine"``, or a :class:`Share` that says more, shares one reader with the loaders of the other ranks
            on this machine: each row group is decoded once for all of them, and ``memory`` and ``threads`` are those of
            the machine. Each rank gets the same batches as without. All ranks give the same arguments. Linux only.
        sampling: ``batch_size``, ``seed``, ``shuffle``, ``num_replicas``, ``rank`` and all else that
            :class:`DistributedSampler` takes. ``drop_last=True`` is what it is for a ``DataLoader``: it leaves out a
            short last batch. ``tail`` says what becomes of rows that do not divide evenly among the ranks. With
            ``pack=rowdex.Pack(...)`` and ``output="torch"`` or ``"numpy"``, batches have what :meth:`Batch.sequences`
            gives, and the other columns with a value a piece.
    """

    # What its length was when it was asked for.
    _told_steps: int | None = None

    def __init__(
        self,
        dataset: Dataset | Path,
        sampler: DistributedSampler | None = None,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        output: Output = "torch",
        nulls: Nulls = "error",
        strings: Literal["list", "offsets", "views"] = "list",
        row_ids: str | None = None,
        repeated: str | None = None,
        on_error: Literal["raise", "substitute"] = "raise",
        decode: dict[str, Callable[[Any], Any]] | None = None,
        collate: dict[str, Callable[[Any], Any]] | None = None,
        pad: Any = None,
        map: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
        pin_memory: bool = False,
        share: Sharing = None,
        **sampling: Any,
    ) -> None:
        if isinstance(dataset, (str, os.PathLike)):
            dataset = opened(dataset)
        if not isinstance(dataset, Dataset):
            raise _arguments.no_dataset(dataset)
        if sampler is None:
            sampler = sampler_of(dataset, type(self).__name__, _OPTIONS, **sampling)
        elif not isinstance(sampler, DistributedSampler):
            raise TypeError(
                f"sampler={sampler!r}: give a rowdex.DistributedSampler, or batch_size=, seed= and the like; for "
                "another sampler there are order=rowdex.order.Explicit(ids) and rowdex.torch.Dataset in a DataLoader"
            )
        elif sampling:
            raise TypeError(f"{', '.join(sampling)}: give these to the sampler, or no sampler")
        sampler.spec.check_rows(dataset)
        if sampler.batch_size is None:
            raise ValueError("no batch size: give batch_size, to the sampler if there is one")
        _arguments.check(on_error, strings, dataset)
        views = strings == "views"
        self._changes_columns = views or sampler.spec.pack is not None
        self.dataset = dataset
        self._made_in = os.getpid()
        self._told_epoch = False
        # A sampler of its own, at the place where the given one is.
        self._sampler = object.__new__(DistributedSampler)
        self._sampler.__setstate__(sampler.__getstate__())
        self._options = {"memory": size(memory, "memory"), "threads": count(threads, "threads")}
        self._more_options: dict[str, Any] = {
            "on_error": no_nul(on_error.encode(), "on_error"),
            "views": views,
            **_share.options(share),
        }
        sequences = _sequences.arguments(sampler.spec.pack, output, dataset)
        arrays = _sequences.names(sequences)
        added = Added(row_ids, repeated).checked([*dataset.column_names, *arrays], output)
        transforms = Transforms(
            dataset, output, sampler.spec, decode=decode, collate=collate, pad=pad, map=map, pin=pin_memory
        )
        self._transforms = transforms
        self._map_threads = 2 if threads is None else threads
        texts = "list" if views else strings
        self._convert = Convert(output, nulls, texts, frozenset(transforms.decode), added, sequences)
        # Views keep what they show, so nothing is gained by converting more of them at once.
        self._one_by_one = views or output in ("arrow", "python")
        self._row_groups: int | None = None
        self._start()

    def _start(self) -> None:
        """All that belongs to a run, and not to the arguments."""
        resumed = self._sampler._resumed_epoch
        self._loaded_epoch = resumed if resumed == self._sampler.epoch else None
        # Where the iteration began of which no batch was asked for yet.
        self._begun: tuple[int, int] | None = None
        self._iterations = 0
        decodes = self._more_options["on_error"] == b"substitute" and bool(self._transforms.decode)
        self._substitutes = Substitutes(self.dataset, 0) if decodes else None
        # What ended an iteration first, if anything did: later ones have it, too.
        self._failed: list[Exception] = []
        entering = self._transforms.entering
        self._mapping = Mapping(self._map_threads, entering, self._failed) if self._transforms else None
        self._plain = Plain(None if self.spec.pack is not None else self.batch_size, self._one_by_one, self._failed)
        self._meter = Meter()
        self._loader = PerProcess(self._open)

    def __getstate__(self) -> dict[str, Any]:
        """The arguments, and where the run stands. What was read ahead, and the counters, stay with this loader."""
        state = {name: value for name, value in self.__dict__.items() if name not in _OF_A_RUN}
        if self._loader.made() is not None:
            state["_sampler"] = self._sampler_copy()
            state["_sampler"].load_state_dict(self.state_dict())
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def spec(self) -> SamplerSpec:
        """All that decides which rows come when."""
        return self._sampler.spec

    @property
    def batch_size(self) -> int:
        """Rows per step and rank."""
        return self._sampler.spec.batch_size

    @property
    def sampler(self) -> DistributedSampler:
        """A copy of its sampler, for frameworks that ask for one. Its ``set_epoch`` is also that of the loader; no
        other change of it changes the loader.
        """
        copy = self._sampler_copy()
        copy._listener = self._follow
        return copy

    def _sampler_copy(self) -> DistributedSampler:
        copy: DistributedSampler = DistributedSampler.__new__(DistributedSampler)
        copy.__setstate__(self._sampler.__getstate__())
        return copy

    @property
    def batch_sampler(self) -> LoaderSteps:
        """The steps of the epoch that comes, which the dataset turns into the batches of this loader. For frameworks
        that make a ``DataLoader`` without workers of ``dataset``, ``batch_sampler`` and ``collate_fn``, as
        ``accelerate.skip_first_batches`` does. Steps that are skipped are not read.
        """
        return LoaderSteps(self)

    # What such a DataLoader is to have.
    num_workers = 0
    prefetch_factor = None

    @staticmethod
    def collate_fn(batch: Any) -> Any:
        """Batches as they are."""
        return batch

    def _loader_options(self) -> dict[str, Any]:
        return {**self._options, **self._more_options, **_sequences.options(self.spec.pack)}

    @property
    def schema(self) -> Schema:
        """The columns of every batch: the dataset's, or with views for strings, or with lists that can be cut."""
        return self._loader.get().schema if self._changes_columns else self.dataset.schema

    def _open(self) -> LibraryLoader:
        inherited = self._loader.inherited()
        if inherited is not None:
            return inherited.reopened()
        sampler = self._sampler
        opened = sampler._at(sampler.epoch)
        loader = self.dataset._loading(opened, self._loader_options(), self._changes_columns)
        loader.begin_epoch(sampler.epoch)
        return loader

    def _info(self) -> native.LoaderInfo:
        return self._loader.get().info()

    def __len__(self) -> int:
        """How many batches every epoch has, wherever the run was resumed. :attr:`steps_left` is how many are left."""
        self._told_steps = int(self._info().steps)
        return self._told_steps

    @property
    def steps_left(self) -> int:
        """How many batches are left of the epoch that the next batch is from."""
        return int(self._info().steps_left)

    def __getitem__(self, row: Any) -> Any:
        raise TypeError(
            f"a {type(self).__name__} is no dataset: it makes batches itself, so iterate over it. A DataLoader takes a "
            "rowdex.torch.Dataset, with batch_sampler=rowdex.torch.BatchSampler(…); the Trainer of Hugging Face takes "
            "the rowdex.Dataset, with rowdex.transformers.TrainerMixin"
        )

    def __iter__(self) -> Iterator[Any]:
        begun = self._begin()
        return self._iterate(begun, self._iterations)

    def _iterate(self, begun: tuple[LibraryLoader, int, int], iteration: int) -> Iterator[Any]:
        if self._iterations == iteration:
            if self._begun is None:
                # Frameworks begin an epoch, and say then which one it is.
                begun = self._begin()
            self._begun = None
        yield from self._epoch(*begun)

    def _begin(self) -> tuple[LibraryLoader, int, int]:
        """Begins an epoch. Returns the loader of the library, the epoch and its first step."""
        self._sampler._check_world()
        _sharded.check_worker(
            type(self).__name__, self._made_in, any(self._sampler._assumed), self._told_epoch or self._iterations > 0
        )
        loader = self._loader.get()
        self._check_failed()
        begun = loader.begin_epoch(None)
        self._loaded_epoch = None
        self._begun = (int(begun.epoch), int(begun.step))
        self._iterations += 1
        return loader, *self._begun

    def _from(self, epoch: int, step: int) -> Iterator[Any]:
        """The batches of an epoch from a step on."""
        loader = self._loader.get()
        self._check_failed()
        loader.seek(epoch, step)
        return self._epoch(loader, epoch, step)

    def _epoch(self, loader: LibraryLoader, epoch: int, step: int) -> Iterator[Any]:
        if self._mapping is not None:
            served = self._mapping.epoch(loader, epoch, step, self._made, self._finish)
        else:
            served = self._plain.epoch(loader, epoch, step, self._convert, self._finish)
        return self._meter.counted(served)

    def _finish(self, batch: Any) -> Any:
        """What is done last with a batch, before its step is over: for subclasses."""
        return batch

    def _check_failed(self) -> None:
        """Raises again what ended an iteration before."""
        if self._failed:
            raise kept(self._failed[0])

    def _made(self, batch: Batch, pads: int | None = None) -> Any:
        """A batch as it is handed out, after all functions.

        Raises:
            TransformError: if one of them fails.
        """
        found, transforms, substitutes = self._convert(batch, pads), self._transforms, self._substitutes
        errors: dict[int, tuple[str, Exception]] = {}
        try:
            numbers = transforms.numbers(batch)
            decoded, errors = transforms.decoded(batch, numbers)
            if errors and substitutes is None:
                raise RowErrors(errors)
            if errors and substitutes is not None:
                stand_in = self._convert.stand_in
                found = substitutes.replaced(batch, found, decoded, errors, transforms, stand_in, numbers)
            return transforms.finish(found, decoded, numbers)
        except Exception as error:
            raise transforms.error_of(batch, error)
        finally:
            del errors  # They have this frame.

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next: that of a state that was loaded, and after the last batch of an epoch
        the following one. So ``range(loader.epoch, epochs)`` is what is left of a run.
        """
        return int(self._info().epoch)

    def set_epoch(self, epoch: int) -> None:
        """Continues with the first batch of ``epoch``. What was read ahead is dropped, unless it comes next anyway. An
        epoch that was resumed continues where it was.
        """
        epoch = epoch_number(epoch)
        self._told_epoch = True
        if self._failed:
            # Frameworks call it before each epoch, and would go on past the error unseen.
            return
        if self._begun is not None and self._begun[0] == epoch:
            return
        if self._loaded_epoch is not None:
            refuse_earlier(epoch, self._loaded_epoch)
        self._begun = None
        self._loader.get().begin_epoch(epoch)

    def _follow(self, epoch: int) -> None:
        """Continues with an epoch that a framework has set, which ends it after the number of steps that it got last.
        """
        self.set_epoch(epoch)
        steps = int(self._info().steps)
        if self._told_steps is not None and self._told_steps < steps:
            raise RuntimeError(
                f"epoch {epoch} has {steps} steps, and would end after {self._told_steps}, as many as the first one "
                "had: use rowdex.lightning.DataModule(dataset, batch_size=…, pack=…), or "
                "Trainer(reload_dataloaders_every_n_epochs=1)"
            )

    def state_dict(self) -> dict[str, str]:
        """Where the run stands: after the last batch that was handed out. It is the same on all ranks after the same
        step.
        """
        return {"state": self._loader.get().state()}

    def load_state_dict(self, state_dict: dict[str, str], *, stages: Stages | None = None) -> None:
        """Resumes from a state, which may come from another number of ranks and another batch size. An error that ended
        the loader is forgotten.

        Args:
            state_dict: The state.
            stages: Of a mixture with stages, others from here on. Those that begin before the state are as they were.

        Raises:
            StateError: if it is from another order, number of rows or seed; the loader is then unchanged.
        """
        if stages is not None:
            sampler = self._sampler_copy()
            sampler.load_state_dict(state_dict, stages=stages)
            self._sampler = sampler
            self._start()
        self._loader.get().resume(state_text(state_dict))
        # An iteration of which no batch was asked for yet begins there.
        self._begun = None
        self._failed.clear()
        if self._mapping is not None:
            self._mapping.close()
        self._loaded_epoch = self.epoch

    def estimate(self) -> Estimate:
        """What this loader will do, from the index alone, in a fraction of a second; packs are planned for it first."""
        return estimated(self.dataset, self._sampler, self._loader_options(), self.epoch)

    @property
    def stats(self) -> LoaderStats:
        """What was done since the loader was started, resumed or set to another epoch, and how fast, as a flat dict."""
        found = self._loader.get().told()
        stats = LoaderStats({name: found[name] for name in COUNTS})
        stats.update({name: found[f"{name}_ns"] / 1e9 for name in TIMES})
        if self._substitutes is not None:
            stats["substituted"] += self._substitutes.served
        if self._row_groups is None:
            self._row_groups = sum(part.index.num_row_groups for part in self.dataset._parts)
        stats["passes"] = stats["decodes"] / self._row_groups if self._row_groups else 0.0
        stats.update(self._meter.numbers())
        return stats

    @property
    def lost_groups(self) -> list[LostGroup]:
        """The row groups that were found unreadable since the loader was made or closed; none unless
        ``on_error="substitute"``.
        """
        loader = self._loader.made()
        if loader is None:
            return []
        return [LostGroup(one["row_group"], exception_of(one["error"])) for one in loader.told()["lost"]]

    @property
    def lost_rows(self) -> list[LostRow]:
        """The rows that ``decode`` failed for and that were replaced; none unless ``on_error="substitute"``."""
        errors = {} if self._substitutes is None else dict(self._substitutes.errors)
        return [LostRow(row, error) for row, error in sorted(errors.items())]

    def close(self) -> None:
        """Ends its threads and frees what they hold. An iteration under way ends with :class:`ClosedError`, also one of
        another thread that waits for a batch. Its state stays; the next iteration begins the next epoch.
        """
        loader = self._loader.made()
        if self._mapping is not None:
            self._mapping.close()
        if loader is not None:
            loader.close()
            self._loader.replace(loader, loader.reopened())

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loader({self.dataset!r}, {self._sampler.spec})"

    def _repr_html_(self) -> str:
        defaults = self.spec._field_defaults
        given = [(name, value) for name, value in self.spec._asdict().items() if value != defaults.get(name, self)]
        return table([], [*given, ("steps", self._sampler.steps)], f"Loader of {self.dataset!r}")


_OF_A_RUN = frozenset(
    {
        "_begun", "_failed", "_iterations", "_loaded_epoch", "_loader", "_mapping", "_meter", "_plain", "_substitutes",
    }  # fmt: skip
)
_OPTIONS = frozenset(inspect.signature(Loader.__init__).parameters) - {"self", "dataset", "sampling"}
