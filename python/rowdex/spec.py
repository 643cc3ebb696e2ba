"""What decides which rows a rank serves when, and the samplers of the library that it describes."""

from __future__ import annotations

import array
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from . import native
from .dataset import Dataset
from .native.library import Handle, call, library, no_nul, seed_number, text_bytes, told_of, whole
from .order import Context, Order, may_repeat, open_order
from .packing import Pack

STEPS_ARE_NO_ROWS = (
    "a rowdex.torch.BatchSampler hands out steps, and no row ids: write DataLoader(dataset, batch_sampler=…) with "
    "the rowdex.torch.Dataset itself; for a part of its rows, give the sampler order=rowdex.order.Subset(…)"
)


class SamplerSpec(NamedTuple):
    """Everything that decides which rows a rank serves when, small enough to travel with every batch.

    Attributes:
        rows: How many rows the dataset has.
        order: ``"global"``, ``"sequential"``, ``"torch"``, ``"blocks(8)"`` and the like, or one of :mod:`rowdex.order`.
        seed: The same on all ranks.
        rank, world_size: This rank, and how many there are.
        batch_size: Rows, or packs, per step and rank.
        tail: What becomes of rows, or packs, that do not divide evenly.
        replicas, replica_layout: How many ranks get the same rows, and which: ``"consecutive"`` or ``"strided"``.
        drop_last_batch: Whether a short last batch is left out.
        resumed: The state that the run resumes from, if any.
        partition: How positions are assigned to the ranks: ``"strided"`` or ``"contiguous"``.
        rotation: Whether an order that never changes begins elsewhere each epoch; ``None`` where that is needed.
        pack: How rows are packed, if they are.
    """

    rows: int
    order: Order
    seed: int
    rank: int
    world_size: int
    batch_size: int
    tail: str = "wrap"
    replicas: int = 1
    replica_layout: str = "consecutive"
    drop_last_batch: bool = False
    resumed: str | None = None
    partition: str = "strided"
    rotation: bool | None = None
    pack: Pack | None = None

    def __index__(self) -> int:
        raise TypeError(STEPS_ARE_NO_ROWS)

    def __lt__(self, other: object) -> bool:
        # How PyTorch's ConcatDataset begins to look at a row id.
        raise TypeError(STEPS_ARE_NO_ROWS)

    def open(self, dataset: Dataset | None) -> OpenSampler:
        """The samplers that it describes. Orders that go by row groups need the dataset."""
        orders = self._orders(dataset)
        whole = self._sampler(orders)
        epochs = Epochs(lambda: self._sampler(orders))
        if self.resumed is None:
            return OpenSampler(whole, None, None, epochs)
        state = no_nul(self.resumed.encode(), "state")
        resumed = self._sampler(orders)
        for sampler in (whole, resumed):
            call(library.resume, sampler, state)
        _make_whole(whole)
        return OpenSampler(whole, resumed, int(told_of(resumed)["epoch"]), epochs)

    def ranks(self, dataset: Dataset | None, resumed: bool) -> Iterator[Handle]:
        """The sampler of every rank: of whole epochs, or of the one that the run was resumed within."""
        orders = self._orders(dataset)
        for rank in range(self.world_size):
            sampler = self._replace(rank=rank)._sampler(orders)
            if self.resumed is not None:
                call(library.resume, sampler, no_nul(self.resumed.encode(), "state"))
                if not resumed:
                    _make_whole(sampler)
            yield sampler

    def check_rows(self, dataset: Dataset) -> None:
        """Refuses a dataset of another number of rows, of which it would leave rows out.

        Raises:
            ValueError: naming both numbers.
        """
        if len(dataset) != self.rows:
            raise ValueError(
                f"a sampler of {self.rows} rows for a dataset of {len(dataset)}: make it with this dataset"
            )

    def check_serves_rows(self, maker: str) -> None:
        """Refuses packs where whole rows are read.

        Raises:
            ValueError: saying what serves packs.
        """
        if self.pack is not None:
            raise ValueError(f"pack=: {maker} serves whole rows; rowdex.Loader serves packs")

    def check_draws(self) -> None:
        """Refuses random numbers where the copies of a row would be alike.

        Raises:
            ValueError: saying what to write instead.
        """
        if self.pack is not None and may_repeat(self.order):
            raise ValueError(
                f"pack= with order={self.order!r}, which may serve a row more than once, and a function that draws "
                "random numbers: its copies would be alike; use order='global', or leave out pack"
            )

    def _orders(self, dataset: Dataset | None) -> Handle:
        if dataset is not None:
            self.check_rows(dataset)
        return open_order(self.order, Context(dataset, self.rows, seed_number(self.seed)))

    def _sampler(self, orders: Handle) -> Handle:
        options = native.SamplerOptions(
            rank=self.rank,
            world_size=self.world_size,
            batch_size=self.batch_size,
            tail=text_bytes(self.tail, "tail"),
            replica_layout=text_bytes(self.replica_layout, "replica layout"),
            replication=self.replicas,
            drop_last_batch=self.drop_last_batch,
            partition=text_bytes(self.partition, "partition"),
            rotation={None: b"needed", True: b"always", False: b"never"}[self.rotation],
            pack=None if self.pack is None else text_bytes(self.pack._text(), "pack"),
        )
        return Handle(library.sampler_new, orders, ctypes.byref(options))


