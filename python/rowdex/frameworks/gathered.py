"""The last step of an epoch as frameworks see it that gather the ranks' batches and drop what was served twice."""

from __future__ import annotations

import array
import ctypes
from typing import NamedTuple

from ..native.library import Handle, call, library
from ..sampler import DistributedSampler, SamplerSpec


class Dealt(NamedTuple):
    """The rows of all ranks in one step."""

    real: int
    """How many of them are not pads."""
    total: int
    """How many there are."""
    rows: list[list[int] | None]
    """For each rank its rows, where they are not those of its sampler."""
    pads: list[int]
    """For each rank how many of its rows, always the last ones, are pads now."""


def dealt(sampler: DistributedSampler, epoch: int, step: int) -> Dealt:
    """Deals the rows of a step so that, with the ranks' batches one after the other, all pads are at the end.

    Frameworks drop the rows behind the last one that is no pad, and a pad is the last row of every rank that has one.
    So a few rows change places; nothing else does, and no row is lost.
    """
    rows: list[int] = []
    is_pad: list[bool] = []
    sizes = []
    for handle in sampler.spec.ranks(sampler._dataset, epoch == sampler._resumed_epoch):
        found, pads = batch_of(handle, sampler.spec, epoch, step)
        rows += found
        is_pad += [False] * (len(found) - pads) + [True] * pads
        sizes.append(len(found))
    real = is_pad.count(False)
    early = [place for place in range(real) if is_pad[place]]
    late = [place for place in range(real, len(rows)) if not is_pad[place]]
    changed = set(early) | set(late)
    for one, other in zip(early, late):
        rows[one], rows[other] = rows[other], rows[one]
    ranks: list[list[int] | None] = []
    last_pads = []
    start = 0
    for size in sizes:
        end = start + size
        ranks.append(rows[start:end] if any(start <= place < end for place in changed) else None)
        last_pads.append(min(size, max(0, end - real)))
        start = end
    return Dealt(real, len(rows), ranks, last_pads)


def in_order(rows: int, world_size: int, batch_size: int) -> array.array[int]:
    """The row ids, position by position, with which gathered steps have the rows in their own order.

    A rank has every ``world_size``-th position, and a gathered step has the ranks' batches one after the other, as
    :func:`dealt` leaves them.
    """
    ids = array.array("Q", bytes(8 * rows))
    step = world_size * batch_size
    whole = rows - rows % step
    for first in range(0, whole, step):
        for rank in range(world_size):
            start = first + rank * batch_size
            ids[first + rank : first + step : world_size] = array.array("Q", range(start, start + batch_size))
    left = rows - whole
    each = -(-left // world_size)
    late, early = [], []
    for rank in range(world_size):
        for number in range(each):
            position, place = number * world_size + rank, rank * each + number
            if position < left and place < left:
                ids[whole + position] = whole + place
            elif position < left:
                late.append(position)
            elif place < left:
                early.append(place)
    # The rows that change places with pads: in the order in which `dealt` has them do so.
    for position, place in zip(late, early):
        ids[whole + position] = whole + place
    return ids


def batch_of(sampler: Handle, spec: SamplerSpec, epoch: int, step: int) -> tuple[list[int], int]:
    """The row ids of a step, and how many of them, always the last ones, are pads."""
    rows = (ctypes.c_uint64 * spec.batch_size)()
    found, pads = ctypes.c_size_t(), ctypes.c_size_t()
    call(
        library.sampler_batch, sampler, epoch, step,
        ctypes.addressof(rows), len(rows), ctypes.byref(found), ctypes.byref(pads),
    )  # fmt: skip
    return rows[: found.value], pads.value
