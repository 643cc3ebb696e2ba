"""What packs are, written from docs/sequences.md alone: which pieces rows become, how many packs take them, and what a
batch of packs has in it.

Nothing here is fast, and nothing is of rowdex: lengths and tokens come from pyarrow, pieces are packed one by one, and
what ranks were served is compared with that.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

Piece = tuple[int, int, int]
"""Row, offset, length."""

IGNORED = -100
"""The label of a token that has no next one."""


@dataclasses.dataclass(frozen=True)
class Packing:
    """How rows are packed, with the names and the defaults of the options."""

    capacity: int
    overflow: str = "split"
    algorithm: str = "bfd"
    extra: int = 0
    multiple: int = 1
    max_pieces: int | None = None
    block: int = 2**17
    empty: str = "skip"
    bos: int | None = None
    eos: int | None = None

    @property
    def units(self) -> int:
        return self.capacity // self.multiple

    @property
    def longest(self) -> int:
        return self.units * self.multiple - self.extra

    def taken(self, length: int) -> int:
        """The units that a piece takes."""
        return max(1, -(-(length + self.extra) // self.multiple))

    def pieces(self, row: int, length: int) -> list[Piece]:
        """The pieces of a row, where it is not the packs that say where it is cut."""
        longest = self.longest
        if length == 0:
            return [(row, 0, 0)] if self.empty == "keep" else []
        if length <= longest:
            return [(row, 0, length)]
        if self.overflow == "truncate":
            return [(row, 0, longest)]
        if self.overflow == "drop":
            return []
        assert self.overflow == "split"
        return [(row, at, min(longest, length - at)) for at in range(0, length, longest)]

    def served(self, length: int) -> int | None:
        """How many tokens of a row an epoch has; ``None`` where there is no piece of it."""
        if self.algorithm == "concat":
            return length if length or self.empty == "keep" else None
        parts = self.pieces(0, length)
        return sum(part[2] for part in parts) if parts else None

    def blocks(self, rows: Sequence[int]) -> list[Sequence[int]]:
        """The rows of an epoch in their order, cut into those that are packed together."""
        count = max(1, len(rows) // self.block)
        ends = [number * self.block for number in range(count)] + [len(rows)]
        return [rows[a:b] for a, b in zip(ends, ends[1:])]

    def packs(self, rows: Sequence[int], lengths: Sequence[int]) -> list[frozenset[Piece]]:
        """The packs of a block, each as the pieces that are in it."""
        packs = self._concatenated if self.algorithm == "concat" else self._best_fit
        return [frozenset(pack) for pack in packs(rows, lengths)]

    def _best_fit(self, rows: Sequence[int], lengths: Sequence[int]) -> list[list[Piece]]:
        pieces = [piece for row in rows for piece in self.pieces(row, lengths[row])]
        # Equal ones stay as they come: by position, and by offset within a row.
        pieces.sort(key=lambda piece: -self.taken(piece[2]))
        packs: list[list[Piece]] = []
        # For each number of units left, the packs that have them, the one last that came to it last.
        open_: dict[int, list[int]] = {}
        for piece in pieces:
            need = self.taken(piece[2])
            left = min((left for left, those in open_.items() if left >= need and those), default=None)
            if left is None:
                packs.append([])
                number, left = len(packs) - 1, self.units
            else:
                number = open_[left].pop()
            packs[number].append(piece)
            if self.max_pieces is None or len(packs[number]) < self.max_pieces:
                open_.setdefault(left - need, []).append(number)
        return packs

    def _concatenated(self, rows: Sequence[int], lengths: Sequence[int]) -> list[list[Piece]]:
        packs: list[list[Piece]] = []
        left = 0
        for row in rows:
            length, offset = lengths[row], 0
            if length == 0 and self.empty == "skip":
                continue
            while True:
                room = left * self.multiple - self.extra
                full = self.max_pieces is not None and packs and len(packs[-1]) == self.max_pieces
                if not packs or full or (room < 1 if length else left < self.taken(0)):
                    packs.append([])
                    left = self.units
                    continue
                part = min(room, length - offset)
                packs[-1].append((row, offset, part))
                left -= self.taken(part)
                offset += part
                if offset >= length:
                    break
        return packs


def packs_of(batch: dict[str, Any], packing: Packing, rows: Sequence[Sequence[int]]) -> list[list[Piece]]:
    """The pieces of a batch, pack by pack."""
    ends, bounds = numbers(batch["cu_seqlens"]), numbers(batch["pack_offsets"])
    pieces = pieces_of(batch, packing, rows)
    assert len(ends) == len(pieces) + 1 and bounds[0] == 0 and bounds == sorted(bounds)
    packs: list[list[Piece]] = [[] for _ in bounds[1:]]
    for piece, begin in zip(pieces, ends):
        # The last pack that begins here or before; one without a place has nothing but empty pieces.
        packs[bisect.bisect_right(bounds[:-1], begin) - 1].append(piece)
    return packs


def pieces_of(batch: dict[str, Any], packing: Packing, rows: Sequence[Sequence[int]]) -> list[Piece]:
    """The pieces of a batch, in their sequence, without the tokens that are added to them."""
    found = []
    for row, offset, length in zip(*(numbers(batch[name]) for name in ("row_ids", "offsets", "lengths")), strict=True):
        length -= packing.bos is not None and offset == 0
        length -= packing.eos is not None and offset + length == len(rows[row]) + 1
        found.append((row, offset, length))
    return found


def numbers(values: Any) -> list[int]:
    return [int(value) for value in np.asarray(values)]


def sequence(
    ranks: Sequence[Sequence[dict[str, Any]]], packing: Packing, rows: Sequence[Sequence[int]]
) -> list[Piece]:
    """The pieces of an epoch as all ranks serve them: step by step, and in a step rank by rank."""
    assert len({len(batches) for batches in ranks}) == 1, "ranks have different numbers of steps"
    steps = zip(*ranks, strict=True)
    return [piece for step in steps for batch in step for piece in pieces_of(batch, packing, rows)]


def check_covered(pieces: Iterable[Piece], lengths: Sequence[int], packing: Packing) -> None:
    """That every token which an epoch is to serve is in one piece, and no other is."""
    parts: dict[int, list[tuple[int, int]]] = {}
    for row, offset, length in pieces:
        parts.setdefault(row, []).append((offset, length))
    assert max(parts, default=0) < len(lengths)
    for row, length in enumerate(lengths):
        at = 0
        for offset, part in sorted(parts.get(row, [])):
            assert offset == at, f"row {row}: a piece begins at {offset}, and the one before ends at {at}"
            at += part
        found, expected = at if row in parts else None, packing.served(length)
        assert found == expected, f"row {row} of {length} tokens: {found} were served, and not {expected}"


def check_packs(
    batches: Iterable[dict[str, Any]], packing: Packing, rows: Sequence[Sequence[int]]
) -> None:
    """That no pack has more units or pieces than it may."""
    for batch in batches:
        # Where pieces without a place lie between two packs, nobody can tell which of the two they are of.
        has_places = all(np.diff(numbers(batch["cu_seqlens"])))
        for pack in packs_of(batch, packing, rows):
            assert sum(packing.taken(length) for _, _, length in pack if length) <= packing.units
            if packing.max_pieces is not None and has_places:
                assert 0 < len(pack) <= packing.max_pieces


class Flat:
    """The arrays that a batch is to have, place by place, as lists."""

    def __init__(self, packs: list[list[Piece]], tokens: Sequence[Sequence[int]], packing: Packing) -> None:
        self.found: dict[str, list[int]] = {
            name: []
            for name in ("tokens", "position_ids", "segment_ids", "labels", "lengths", "cu_seqlens", "pack_offsets")
        }
        self.longest = 0
        self._begin("pack_offsets")
        self._begin("cu_seqlens")
        for pack in packs:
            for segment, piece in enumerate(pack, 1):
                self._add(piece, segment, tokens[piece[0]], packing)
                self._begin("cu_seqlens")
            self._begin("pack_offsets")

    def _begin(self, name: str) -> None:
        self.found[name].append(len(self.found["tokens"]))

    def _add(self, piece: Piece, segment: int, row: Sequence[int], packing: Packing) -> None:
        _, offset, length = piece
        # What is left out of a row is no label, either, and such a row has no end.
        served = [int(token) for token in row[: packing.served(len(row)) or 0]]
        begins, ends = packing.bos is not None, packing.eos is not None and len(served) == len(row)
        whole = [*([packing.bos] if begins else []), *served, *([packing.eos] if ends else [])]
        first = offset + (begins and offset > 0)
        last = offset + length + begins + (ends and offset + length == len(row))
        values, following = whole[first:last], whole[first + 1 : last + 1]
        places = -(-len(values) // packing.multiple) * packing.multiple
        fill = places - len(values)
        self.longest = max(self.longest, places)
        self.found["lengths"].append(len(values))
        self.found["tokens"] += [*values, *[0] * fill]
        self.found["labels"] += [*following, *[IGNORED] * (places - len(following))]
        self.found["position_ids"] += range(places)
        self.found["segment_ids"] += [*[segment] * len(values), *[0] * fill]


def check_flat(
    batch: dict[str, Any], tokens: Sequence[Sequence[int]], packing: Packing, column: str = "tokens"
) -> None:
    """That a flat batch has the tokens of its pieces, and says where they are."""
    flat = Flat(packs_of(batch, packing, tokens), tokens, packing)
    for name, expected in flat.found.items():
        found = np.asarray(batch[column if name == "tokens" else name])
        if name == "segment_ids" and not all(np.diff(flat.found["cu_seqlens"])):
            # Pieces without a place are counted, and between two packs nobody can tell in which.
            for begin, end in itertools.pairwise(flat.found["pack_offsets"]):
                assert dense(found[begin:end]) == dense(expected[begin:end]), name
            continue
        assert found.tolist() == expected, name
    assert int(batch["max_seqlen"]) == flat.longest
    kinds = {name: np.asarray(batch[name]).dtype for name in ("cu_seqlens", "pack_offsets")}
    assert set(kinds.values()) == {np.dtype(np.int32)}, kinds


def dense(segments: Any) -> list[int]:
    """The same numbers of segments without gaps; 0 is none."""
    known = sorted(set(numbers(segments)) - {0})
    return [known.index(segment) + 1 if segment else 0 for segment in numbers(segments)]


def same(one: Iterable[Any], other: Iterable[Any]) -> bool:
    """Whether both have the same, as often, in whichever sequence."""
    return Counter(one) == Counter(other)
