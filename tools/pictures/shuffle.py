"""How the loader shuffles all rows within a fixed memory.

One moment of a small epoch, which is played here by the loader's own rule: when a row is due that is not held, its row
group is decoded, and those rows of it are kept that are due within the horizon.
"""

from __future__ import annotations

import random

from .draw import COLOURS, INK, LEFT, PALE, arrow, bracket, picture, square, text

GROUPS, ROWS, BATCH, HORIZON, MOMENT = 6, 16, 8, 36, 40


def play() -> tuple[list[int], set[int], int]:
    """The order of the epoch, the positions whose rows are held, and the row group that was just decoded."""
    draw = random.Random(5)
    order = list(range(GROUPS * ROWS))
    draw.shuffle(order)
    held_until = [0] * GROUPS
    seen: set[int] = set()
    for position, row in enumerate(order):
        group = row // ROWS
        if position >= held_until[group]:
            # The first horizon is drawn, so that the row groups do not all come due together.
            horizon = HORIZON if group in seen else draw.randint(HORIZON // 3, HORIZON)
            seen.add(group)
            held_until[group] = position + horizon
            if position >= MOMENT:
                return order, {q for q in range(position, len(order)) if q < held_until[order[q] // ROWS]}, group
    raise AssertionError("no row group is decoded after the moment")


def draw() -> str:
    order, held, decoded = play()
    start = min(held)
    place = {row: position for position, row in enumerate(order)}
    parts: list[str] = []

    parts.append(text(LEFT, 34, "1. Parquet row groups, on disk or in an object store", weight="bold"))
    width = 144
    for group in range(GROUPS):
        left = LEFT + group * width
        frame = (INK, 2.4) if group == decoded else (PALE, 1.2)
        parts.append(
            f'<rect x="{left}" y="48" width="132" height="42" rx="5" fill="#ffffff" '
            f'stroke="{frame[0]}" stroke-width="{frame[1]}"/>'
        )
        for i in range(ROWS):
            position = place[group * ROWS + i]
            state = "served" if position < start else "held" if position in held else "later"
            parts.append(square(left + 7 + (i % 8) * 15, 54 + (i // 8) * 16, 12, COLOURS[group], state))
    centre = LEFT + decoded * width + 66
    parts.append(arrow(centre, 94, centre, 148))
    side, anchor = (12, "start") if centre < 440 else (-12, "end")
    parts.append(
        text(centre + side, 112, "A row of this row group is due and not held: decode it once,", anchor=anchor)
    )
    parts.append(
        text(centre + side, 130, "keep its rows that are due within the horizon, drop the others.", anchor=anchor)
    )

    parts.append(
        text(LEFT, 172, "2. Memory: the rows that are due soon, whatever row group they come from", weight="bold")
    )
    parts.append(
        f'<rect x="{LEFT}" y="184" width="600" height="34" rx="5" fill="#f6f8fa" stroke="{PALE}" stroke-width="1.2"/>'
    )
    for i, position in enumerate(sorted(held)):
        parts.append(square(LEFT + 12 + i * 17, 194, 14, COLOURS[order[position] // ROWS], "held"))
    parts.append(arrow(LEFT + 12 + BATCH * 8.5, 222, LEFT + 12 + BATCH * 8.5, 250))
    parts.append(
        text(
            LEFT + 24 + BATCH * 8.5,
            241,
            "The next batch takes its rows from memory, in the exact order of the shuffle.",
        )
    )

    parts.append(
        text(LEFT, 272, "3. The order of the epoch: a permutation of all rows, known in advance", weight="bold")
    )
    step = 852 / len(order)
    for position, row in enumerate(order):
        state = "served" if position < start else "held" if position in held else "later"
        parts.append(square(LEFT + position * step, 286, step - 1.8, COLOURS[row // ROWS], state))
    now, end = LEFT + start * step, LEFT + (start + HORIZON) * step
    parts.append(text((LEFT + now) / 2, 316, "served already", anchor="middle"))
    parts.append(bracket(now, now + BATCH * step - 2, 300, 6))
    parts.append(text(now + BATCH * step / 2, 321, "next batch", anchor="middle"))
    parts.append(bracket(now, end, 328, 6))
    parts.append(
        text((now + end) / 2, 349, "horizon: how far ahead the rows of a decoded row group are kept", anchor="middle")
    )
    parts.append(text((end + LEFT + 852) / 2, 316, "later", anchor="middle"))

    return picture("How rowdex shuffles all rows within a fixed memory", 364, parts)
