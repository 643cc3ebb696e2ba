"""What an order is: which row comes at which position of an epoch."""

from __future__ import annotations

import random

from .draw import COLOURS, LEFT, arrow, picture, square, text

GROUPS, ROWS, WINDOW = 6, 9, 2


def shuffled(seed: int, rows: list[int]) -> list[int]:
    rows = list(rows)
    random.Random(seed).shuffle(rows)
    return rows


def draw() -> str:
    rows = list(range(GROUPS * ROWS))
    blocks: list[int] = []
    groups = shuffled(4, list(range(GROUPS)))
    for start in range(0, GROUPS, WINDOW):
        window = [group * ROWS + i for group in groups[start : start + WINDOW] for i in range(ROWS)]
        blocks += shuffled(start, window)
    lines = [
        ("sequential: the rows as they lie in their row groups, a colour each", rows),
        ("global, epoch 0: any row may come anywhere", shuffled(1, rows)),
        ("global, epoch 1: another permutation of the same rows", shuffled(2, rows)),
        (f"blocks({WINDOW}): all rows of {WINDOW} row groups at a time, for less memory", blocks),
    ]
    parts, step = [], 852 / len(rows)
    for at, (words, order) in enumerate(lines):
        y = 34 + at * 62
        parts.append(text(LEFT, y, words, weight="bold"))
        parts += [
            square(LEFT + position * step, y + 12, step - 2, COLOURS[row // ROWS], "held")
            for position, row in enumerate(order)
        ]
    parts.append(arrow(LEFT, 290, LEFT + 852, 290))
    parts.append(text(LEFT, 310, "position 0"))
    parts.append(text(LEFT + 852, 310, "last position", anchor="end"))
    words = "A pure function of rows, seed and epoch: every rank computes it alone."
    parts.append(text(LEFT + 426, 310, words, anchor="middle"))
    return picture("Four orders of the same rows", 326, parts)
