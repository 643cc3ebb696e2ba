"""What an index answers: a row id is a file, a row group, and a row within it."""

from __future__ import annotations

import bisect
import itertools

from .draw import COLOURS, INK, LEFT, PALE, SHADE, arrow, box, picture, square, text

FILES = [("part-0.parquet", [8, 8]), ("part-1.parquet", [8, 5]), ("part-2.parquet", [8, 8, 3])]
ASKED = 26


def draw() -> str:
    groups = [(file, number, rows) for file, (_, sizes) in enumerate(FILES) for number, rows in enumerate(sizes)]
    first = [0, *itertools.accumulate(rows for _, _, rows in groups)]
    found = bisect.bisect_right(first, ASKED) - 1
    file, number, _ = groups[found]
    row = ASKED - first[found]
    parts = [text(LEFT, 34, "1. The Parquet files stay as they are", weight="bold")]
    left = LEFT
    for at, (name, sizes) in enumerate(FILES):
        width = sum(sizes) * 15 + 14 * len(sizes) + 6
        parts += [box(left, 48, width, 66), text(left + 10, 66, name)]
        x = left + 10
        for group, (owner, index, rows) in enumerate(groups):
            if owner != at:
                continue
            chosen = group == found
            parts.append(box(x, 76, rows * 15 + 5, 26, INK if chosen else PALE, 2 if chosen else 1.2, SHADE))
            for i in range(rows):
                state = "held" if chosen and i == row else "later"
                parts.append(square(x + 4 + i * 15, 83, 12, COLOURS[group % len(COLOURS)], state))
            x += rows * 15 + 14
        left += width + 8
    parts.append(text(LEFT, 152, "2. The index has the first row id of each row group", weight="bold"))
    for group, (owner, index, rows) in enumerate(groups):
        x, chosen = LEFT + group * 122, group == found
        parts.append(box(x, 166, 114, 52, INK if chosen else PALE, 2.4 if chosen else 1.2))
        parts.append(text(x + 10, 186, f"{first[group]} to {first[group + 1] - 1}", weight="bold"))
        parts.append(text(x + 10, 206, f"file {owner}, group {index}"))
    centre = LEFT + found * 122 + 57
    parts.append(arrow(centre, 252, centre, 224))
    told = f"dataset[{ASKED}]: file {file}, row group {number}, row {row} of it"
    parts.append(text(centre, 270, told, anchor="middle", weight="bold"))
    parts.append(text(LEFT, 300, "A row group takes 28 bytes, however many rows it has. No value is in the index."))
    return picture("How an index finds a row", 318, parts)