def _make_whole(resumed: Handle) -> None:
    """Has the epoch that was resumed as a whole again. All else stays as the run began."""
    epoch = int(told_of(resumed)["epoch"])
    # Another epoch and back.
    for other in (epoch + 1, epoch):
        call(library.sampler_set_epoch, resumed, other)


class Epochs:
    """Samplers of one epoch each, for packs, of which epochs have different numbers. None is changed any more."""

    _KEPT = 2

    def __init__(self, new: Callable[[], Handle]) -> None:
        self._new = new
        self._held: dict[int, Handle] = {}

    def at(self, epoch: int) -> Handle:
        held = self._held.get(epoch)
        if held is None:
            held = self._new()
            call(library.sampler_set_epoch, held, epoch)
            # Whole at any moment, whichever threads ask.
            kept = list(self._held.items())[1 - self._KEPT :]
            self._held = dict([*kept, (epoch, held)])
        return held


class OpenSampler(NamedTuple):
    """The ``rowdex_sampler`` of whole epochs, and that of the epoch that the run was resumed within. Neither is
    changed.
    """

    whole: Handle
    resumed: Handle | None
    resumed_epoch: int | None
    epochs: Epochs

    def sampler(self, resumed: bool) -> Handle:
        """The sampler of an epoch that was resumed, or of one that was not."""
        return self.resumed if resumed and self.resumed is not None else self.whole

    @property
    def epoch(self) -> int:
        """The epoch to begin with."""
        return int(told_of(self.whole)["epoch"])


def batch_of(sampler: Handle, epoch: int, step: int) -> tuple[list[int], int]:
    """The row ids of a step, and how many of them, always the last ones, are repeated."""
    rows = (ctypes.c_uint64 * int(told_of(sampler)["batch_size"]))()
    found, pads = ctypes.c_size_t(), ctypes.c_size_t()
    call(
        library.sampler_batch, sampler, epoch, step,
        ctypes.addressof(rows), len(rows), ctypes.byref(found), ctypes.byref(pads), None,
    )  # fmt: skip
    return rows[: found.value], pads.value


class SampledBatch(NamedTuple):
    """The rows of one step on one rank."""

    row_ids: list[int]
    """In the order to serve them: one for each piece of packs."""
    num_pads: int
    """How many of them, always the last ones, are repeated."""
    offsets: array.array[int] | None = None
    """Of packs, the token that each piece begins with in its row. Shape ``(pieces,)``, uint64."""
    lengths: array.array[int] | None = None
    """Of packs, how many tokens each piece has. Shape ``(pieces,)``, uint64."""
    packs: array.array[int] | None = None
    """Of packs, how many pieces there are up to the end of each. Shape ``(packs,)``, uint64."""


def pieces_of(sampler: Handle, epoch: int, step: int) -> SampledBatch:
    """The pieces of a step of packs."""
    found, pads = ctypes.c_size_t(), ctypes.c_size_t()
    numbers = (ctypes.byref(found), ctypes.byref(pads))
    call(library.sampler_batch, sampler, epoch, step, None, 0, *numbers, None)
    room = int(told_of(sampler)["batch_size"])
    rows, offsets, lengths = (array.array("Q", bytes(8 * found.value)) for _ in range(3))
    packs, num_packs = array.array("Q", bytes(8 * room)), ctypes.c_size_t()
    pieces = native.Pieces(
        offsets=offsets.buffer_info()[0], lengths=lengths.buffer_info()[0], packs=packs.buffer_info()[0],
        packs_capacity=room, num_packs=ctypes.addressof(num_packs),
    )  # fmt: skip
    if rows:
        call(library.sampler_batch, sampler, epoch, step, *rows.buffer_info(), *numbers, ctypes.byref(pieces))
    return SampledBatch(rows.tolist(), pads.value, offsets, lengths, packs[: num_packs.value])


def steps_left(sampler: Handle) -> range:
    """The steps that are left of the current epoch of a sampler of the library."""
    info = told_of(sampler)
    return range(info["steps"] - info["steps_left"], info["steps"])


def epoch_number(epoch: int) -> int:
    """An epoch as the library wants it."""
    number = whole(epoch, "epoch")
    if not 0 <= number < 2**64:
        raise ValueError(f"epoch {epoch}: epochs count from 0 to 2^64 - 1")
    return number


def step_number(step: int) -> int:
    """A step of an epoch as the library wants it."""
    number = whole(step, "step")
    if not 0 <= number < 2**64 - 1:
        raise ValueError(f"step {step}: steps of an epoch count from 0")
    return number


def refuse_earlier(epoch: int, resumed: int) -> None:
    """Refuses to leave an epoch that was just resumed for an earlier one: the caller counts from 0 again."""
    if epoch < resumed:
        raise ValueError(
            f"set_epoch({epoch}) after a state of epoch {resumed} was loaded would begin the run again: call "
            f"set_epoch({resumed}); where a framework calls it (Fabric, a loader prepared by Accelerate), use "
            "rowdex.Loader or rowdex.accelerate.Loader, whose epochs follow their state"
        )


def state_text(state_dict: Any) -> bytes:
    """What the library wants of a state."""
    state = (
        state_dict if isinstance(state_dict, str) else state_dict.get("state") if isinstance(state_dict, dict) else None
    )
    if not isinstance(state, str):
        raise ValueError(f"not a state of a sampler: {state_dict!r}")
    return no_nul(state.encode(), "state")
