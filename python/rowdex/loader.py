"""Batches in the order of a sampler, at about the speed of a scan."""

from __future__ import annotations

import ctypes
import inspect
import os
import sys
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from . import native
from .batch import Batch
from .dataset import Dataset
from .errors import Error, TransformError
from .frameworks import counted as _counted
from .loading import share as _share
from .loading.functions import RowErrors, Transforms
from .loading.stats import COUNTS, TIMES, LoaderStats, Meter
from .loading.steps import LoaderSteps
from .loading.substitutes import Substitutes
from .loading.threads import Mapping
from .native import capsule as _capsule
from .native.arrays import Nulls, reader, split, to_torch
from .native.imports import loaded
from .native.library import (
    Handle,
    PerProcess,
    call,
    count,
    error_info,
    errors_of,
    exception_of,
    library,
    loader_options,
    no_nul,
    size,
    waiting,
)
from .sampler import DistributedSampler, SamplerSpec, epoch_number, refuse_earlier, sampler_of, state_text
from .schema import Schema

_CHUNK_ROWS = 8192
"""The most rows that are converted in one go, unless a batch is larger: that costs as much for many rows as for few."""

Output = Literal["torch", "numpy", "arrow", "python"]


class LostGroup(NamedTuple):
    """A row group that a loader could not read."""

    row_group: int
    """Its number, counted over the whole index."""
    error: Error
    """Why it could not be read; names file, row group and column where they are known."""


class LostRow(NamedTuple):
    """A row of which a loader could not decode a value."""

    row_id: int
    """Its row id."""
    error: TransformError
    """Why; names file, row group and column."""


class Prediction(NamedTuple):
    """What a loader will do."""

    first_passes: float
    """Decodes of each row group in the first epoch, on average."""
    passes: float
    """Decodes of each row group in every later epoch, on average."""
    decodes: float
    """Row groups decoded in every later epoch."""
    first_batch_decodes: int
    """Row groups decoded before the first batch is there."""
    peak_bytes: int
    """The most bytes held."""
    first_decodes: float
    """Row groups decoded in the first epoch."""
    first_bytes_read: int
    """Bytes read in the first epoch."""
    bytes_read: int
    """Bytes read in every later epoch."""
    first_requests: int
    """Requests to a store in the first epoch; 0 for local files."""
    requests: int
    """Requests to a store in every later epoch."""
    units: int
    """Units that row groups are read, decoded and held in: one for each, or for several small ones of a file."""
    bookkeeping_bytes: int
    """How many of ``peak_bytes`` are not rows: what is known of row groups, and of rows that are looked ahead at."""
    least_memory: int
    """The least ``memory`` that a loader takes."""


class Convert:
    """Batches to what a loop wants. The readers of columns are made once."""

    def __init__(self, output: str, nulls: Nulls, strings: str, without: frozenset[str] = frozenset()) -> None:
        """Columns ``without`` are left to somebody else."""
        if output not in ("torch", "numpy", "arrow", "python"):
            raise ValueError(f"output={output!r}: use 'torch', 'numpy', 'arrow' or 'python'")
        self.output, self.nulls, self.strings, self.without = output, nulls, strings, without
        self._readers: list[tuple[int, str, Any]] | None = None

    def __call__(self, batch: Batch) -> Any:
        if self.output == "arrow":
            return batch
        if self.output == "python":
            return batch.to_pydict()
        if self._readers is None:
            fields = [(i, field) for i, field in enumerate(batch.schema.fields) if field.name not in self.without]
            self._readers = [(i, field.name, reader(field, self.nulls, self.strings)) for i, field in fields]
        found = batch._read(self._readers)
        return to_torch(found) if self.output == "torch" else found

    def __reduce__(self) -> Any:
        return Convert, (self.output, self.nulls, self.strings, self.without)


