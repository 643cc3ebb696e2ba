"""How positions become batches of ranks: assigned in turn, so that all ranks have the same number."""

from __future__ import annotations

import random

from .draw import COLOURS, INK, LEFT, arrow, box, picture, square, text

RANKS, BATCH, ROWS = 3, 4, 22


def draw() -> str:
    each = -(-ROWS // RANKS)
    order = list(range(ROWS))
    random.Random(3).shuffle(order)
    step = 852 / (each * RANKS)
    parts = [text(LEFT, 34, "1. The order of the epoch, whole: shuffle first", weight="bold")]
    for position in range(each * RANKS):
        x, pad = LEFT + position * step, position >= ROWS
        row = order[position % ROWS]
        parts.append(square(x, 48, step - 6, COLOURS[position % RANKS], "later" if pad else "held"))
        parts.append(text(x + step / 2 - 3, 70, str(row), 12, "middle", fill=INK if pad else "#ffffff"))
        parts.append(text(x + step / 2 - 3, 96, str(position % RANKS), 12, "middle"))
    parts.append(text(LEFT, 118, "the rank of each position: the position modulo the number of ranks. Then partition."))
    parts.append(arrow(LEFT + 426, 126, LEFT + 426, 152))
    said = f"2. {RANKS} ranks, batches of {BATCH}: the same number of steps for each"
    parts.append(text(LEFT, 172, said, weight="bold"))
    for rank in range(RANKS):
        y = 186 + rank * 46
        parts.append(text(LEFT, y + 24, f"rank {rank}", weight="bold"))
        for place in range(each):
            at, position = divmod(place, BATCH), place * RANKS + rank
            x = LEFT + 80 + at[0] * 190 + at[1] * 42
            if at[1] == 0:
                parts.append(box(x - 6, y, BATCH * 42 + 4, 40))
            pad = position >= ROWS
            parts.append(square(x, y + 3, 34, COLOURS[rank], "later" if pad else "held"))
            ink = INK if pad else "#ffffff"
            parts.append(text(x + 17, y + 25, str(order[position % ROWS]), 12, "middle", fill=ink))
    for at in range(-(-each // BATCH)):
        parts.append(text(LEFT + 80 + at * 190 + BATCH * 21, 342, f"step {at}", anchor="middle"))
    x = LEFT + 500
    parts.append(square(x, 200, 16, COLOURS[1], "later"))
    parts.append(text(x + 26, 213, "a pad: a row that is served once more, and"))
    parts.append(text(x + 26, 231, f"marked. {ROWS} rows do not divide by {RANKS}, so there are"))
    parts.append(text(x + 26, 249, f"{each * RANKS - ROWS}; tail says what to do about that."))
    parts.append(text(x, 289, "Nobody sends a message: each rank computes"))
    parts.append(text(x, 307, "what it has, and what the others have."))
    return picture("How the positions of an epoch become equal shards", 358, parts)
