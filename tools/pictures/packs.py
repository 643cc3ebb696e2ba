"""Rows of unequal lengths, one to a sequence and packed by best fit."""

from __future__ import annotations

from .draw import COLOURS, INK, LEFT, PALE, bar, box, picture, text

LENGTHS = [13, 4, 22, 7, 30, 9, 17, 5, 11, 26, 3, 8, 19, 6, 12]
CAPACITY = 32


def best_fit() -> list[list[int]]:
    """Longest row first, each into the fullest pack that has room for it."""
    packs: list[list[int]] = []
    for row in sorted(range(len(LENGTHS)), key=lambda row: -LENGTHS[row]):
        room = [(CAPACITY - sum(LENGTHS[other] for other in pack), at) for at, pack in enumerate(packs)]
        fits = [(left, at) for left, at in room if left >= LENGTHS[row]]
        if fits:
            packs[min(fits)[1]].append(row)
        else:
            packs.append([row])
    return packs


def sequences(left: float, rows: list[list[int]], scale: float) -> list[str]:
    parts = []
    for at, pack in enumerate(rows):
        x, y = left, 66 + at * 21
        parts.append(box(x, y, CAPACITY * scale, 16, PALE, 1))
        for row in pack:
            width = LENGTHS[row] * scale
            parts.append(bar(x, y, width, 16, COLOURS[row % len(COLOURS)]))
            parts.append(text(x + width / 2, y + 12, str(LENGTHS[row]), 11, "middle", fill="#ffffff"))
            x += width
    return parts


def draw() -> str:
    packs = best_fit()
    tokens = sum(LENGTHS)
    scale = 390 / CAPACITY
    alone = tokens / (len(LENGTHS) * CAPACITY)
    packed = tokens / (len(packs) * CAPACITY)
    parts = [text(LEFT, 34, "One row to a sequence", weight="bold"), text(488, 34, "Packed", weight="bold")]
    parts.append(text(LEFT, 54, f"{len(LENGTHS)} sequences of {CAPACITY} tokens, {alone:.0%} full".replace("%", " %")))
    parts.append(text(488, 54, f"{len(packs)} sequences of {CAPACITY} tokens, {packed:.0%} full".replace("%", " %")))
    parts += sequences(LEFT, [[row] for row in range(len(LENGTHS))], scale)
    parts += sequences(488, packs, scale)
    y = 66 + len(packs) * 21 + 26
    lines = (
        "The lengths of all rows are in the index, and the order",
        "is known. So packs are a pure function, too: each rank",
        "knows those of all ranks, and each has the same number.",
        "Rows of a pack come from one block of the order.",
    )
    parts += [text(488, y + at * 19, words, fill=INK) for at, words in enumerate(lines)]
    return picture("Rows alone in their sequences, and packed", 66 + len(LENGTHS) * 21 + 14, parts)
