"""Four loaders with a tenth of the data each, and one reader with four tenths."""

from __future__ import annotations

from .draw import COLOURS, LEFT, PALE, SHADE, arrow, bar, box, picture, text

RANKS, MEMORY = 4, 0.1


def draw() -> str:
    alone = 1 / RANKS / (2 * MEMORY)
    parts: list[str] = []
    heads = ["Each rank has a loader", 'share="machine": one reader for all ranks']
    for side in range(2):
        left = LEFT + side * 440
        parts.append(text(left, 34, heads[side], weight="bold"))
        parts.append(box(left, 48, 412, 36, fill=SHADE))
        for group in range(12):
            parts.append(bar(left + 8 + group * 33.4, 56, 28, 20, COLOURS[group % len(COLOURS)], "later"))
        for rank in range(RANKS):
            x = left + rank * 106
            parts.append(box(x, 232, 94, 34))
            parts.append(text(x + 47, 254, f"rank {rank}", anchor="middle"))
            if side == 0:
                parts.append(arrow(x + 47, 88, x + 47, 128))
                parts.append(box(x, 134, 94, 44, COLOURS[0], 1.6))
                parts.append(text(x + 47, 153, f"holds {MEMORY:.0%}".replace("%", " %"), 12, "middle"))
                parts.append(text(x + 47, 170, f"{alone:g} passes", 12, "middle"))
                parts.append(arrow(x + 47, 182, x + 47, 226))
            else:
                parts.append(arrow(x + 47, 182, x + 47, 226))
        if side == 1:
            parts.append(arrow(left + 206, 88, left + 206, 128))
            parts.append(box(left, 134, 412, 44, COLOURS[0], 1.6))
            words = f"holds {MEMORY * RANKS:.0%} of the rows".replace("%", " %")
            parts.append(text(left + 206, 153, words, 12, "middle"))
            passes = 1 / (2 * MEMORY * RANKS)
            parts.append(text(left + 206, 170, f"{passes:g} passes", 12, "middle"))
        whole = alone * RANKS if side == 0 else 1 / (2 * MEMORY * RANKS)
        parts.append(text(left, 296, f"Each row group is decoded {whole:g} times an epoch.", weight="bold"))
    parts.append(f'<path d="M444 24 V300" stroke="{PALE}" stroke-width="1.2"/>')
    words = "The memory of the machine, and the batches of each rank, are the same on both sides."
    parts.append(text(LEFT, 322, words))
    return picture("Loaders of their own, and one reader for the ranks of a machine", 338, parts)