class Loader:
    """Serves the batches of a sampler, epoch after epoch, from threads of its own and within a budget of memory.

    Iterating gives the batches of one epoch, and the next time those of the next. ``len(loader)`` is how many these
    are, also after a resume::

        loader = rowdex.Loader(dataset, batch_size=256, seed=42, memory=4 << 30)
        for epoch in range(10):
            for batch in loader:          # a dict of tensors
                step(batch["features"], batch["label"])

    Args:
        dataset: The rows.
        sampler: Who gets which rows when: a :class:`DistributedSampler` with a batch size. It is copied, at its state.
            Default: one with the other arguments.
        memory: Bytes of decoded rows to hold at most: a number, or a text such as ``"4GiB"``. Default: 1 GiB. Less
            means that row groups are decoded more often, see :meth:`predict`.
        threads: Threads that read, decode and assemble. Default: 2. 0: all work is done where batches are asked for.
        read_ahead: About how many finished batches may wait to be asked for. Default: a few.
        output: ``"torch"`` and ``"numpy"`` give dicts as :meth:`Batch.to_torch` and :meth:`Batch.to_numpy` do,
            ``"python"`` as :meth:`Batch.to_pydict`, ``"arrow"`` gives each :class:`Batch`.
        nulls, strings: As :meth:`Batch.to_numpy` has them.
        row_ids: Adds the row ids under this name. Shape ``(rows,)``, int64.
        pads: Adds under this name whether a row is a pad, which another rank or an earlier step serves, too. Shape
            ``(rows,)``, bool.
        substituted: Adds under this name whether a row stands in for one that could not be read. Shape ``(rows,)``,
            bool.
        on_fault: What to do about a row group that cannot be read: ``"fail"`` raises at the step that needs it;
            ``"substitute"`` replaces each of its rows by another one that can be read, the same on all ranks that can
            read the same files. Steps and rows stay as many. See :attr:`lost_groups`. So it does with rows that
            ``decode`` fails for, if that depends on the value alone: see :attr:`lost_rows`.
        fault_seed: With ``"substitute"``: another seed chooses other rows. The same on all ranks.
        views: Serves top-level strings and binary as Arrow's views, without copying their values into batches: for wide
            ones, and ``output="arrow"``. A batch then keeps alive what its values are in.
        read_concurrency: How many row groups of an object store may be on their way at once. Default: as many as keep
            nobody waiting, as measured. 0: none is read ahead.
        decode: Functions of single values by column, ``{"image": rowdex.transforms.Image()}``. They get Python values,
            ``None`` for nulls. Results that are numbers, or arrays of one shape, become an array or tensor, lists of
            numbers a :class:`rowdex.Ragged`, and others a list.
        collate: Functions of whole columns, after that: of a list of what ``decode`` gave, or of the column.
        pad: Makes one array of lists of numbers: ``"longest"``, a length, a :class:`rowdex.transforms.Pad`, or one of
            these by column. By itself for all columns of lists that are not of a fixed size.
        map: A function of the batch, or several to be called one after another. What it returns is handed out.
        pin_memory: Copies tensors to memory that a GPU reads without waiting, if there is a GPU.
        map_threads: Threads that do the last five, for a batch each. Batches come in the same order, and at most
            ``2 * map_threads`` of them wait, besides what ``memory`` allows. Default: 2. 0: the caller's.
        share: ``"machine"`` shares one reader with the loaders of the other ranks on this machine: each row group is
            decoded once for all of them, and ``memory`` and ``threads`` are those of the machine. Each rank gets the
            same batches as without. All ranks give the same arguments. Linux only.
        share_name: With ``share``: which of the loaders of a rank this is. Default: ranks count the loaders that they
            make with ``share``, so they must make the same ones in the same order.
        share_job: With ``share``: the name of the job. Default: what the launcher says.
        share_ranks: With ``share``: how many ranks are on this machine. Default: what the launcher says.
        share_drift: With ``share``: how many steps a rank may be ahead of another one, about, before it waits. Default:
            32, fewer of large batches.
        share_on_death: With ``share``: what becomes of the other ranks when one dies, that is, ends without closing its
            loader or leaving Python. ``"continue"`` (default): they go on, unless it is the one that reads for them,
            and it may come back. ``"fail"``: they raise an error that names its process.
        sampling: ``batch_size``, ``seed``, ``shuffle``, ``num_replicas``, ``rank`` and all else that
            :class:`DistributedSampler` takes. ``drop_last`` is what it is for a ``DataLoader``: it leaves out a short
            last batch, as ``drop_last_batch`` does. What becomes of rows that do not divide among the ranks, ``tail``
            says.
    """

    def __init__(
        self,
        dataset: Dataset,
        sampler: DistributedSampler | None = None,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        read_ahead: int | None = None,
        output: Output = "torch",
        nulls: Nulls = "error",
        strings: Literal["list", "offsets"] = "list",
        row_ids: str | None = None,
        pads: str | None = None,
        substituted: str | None = None,
        on_fault: Literal["fail", "substitute"] = "fail",
        fault_seed: int = 0,
        views: bool = False,
        read_concurrency: int | None = None,
        decode: dict[str, Callable[[Any], Any]] | None = None,
        collate: dict[str, Callable[[Any], Any]] | None = None,
        pad: Any = None,
        map: Callable[[Any], Any] | Sequence[Callable[[Any], Any]] | None = None,
        pin_memory: bool = False,
        map_threads: int | None = None,
        share: Literal["machine"] | None = None,
        share_name: str | None = None,
        share_job: str | None = None,
        share_ranks: int | None = None,
        share_drift: int | None = None,
        share_on_death: Literal["continue", "fail"] | None = None,
        **sampling: Any,
    ) -> None:
        if not isinstance(dataset, Dataset):
            if isinstance(dataset, (str, os.PathLike)):
                raise TypeError(f"Loader({dataset!r}): give it a dataset, rowdex.Dataset({os.fspath(dataset)!r})")
            raise TypeError(f"a Loader of {type(dataset).__name__}: give it a rowdex.Dataset")
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
        added = [name for name in (row_ids, pads, substituted) if name is not None]
        for name in added:
            if not isinstance(name, str):
                raise TypeError(f"row_ids, pads and substituted are names of columns to add, and {name!r} is none")
            if name in dataset.column_names or added.count(name) > 1:
                raise ValueError(f"there is a column called {name!r}: choose another name")
        if (row_ids or pads or substituted) and output in ("arrow", "python"):
            raise ValueError(
                f"row_ids, pads and substituted with output={output!r}: use 'torch' or 'numpy'; a Batch has row_ids, "
                "num_pads and substituted itself"
            )
        if on_fault not in ("fail", "substitute"):
            raise ValueError(f"on_fault={on_fault!r}: use 'fail' or 'substitute'")
        if fault_seed and on_fault != "substitute":
            raise ValueError(f"fault_seed={fault_seed} with on_fault={on_fault!r}: it chooses substitutes")
        if views and strings == "offsets":
            raise ValueError("views=True and strings='offsets': views have no offsets; leave out one of them")
        self.dataset = dataset
        self._made_in = os.getpid()
        self._told_epoch = False
        # A sampler of its own, at the place where the given one is.
        self._sampler = object.__new__(DistributedSampler)
        self._sampler.__setstate__(sampler.__getstate__())
        self._options = (size(memory, "memory"), count(threads, "threads"), count(read_ahead, "read_ahead"))
        self._more_options: dict[str, Any] = {
            "on_fault": no_nul(on_fault.encode(), "on_fault"),
            "fault_seed": fault_seed % 2**64,
            "views": views,
            "read_concurrency": count(read_concurrency, "read_concurrency"),
            **_share.options(share, share_name, share_job, share_ranks, share_drift, share_on_death),
        }
        transforms = Transforms(dataset, output, decode=decode, collate=collate, pad=pad, map=map, pin=pin_memory)
        self._transforms = transforms
        count(map_threads, "map_threads")
        if map_threads is not None and not transforms and not pin_memory:
            raise ValueError("map_threads without map, decode, collate, pad or pin_memory: there is nothing to do")
        self._map_threads = 2 if map_threads is None else map_threads
        self._convert = Convert(output, nulls, strings, frozenset(transforms.decode))
        self._row_groups: int | None = None
        self._row_ids, self._pads, self._substituted = row_ids, pads, substituted
        self._start()
        # Views keep what they show, so nothing is gained by converting more of them at once.
        self._max_rows = 1 if views or output in ("arrow", "python") else _CHUNK_ROWS

    def _start(self) -> None:
        """All that belongs to a run, and not to the arguments."""
        self._loaded_epoch = self._sampler._resumed_epoch
        # Where the iteration began of which no batch was asked for yet.
        self._begun: tuple[int, int] | None = None
        self._iterations = 0
        decodes = self._more_options["on_fault"] == b"substitute" and bool(self._transforms.decode)
        self._substitutes = Substitutes(self.dataset, self._more_options["fault_seed"]) if decodes else None
        self._mapping = Mapping(self._map_threads, self._transforms.entering) if self._transforms else None
        self._meter = Meter()
        self._view_schema: Schema | None = None
        self._loader = PerProcess(self._open)
        if "share" in self._more_options:
            _share.close_at_exit(self)

    def __getstate__(self) -> dict[str, Any]:
        """The arguments, and where the run stands. What was read ahead, and what is counted, is of this loader."""
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
        """A copy of its sampler, for frameworks that ask for one. Its ``set_epoch`` is also that of the loader; nothing
        else that happens to it does anything to the loader.
        """
        copy = self._sampler_copy()
        # It has this function, and is not kept alive by it.
        told = weakref.ref(copy)

        def set_epoch(epoch: int) -> None:
            self.set_epoch(epoch)
            sampler = told()
            if sampler is not None:
                DistributedSampler.set_epoch(sampler, epoch)

        copy.set_epoch = set_epoch  # type: ignore[method-assign]
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

    def _loader_options(self) -> native.LoaderOptions:
        memory, threads, read_ahead = self._options
        return loader_options(memory=memory, threads=threads, read_ahead=read_ahead, **self._more_options)

    @property
    def schema(self) -> Schema:
        """The columns of every batch: the dataset's, or with views in the place of strings."""
        if not self._more_options["views"]:
            return self.dataset.schema
        if self._view_schema is None:
            self._view_schema = Schema(library.loader_schema, self._loader.get())
        return self._view_schema

    def _open(self) -> Handle:
        inherited = self._loader.inherited()
        if inherited is not None:
            return Handle(library.loader_free, library.loader_reopen, inherited)
        options = self._loader_options()
        sampler = self._sampler
        opened = sampler._at(sampler.epoch)
        given = (self.dataset._pointer, opened, ctypes.byref(options))
        loader = waiting(
            self.dataset._remote, lambda: Handle(library.loader_free, library.loader_new, *given)
        )
        call(library.loader_set_epoch, loader, sampler.epoch)
        return loader

    def _info(self) -> native.LoaderInfo:
        info = native.LoaderInfo()
        call(library.loader_get_info, self._loader.get(), ctypes.byref(info))
        return info

    def __len__(self) -> int:
        """How many batches every epoch has, wherever the run was resumed. :attr:`steps_left` is how many are left."""
        return int(self._info().steps)

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

    def _iterate(self, begun: tuple[Handle, int, int], iteration: int) -> Iterator[Any]:
        if self._iterations == iteration:
            if self._begun is None:
                # Frameworks begin an epoch, and say then which one it is.
                begun = self._begin()
            self._begun = None
        _counted.check(self, *begun[1:])
        yield from self._epoch(*begun)

    def _begin(self) -> tuple[Handle, int, int]:
        """Begins an epoch. Returns the loader of the library, the epoch and its first step."""
        self._sampler._check_world()
        self._check_worker()
        loader, begun = self._loader.get(), native.LoaderInfo()
        call(library.loader_begin_epoch, loader, ctypes.byref(begun))
        self._loaded_epoch = None
        self._begun = (int(begun.epoch), int(begun.step))
        self._iterations += 1
        return loader, *self._begun

    def _check_worker(self) -> None:
        """Refuses to serve all batches of a rank in each of several workers of a ``DataLoader``."""
        data = sys.modules.get("torch.utils.data")
        worker = None if data is None else data.get_worker_info()
        if worker is None:
            return
        inherited = self._made_in != os.getpid()
        if worker.num_workers > 1 and (inherited or any(self._sampler._assumed)):
            raise RuntimeError(
                f"a {type(self).__name__} in one of the {worker.num_workers} workers of a DataLoader: each of them"
                " would serve every batch of this rank. Use rowdex.torch.IterableDataset, which deals batches to"
                " workers, or num_workers=0 and map= of the loader; or make a loader in each worker, with"
                " num_replicas and rank of its own"
            )
        if inherited and not self._told_epoch and self._iterations == 0:
            warnings.warn(
                f"this {type(self).__name__} was copied to the worker of a DataLoader, and every worker that is started"
                " begins with the same epoch: use persistent_workers=True, call set_epoch() of the loader before each "
                "epoch, or use rowdex.torch.IterableDataset",
                stacklevel=4,
            )

    def _from(self, epoch: int, step: int) -> Iterator[Any]:
        """The batches of an epoch from a step on."""
        loader = self._loader.get()
        call(library.loader_seek, loader, epoch, step)
        return self._epoch(loader, epoch, step)

    def _epoch(self, loader: Handle, epoch: int, step: int) -> Iterator[Any]:
        if self._mapping is not None:
            served = self._mapping.epoch(loader, epoch, step, self.schema, self._made)
        else:
            served = self._served(loader, epoch, step)
        return self._meter.counted(served)

    def _served(self, loader: Handle, epoch: int, step: int) -> Generator[tuple[Any, int], None, None]:
        """Batches, and how many rows each of them has."""
        size = self._sampler.spec.batch_size
        while handle := Handle(library.batch_free, library.loader_peek, loader, epoch, step, self._max_rows):
            batch = Batch(handle, self.schema)
            found, rows = self._converted(batch), len(batch)
            for part in split(found, size, rows) if rows > size else (found,):
                call(library.loader_advance, loader, epoch, step)
                step += 1
                yield part, min(rows, size)
                rows -= size

    def _made(self, batch: Batch, pads: int | None = None) -> Any:
        """A batch as it is handed out, after all functions.

        Raises:
            TransformError: if one of them fails.
        """
        found = self._converted(batch, pads)
        transforms, substitutes = self._transforms, self._substitutes
        try:
            decoded, errors = transforms.decoded(batch)
            if errors and substitutes is None:
                raise RowErrors(errors)
            if errors and substitutes is not None:
                found = substitutes.replaced(batch, found, decoded, errors, transforms, self._stand_in)
            return transforms.finish(found, decoded)
        except Exception as error:
            failed = self._transforms.error_of(batch, error)
            raise failed from failed.__cause__

    def _stand_in(self, lost: dict[str, Any], row: Batch) -> dict[str, Any]:
        """The columns of a row that is served in the place of another one."""
        convert = self._convert
        # Not the readers of the loader, which are of its schema.
        found = Convert(convert.output, convert.nulls, convert.strings, convert.without)(row)
        assert isinstance(found, dict)
        for name, value in ((self._row_ids, row.row_ids[0]), (self._substituted, True)):
            if name is not None:
                found[name] = lost[name] | True if value is True else lost[name] * 0 + value
        if self._pads is not None:
            found[self._pads] = lost[self._pads]
        return {name: found[name] for name in lost}

    def _converted(self, batch: Batch, pads: int | None = None) -> Any:
        found = self._convert(batch)
        pads = batch.num_pads if pads is None else pads
        if self._row_ids is not None or self._pads is not None or self._substituted is not None:
            np = loaded("numpy")

            extra: dict[str, Any] = {}
            if self._row_ids is not None:
                extra[self._row_ids] = np.array(batch.row_ids, dtype=np.int64)
            if self._pads is not None:
                extra[self._pads] = np.arange(len(batch)) >= len(batch) - pads
            if self._substituted is not None:
                extra[self._substituted] = np.zeros(len(batch), dtype=bool)
                extra[self._substituted][[row.place for row in batch.substituted]] = True
            found.update(to_torch(extra) if self._convert.output == "torch" else extra)
        return found

    @property
    def epoch(self) -> int:
        """The epoch of the batch that comes next."""
        return int(self._info().epoch)

    def set_epoch(self, epoch: int) -> None:
        """Goes on with the first batch of ``epoch``. What was read ahead is dropped, unless that is what comes next
        anyway. An epoch that was resumed goes on where it was.
        """
        epoch = epoch_number(epoch)
        self._told_epoch = True
        if self._begun is not None and self._begun[0] == epoch:
            return
        if self._loaded_epoch is not None:
            refuse_earlier(epoch, self._loaded_epoch)
        self._begun = None
        call(library.loader_set_epoch, self._loader.get(), epoch)

    def state_dict(self) -> dict[str, str]:
        """Where the run stands: after the last batch that was handed out. It is the same on all ranks after the same
        step.
        """
        text = ctypes.create_string_buffer(native.STATE_CAPACITY)
        call(library.loader_state, self._loader.get(), text, len(text))
        return {"state": text.value.decode()}

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        """Goes on from a state, which may come from another number of ranks and another batch size. An error that ended
        the loader is forgotten.

        Raises:
            StateError: if it is from another order, dataset or seed; the loader is then unchanged.
        """
        call(library.loader_resume, self._loader.get(), state_text(state_dict))
        if self._mapping is not None:
            self._mapping.close()
        self._loaded_epoch = self.epoch

    def predict(self) -> Prediction:
        """What this loader will do, from the index alone. Takes a fraction of a second."""
        options = self._loader_options()
        found = native.Prediction()
        sampler = self._sampler._at(self._sampler.epoch)
        given = (self.dataset._pointer, sampler, ctypes.byref(options), ctypes.byref(found))
        waiting(self.dataset._remote, lambda: call(library.loader_predict, *given))
        return Prediction(*(getattr(found, name) for name in Prediction._fields))

    @property
    def stats(self) -> LoaderStats:
        """What was done since the loader was started, resumed or set to another epoch, and how fast, as a flat dict."""
        found = native.LoaderStats()
        call(library.loader_get_stats, self._loader.get(), ctypes.byref(found))
        stats = LoaderStats({name: int(getattr(found, name)) for name in COUNTS})
        stats.update({name: getattr(found, f"{name}_ns") / 1e9 for name in TIMES})
        if self._substitutes is not None:
            stats["substituted"] += self._substitutes.served
        if self._row_groups is None:
            self._row_groups = sum(part.index.num_row_groups for part in self.dataset._parts)
        stats["passes"] = stats["decodes"] / self._row_groups if self._row_groups else 0.0
        stats.update(self._meter.numbers())
        return stats

    @property
    def lost_groups(self) -> list[LostGroup]:
        """The row groups that were found unreadable since the loader was made, resumed or closed; none unless
        ``on_fault="substitute"``.
        """
        loader = self._loader.made()
        if loader is None:
            return []
        lost = Handle(library.error_free, library.loader_lost_groups, loader)
        return [LostGroup(int(error_info(error).lost_group), exception_of(error)) for error in errors_of(lost)]

    @property
    def lost_rows(self) -> list[LostRow]:
        """The rows that ``decode`` failed for and that were replaced; none unless ``on_fault="substitute"``."""
        errors = {} if self._substitutes is None else dict(self._substitutes.errors)
        return [LostRow(row, error) for row, error in sorted(errors.items())]

    def close(self) -> None:
        """Ends its threads and lets go of what they hold. An iteration under way ends with :class:`ClosedError`, also
        one of another thread that waits for a batch. The loader goes on where it was if it is used again.
        """
        loader = self._loader.made()
        if self._mapping is not None:
            self._mapping.close()
        if loader is not None:
            library.loader_close(loader)
            self._loader.replace(loader, Handle(library.loader_free, library.loader_reopen, loader))

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Loader({self.dataset!r}, {self._sampler.spec})"

    def __arrow_c_schema__(self) -> object:
        """An ``arrow_schema`` capsule, of a struct with a child for each column."""
        return self.schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """An ``arrow_array_stream`` capsule: the batches of the epoch that comes, which is then over for this
        loader."""
        if self._mapping is not None:
            raise TypeError("a Loader with map, decode, collate or pad is no Arrow stream: leave these out")
        options = self._loader_options()
        loader, epoch, _ = self._begin()
        self._begun = None
        options.epochs = epoch + 1
        sampler = self._sampler._at(self._sampler.epoch)
        own = Handle(library.loader_free, library.loader_new, self.dataset._pointer, sampler, ctypes.byref(options))
        call(library.loader_resume, own, state_text(self.state_dict()))
        stream = native.ArrowArrayStream()
        call(library.loader_stream, own, ctypes.byref(stream))
        call(library.loader_set_epoch, loader, epoch + 1)
        return _capsule.capsule(stream, b"arrow_array_stream")


_OF_A_RUN = frozenset(
    {"_begun", "_iterations", "_loaded_epoch", "_loader", "_mapping", "_meter", "_substitutes", "_view_schema"}
)
_OPTIONS = frozenset(inspect.signature(Loader.__init__).parameters) - {"self", "dataset", "sampling"}
