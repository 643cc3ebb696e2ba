"""The last step of an epoch as frameworks see it that gather the ranks' batches and drop what was served twice."""

from __future__ import annotations

import array
from collections.abc import Iterable
from typing import NamedTuple

from ..native.library import Handle
from ..sampler import DistributedSampler
from ..spec import batch_of


class Dealt(NamedTuple):
    """The rows of all ranks in one step."""

    real: int
    """How many of them are not repeated."""
    total: int
    """How many there are."""
    rows: list[list[int] | None]
    """For each rank its rows, where they are not those of its sampler."""
    pads: list[int]
    """For each rank how many of its rows, always the last ones, are repeated now."""


def dealt(sampler: DistributedSampler, epoch: int, step: int) -> Dealt:
    """Assigns the rows of a step so that, with the ranks' batches one after the other, all repeated rows are at the
    end.

    Frameworks drop the rows behind the last one that is not repeated, and a repeated row is the last one of its rank.
    So a few rows change places; nothing else does, and no row is lost.
    """
    handles = sampler.spec.ranks(sampler._dataset, epoch == sampler._resumed_epoch)
    sizes, rows, real, changed = _gathered(handles, epoch, step)
    ranks: list[list[int] | None] = []
    last_pads = []
    start = 0
    for size in sizes:
        end = start + size
        ranks.append(rows[start:end] if any(start <= place < end for place in changed) else None)
        last_pads.append(min(size, max(0, end - real)))
        start = end
    return Dealt(real, len(rows), ranks, last_pads)


def _gathered(ranks: Iterable[Handle], epoch: int, step: int) -> tuple[list[int], list[int], int, set[int]]:
    """How many rows of a step each rank has; all of them one rank after the other, but with repeated ones at the end;
    how many are not repeated; and the places of those that changed places for that.
    """
    rows: list[int] = []
    is_pad: list[bool] = []
    sizes = []
    for handle in ranks:
        found, pads = batch_of(handle, epoch, step)
        rows += found
        is_pad += [False] * (len(found) - pads) + [True] * pads
        sizes.append(len(found))
    real = is_pad.count(False)
    early = [place for place in range(real) if is_pad[place]]
    late = [place for place in range(real, len(rows)) if not is_pad[place]]
    for one, other in zip(early, late):
        rows[one], rows[other] = rows[other], rows[one]
    return sizes, rows, real, {*early, *late}


def in_order(rows: int, world_size: int, batch_size: int) -> array.array[int]:
    """The row ids, position by position, with which gathered steps have the rows in their own order."""
    sampler = DistributedSampler(range(rows), world_size, 0, shuffle=False, batch_size=batch_size)
    ranks = list(sampler.spec.ranks(None, False))
    ids = array.array("Q", bytes(8 * rows))
    place = 0
    for step in range(sampler.steps):
        _, positions, real, _ = _gathered(ranks, 0, step)
        for at, position in enumerate(positions[:real], place):
            ids[position] = at
        place += real
    return ids
