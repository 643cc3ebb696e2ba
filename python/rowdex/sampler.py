"""Which rank serves which rows, and when."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Literal

from . import native
from .dataset import Dataset
from .frameworks import sharded as _sharded
from .launch import check_same_rows, process_group, world
from .loading import options as _options
from .loading.sampled_rows import SampledRows
from .native.library import Handle, PerProcess, call, library, told_of, whole
from .order import Explicit, Order, Orders, plan_of, with_stages
from .packing import Pack, default_tail
from .spec import (
    SampledBatch,
    SamplerSpec,
    batch_of,
    epoch_number,
    pieces_of,
    refuse_earlier,
    state_text,
    step_number,
    steps_left,
)
from .stages import Stages
from .zipped import Zipped

Tail = Literal["wrap", "drop", "uneven", "error", "even"]


@functools.cache
def _one_of(theirs: type) -> type:
    """The class of samplers that are of PyTorch's class, too."""
    return type("DistributedSampler", (DistributedSampler, theirs), {"__doc__": DistributedSampler.__doc__})


class DistributedSampler(_sharded.Generated):
    """The rows of one rank, the same number on every rank: replaces ``torch.utils.data.DistributedSampler``, and has
    its names.

    Iterating gives the row ids of this rank in the current epoch, and makes the next epoch current: every epoch has
    another order, whether or not :meth:`set_epoch` is called. ``len(sampler)`` is how many these are.

    Args:
        dataset: What has the rows: a :class:`Dataset`, or anything with a length.
        num_replicas: How many ranks there are: the world size. Default: that of ``torch.distributed`` if it is
            initialised, else that of Ray Train within a training function, that of JAX after
            ``jax.distributed.initialize()``, or what the launcher says (:meth:`Launch.from_env`: torchrun, Open MPI,
            PMI or Slurm), else 1.
        rank: This rank. Default: likewise, else 0.
        shuffle: ``False`` serves rows in order.
        seed: The same on all ranks.
        drop_last: ``True`` drops rows that do not divide evenly (tail ``"drop"``), rather than serve some twice (tail
            ``"wrap"``). ``"batch"`` leaves out the last batch of an epoch if it is short on any rank.
        order: ``"global"`` (default), ``"blocks(8)"``, ``"sequential"``, ``"torch"`` (what PyTorch's sampler serves,
            number for number, also with ``shuffle=False``), or one of :mod:`rowdex.order`: from a list or a file (which
            is the same in every epoch with ``shuffle=False``, and else begins elsewhere where rows are dropped), by
            weight, by class, of a part of the rows, in epochs of another size. A name with ``,contiguous`` behind it
            assigns one consecutive piece to each rank, so that with ``"blocks(8),contiguous"`` a row group is read by
            about one rank.
        tail: ``"wrap"``, ``"drop"``, ``"uneven"`` (nothing twice, nothing dropped, ranks differ by one) or ``"error"``.
            Of packs ``"even"``, which is their default: nothing twice, nothing dropped, and ranks have the same number.
        replication: How many ranks get the same rows, as those of a model-parallel group must: consecutive ones, or
            others with ``(2, "strided")``.
        batch_size: Rows, or packs, per step and rank, for :meth:`batches`, :attr:`steps` and states between batches.
        pack: Batches of packs, or of rows of like lengths, by the lengths that are recorded in the index:
            :class:`Pack`.
    """

    # Whether a sampler of the batches of all ranks has this one.
    _is_of_all = False
    # Whether its ranks have compared their indexes.
    _is_compared = False
    # Is told of epochs that are set.
    _listener: Callable[[int], None] | None = None

    def __new__(cls, *_: Any, **__: Any) -> DistributedSampler:
        """Where PyTorch is imported, a sampler is one of PyTorch's, too: others are replaced or sharded again."""
        theirs = getattr(sys.modules.get("torch.utils.data"), "DistributedSampler", None)
        return object.__new__(cls if cls is not DistributedSampler or theirs is None else _one_of(theirs))

    def __reduce__(self) -> Any:
        # Whether PyTorch is imported where it is unpickled says of which class it is there.
        made = DistributedSampler if type(self).__qualname__ == DistributedSampler.__qualname__ else type(self)
        return made.__new__, (made,), self.__getstate__()

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool | Literal["batch"] = False,
        *,
        order: Order | None = None,
        tail: Tail | None = None,
        replication: int | tuple[int, Literal["consecutive", "strided"]] = 1,
        batch_size: int | None = None,
        pack: Pack | None = None,
    ) -> None:
        if isinstance(dataset, (str, bytes, os.PathLike)):
            raise TypeError(f"a sampler of {dataset!r}: give it a dataset, rowdex.Dataset({dataset!r})")
        sampler = getattr(sys.modules.get("torch.utils.data"), "Sampler", None)
        if isinstance(dataset, DistributedSampler) or (sampler is not None and isinstance(dataset, sampler)):
            raise TypeError(
                f"a sampler of a {type(dataset).__name__} would shard its rows again: give the dataset, and let no "
                "framework put in another sampler (Lightning: use_distributed_sampler=False)"
            )
        if order is not None and not isinstance(order, (str, Orders)):
            raise TypeError(f"order={order!r}: use a name such as 'global', or one of rowdex.order")
        if pack is not None:
            _check_pack(pack, dataset)
        if drop_last not in (True, False, "batch"):
            raise ValueError(f"drop_last={drop_last!r}: use True, False or 'batch'")
        if drop_last is True and tail not in (None, "drop"):
            raise ValueError(f"drop_last=True and tail={tail!r}: leave out one of them")
        name, contiguous, _ = order.partition(",contiguous") if isinstance(order, str) else (order, "", "")
        # The same in every epoch, whatever is dropped or repeated, as PyTorch's sampler has it without a shuffle.
        unrotated = not shuffle and (name == "torch" or isinstance(order, Explicit))
        if not shuffle and not unrotated and name not in (None, "sequential"):
            raise ValueError(f"shuffle=False and order={order!r}: leave out one of them")
        if name is None or (not shuffle and name == "torch"):
            name = "global" if shuffle else "sequential"
        if batch_size is not None:
            batch_size = whole(batch_size, "batch_size")
            if not 1 <= batch_size < 2**63:
                raise ValueError(f"a batch size of {batch_size}: use a number from 1 to below 2^63")
        seed = whole(seed, "seed")
        # Which of the two nobody gave: they must be those of the process group once there is one.
        self._assumed = (num_replicas is None, rank is None)
        if num_replicas is None or rank is None:
            known_size, known_rank = world()
            num_replicas = known_size if num_replicas is None else num_replicas
            rank = known_rank if rank is None else rank
        num_replicas, rank = whole(num_replicas, "num_replicas"), whole(rank, "rank")
        replicas, layout = replication if isinstance(replication, tuple) else (replication, "consecutive")
        replicas = whole(replicas, "replication")
        for it, value, least in [("num_replicas", num_replicas, 1), ("rank", rank, 0), ("replication", replicas, 1)]:
            if not least <= value < 2**32:
                raise ValueError(f"{it} is {value}: use {least} or more")
        if rank >= num_replicas:
            raise ValueError(f"Invalid rank {rank}, rank should be in the interval [0, {num_replicas - 1}]")
        self._dataset = dataset if isinstance(dataset, Dataset) else None
        self._set(
            SamplerSpec(
                rows=len(dataset),
                order=name,
                seed=seed,
                rank=rank,
                world_size=num_replicas,
                batch_size=batch_size or 1,
                tail=tail if tail is not None else "drop" if drop_last is True else default_tail(pack),
                replicas=replicas,
                replica_layout=layout,
                drop_last_batch=drop_last == "batch",
                partition="contiguous" if contiguous else "strided",
                rotation=False if unrotated else None,
                pack=pack,
            )
        )
        self._batched = batch_size is not None

    def _set(self, spec: SamplerSpec) -> None:
        dataset = self._dataset
        opened = PerProcess(lambda: spec.open(dataset))
        opened.get()
        self._spec, self._opened = spec, opened
        self._epoch = opened.get().epoch
        # The epoch of which only a part is left, until it is over.
        self._resumed_epoch = opened.get().resumed_epoch
        # The epoch that is iterated over, and the step that comes next; none was handed out where that is ``None``.
        self._served: tuple[int, int | None] = (self._epoch, None)

    def __getstate__(self) -> dict[str, Any]:
        return {
            "dataset": self._dataset, "spec": self._spec, "batched": self._batched, "assumed": self._assumed,
            "epoch": self._epoch, "resumed_epoch": self._resumed_epoch, "served": self._served,
        }  # fmt: skip

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset, self._batched, self._assumed = state["dataset"], state["batched"], state["assumed"]
        self._set(state["spec"])
        # Also the way that the run began, which an epoch long over has determined.
        self._epoch, self._resumed_epoch, self._served = state["epoch"], state["resumed_epoch"], state["served"]

    def __repr__(self) -> str:
        return f"DistributedSampler({self._spec}, epoch {self._epoch})"

    @property
    def spec(self) -> SamplerSpec:
        """All that decides which rows come when."""
        return self._spec

    @property
    def rank(self) -> int:
        """This rank."""
        return self._spec.rank

    @property
    def num_replicas(self) -> int:
        """How many ranks there are."""
        return self._spec.world_size

    @property
    def batch_size(self) -> int | None:
        """Rows per step and rank."""
        return self._spec.batch_size if self._batched else None

    @property
    def dataset(self) -> Any:
        """The dataset, if it is one of rowdex."""
        return self._dataset

    @property
    def shuffle(self) -> bool:
        """Whether rows are served in another order than theirs."""
        return self._spec.order != "sequential"

    @property
    def seed(self) -> int:
        """The same on all ranks."""
        return self._spec.seed

    @property
    def drop_last(self) -> bool:
        """Whether rows that do not divide evenly are dropped."""
        return self._spec.tail == "drop"

    @property
    def num_samples(self) -> int:
        """How many samples this rank has in every epoch."""
        return len(self)

    @property
    def total_size(self) -> int:
        """How many samples all ranks have in every epoch, where each has as many as this one."""
        return len(self) * self._shards

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration serves."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration serve ``epoch``. An epoch that was resumed stays resumed if it is the current one
        already.
        """
        epoch = epoch_number(epoch)
        # Ranks for which Accelerate reads elsewhere begin an epoch in this way alone.
        self._check_sharded()
        if self._listener is not None:
            self._listener(epoch)
        self._go_to(epoch)

    def _go_to(self, epoch: int) -> None:
        if self._served[1] is None and self._epoch == self._resumed_epoch:
            refuse_earlier(epoch, self._epoch)
        if epoch != self._epoch:
            self._resumed_epoch = None
        self._epoch = epoch
        self._served = (epoch, None)

    def _at(self, epoch: int) -> Handle:
        """The sampler that an epoch is to be asked of."""
        opened, resumed = self._opened.get(), epoch == self._resumed_epoch
        if resumed or self._spec.pack is None or epoch == opened.epoch:
            return opened.sampler(resumed)
        return opened.epochs.at(epoch)

    def __len__(self) -> int:
        """How many samples this rank has in every epoch, repeated rows included, wherever the run was resumed. Those of
        packs are pieces.
        """
        return int(self._info(self._epoch)["len"])

    @property
    def steps(self) -> int:
        """How many batches every rank has in every epoch, wherever the run was resumed. Epochs of packs differ by a
        few: those of the current one.
        """
        return int(self._info(self._epoch)["steps"])

    @property
    def steps_left(self) -> int:
        """How many of them are left of the current epoch: all, unless the run was resumed within it."""
        return int(self._info(self._epoch)["steps_left"])

    def _info(self, epoch: int) -> dict[str, Any]:
        return told_of(self._at(epoch))

    def total_steps(self, epochs: int) -> int:
        """How many steps every rank has in so many epochs, from the position of the current one on: exact for packs,
        too, of which epochs differ by a few.
        """
        if self._spec.pack is None:
            return self.steps_left + (epochs - 1) * self.steps if epochs > 0 else 0
        return sum(map(self._steps_after, range(epochs)))

    def _steps_after(self, epochs: int) -> int:
        """How many steps the epoch has that comes after so many others, the first of which continues where it is."""
        return int(self._info(self._epoch + epochs)["steps"]) if epochs else self.steps_left

    def __iter__(self) -> Iterator[int]:
        self._spec.check_serves_rows("iterating a sampler")
        return SampledRows(self)

    def batches(self) -> Iterator[SampledBatch]:
        """The batches of this rank in the current epoch; the next one becomes current."""
        epoch = self._begin()
        for step in self._steps(epoch):
            batch = self.batch(epoch, step)
            self._served = (epoch, step + 1)
            yield batch

    def _steps(self, epoch: int) -> range:
        """The steps of an epoch that are left."""
        return steps_left(self._at(epoch))

    @property
    def _shards(self) -> int:
        """Of how many shards this rank has one."""
        return self._spec.world_size // self._spec.replicas

    def _check_world(self) -> None:
        """Refuses to serve a shard if the number of ranks has changed."""
        group = process_group()
        if group is None:
            return
        made = (self._spec.world_size, self._spec.rank)
        if any(assumed and is_now != was for assumed, is_now, was in zip(self._assumed, group, made)):
            raise RuntimeError(
                f"made for rank {made[1]} of {made[0]} before the process group was there, in which this process is "
                f"rank {group[1]} of {group[0]}: make it later (with Lightning in train_dataloader(), or by "
                "rowdex.lightning.DataModule), or give num_replicas and rank"
            )
        if any(self._assumed) and not self._is_compared:
            plan = plan_of(self._spec.order)
            check_same_rows(self._dataset, None if plan is None else self._info(self._epoch)["fingerprint"])
            self._is_compared = True

    def _check_sharded(self) -> None:
        """Refuses to be sharded again, unless all ranks get their rows by this."""
        _sharded.check("DistributedSampler", 1 if self._is_of_all else self._shards, self, self._dataset)

    def _begin(self) -> int:
        self._check_sharded()
        _sharded.is_over(self._dataset)
        self._check_world()
        return self._advance()

    def _advance(self) -> int:
        epoch = self._epoch
        if epoch != self._resumed_epoch:
            self._resumed_epoch = None
        self._epoch, self._served = epoch + 1, (epoch, None)
        return epoch

    def batch(self, epoch: int, step: int) -> SampledBatch:
        """The batch of this rank at a step of an epoch."""
        epoch, step = epoch_number(epoch), step_number(step)
        if self._spec.pack is None:
            return SampledBatch(*batch_of(self._at(epoch), epoch, step))
        return pieces_of(self._at(epoch), epoch, step)

    def state_after(self, epoch: int, step: int) -> dict[str, str]:
        """The state once every rank is done with this step: the same on all of them, for :meth:`load_state_dict`.

        Steps are those of this sampler: where a ``DataLoader`` makes batches of row ids, give both the same
        ``batch_size``, and leave out ``in_order=False``.
        """
        # That after step -1 is the one that the epoch begins with.
        return self._state(epoch_number(epoch), step_number(step + 1))

    def _state(self, epoch: int, step: int) -> dict[str, str]:
        text = ctypes.create_string_buffer(native.STATE_CAPACITY)
        call(library.sampler_state, self._at(epoch), epoch, step, text, len(text))
        return {"state": text.value.decode()}

    def state_dict(self) -> dict[str, str]:
        """Where the run stands: after the last whole batch that was handed out. It is the same on all ranks.

        A ``DataLoader`` with workers reads ahead, so that this is further than training is: there use
        :meth:`state_after`.
        """
        epoch, step = self._served
        return self._state(epoch, self._steps(epoch).start if step is None else step)

    def load_state_dict(self, state_dict: dict[str, str], *, stages: Stages | None = None) -> None:
        """Resumes from a state, which may come from another number of ranks and another batch size.

        Args:
            state_dict: The state.
            stages: Of a mixture with stages, others from here on. Those that begin before the state are as they were.

        Raises:
            StateError: if it is from another order, number of rows or seed; the sampler is then unchanged.
        """
        order = with_stages(self._spec.order, stages)
        self._set(self._spec._replace(order=order, resumed=state_text(state_dict).decode()))


def _check_pack(pack: Any, dataset: Any) -> None:
    if not isinstance(pack, Pack):
        raise TypeError(f"pack={pack!r}: use rowdex.Pack('tokens', capacity=8192)")
    if not isinstance(dataset, Dataset):
        raise TypeError(f"pack= and {type(dataset).__name__}: packs go by the lengths that the index of a dataset has")
    if isinstance(dataset, Zipped):
        raise TypeError(
            "pack= and a Zipped, one of whose datasets has the lengths: pad lists with pad=, or pack that dataset alone"
        )


_SAMPLING = frozenset(inspect.signature(DistributedSampler.__init__).parameters) - {"self", "dataset"}


def sampler_of(dataset: Any, maker: str, own: Iterable[str] = (), **sampling: Any) -> DistributedSampler:
    """The sampler that a maker of batches makes of the keyword arguments that it passes on.

    Raises:
        TypeError: for one that there is not, naming the maker, which has the options ``own`` besides.
    """
    _options.check(sampling, _SAMPLING | set(own), maker)
    return DistributedSampler(dataset, **_options.of_batches(sampling))
