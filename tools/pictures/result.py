"""What loaders served and how fast: the tables `ranks` and `shuffle` of docs/benchmarks.json, as one picture."""

from __future__ import annotations

import json
import pathlib
from typing import Any

from ..compare.benchmarks.registry import TABLES
from ..compare.performance import short
from .draw import COLOURS, INK, LEFT, PALE, picture, text

FIGURES = pathlib.Path(__file__).resolve().parents[2] / "docs/benchmarks.json"
NAMES = {
    "hf-mapped": "datasets, mapped",
    "hf-streaming": "datasets, stream",
    "lancedb": "LanceDB",
    "litdata": "LitData, chunks",
    "litdata-whole": "LitData, drop_last off",
    "litdata-parquet": "LitData, Parquet",
    "mosaicml": "MosaicML Streaming",
    "grain": "Grain",
    "grain-even": "Grain, drop_remainder",
    "row-groups": "row groups in turn",
}
OURS_NAMES = {"rowdex-blocks": "blocks(8), 10 %"}
SETS = {"tab": "table", "tok": "tokens", "text": "text", "hub_images": "images"}
SIZE, HEIGHT, TOP = 15, 24, 76
"""Of letters, which are to be read at 700 pixels; of a line; and where the lines begin."""
STEPS, LOST, AGAIN, RATES, COLUMN, BAR = 206, 436, 512, 536, 86, 78
OURS, OTHERS, FASTER, WRONG = "#b9c8f0", PALE, "#f6c79c", COLOURS[3]


def cells() -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    """The cells of ranks by peer, and those of shuffles by peer and set."""
    found = json.loads(FIGURES.read_text())["cells"]
    ranks = {cell["peer"]: cell for cell in found if cell["table"] == "ranks"}
    rates = {(cell["peer"], cell["set"]): cell for cell in found if cell["table"] == "shuffle"}
    return ranks, rates


def block(x: float, y: float, width: float, height: float, fill: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}" rx="2" fill="{fill}"/>'


def of_ranks(cell: Any, y: float, most: int) -> list[str]:
    """A bar for the steps of each rank, and the rows that were lost and repeated."""
    if "error" in cell:
        return [text(STEPS, y + 17, f"failed: {cell['error'].split(':')[0]}", SIZE)]
    steps = cell["steps"]
    unequal = len(set(steps)) > 1
    parts = []
    for rank, count in enumerate(steps):
        height = (HEIGHT - 6) / len(steps)
        fill = WRONG if unequal else "#8b949e"
        parts.append(block(STEPS, y + 3 + rank * height, count / most * 84, height - 1, fill))
    fill, weight = (WRONG, "bold") if unequal else (INK, "normal")
    parts.append(text(STEPS + 92, y + 17, ", ".join(map(str, steps)), SIZE, fill=fill, weight=weight))
    for x, rows in ((LOST, cell["never"]), (AGAIN, cell["again"])):
        parts.append(text(x, y + 17, f"{rows:,}", SIZE, "end", "bold" if rows else "normal"))
    return parts


def draw() -> str:
    ranks, rates = cells()
    ours = [peer for peer in TABLES["shuffle"] if peer.startswith("rowdex-")]
    # Who has both comes first, so that one corner is left for what the colours mean.
    measured = [peer for peer in TABLES["ranks"] if (peer, next(iter(SETS))) in rates]
    lines = ["rowdex", *ours, *measured, *(peer for peer in TABLES["ranks"] if peer not in ("rowdex", *measured))]
    most = max(count for cell in ranks.values() for count in cell.get("steps", [0]))
    fastest = {name: max(cell["rate"] for (_, one), cell in rates.items() if one == name) for name in SETS}
    slowest = {name: min(rates[peer, name]["rate"] for peer in ours) for name in SETS}

    parts = [text(STEPS, 30, "In an epoch, on two ranks", SIZE, weight="bold")]
    parts.append(text(RATES, 30, "Rows/s of a shuffle, on two ranks", SIZE, weight="bold"))
    parts.append(text(STEPS, 56, "steps of each rank", SIZE))
    parts.append(text(LOST, 56, "rows lost", SIZE, "end"))
    parts.append(text(AGAIN, 56, "repeated", SIZE, "end"))
    for at, name in enumerate(SETS.values()):
        parts.append(text(RATES + at * COLUMN, 56, name, SIZE))
    parts.append(f'<path d="M{LEFT} 66 H876" stroke="{PALE}" stroke-width="1.2"/>')

    for line, peer in enumerate(lines):
        y = TOP + line * HEIGHT
        mine = peer.startswith("rowdex")
        converts = any(cell.get("converts") for cell in (ranks.get(peer, {}), rates.get((peer, "tab"), {})))
        name = NAMES.get(peer, peer) + (" *" if converts else "")
        if peer in ours:
            name = OURS_NAMES.get(peer, f"memory for {peer.split('-')[1]} %")
        parts.append(text(LEFT + 16 * (peer in ours), y + 17, name, SIZE, weight="bold" if mine else "normal"))
        if peer in ranks:
            parts += of_ranks(ranks[peer], y, most)
        for at, one in enumerate(SETS):
            if (peer, one) not in rates:
                continue
            rate = rates[peer, one]["rate"]
            fill = OURS if mine else FASTER if rate > slowest[one] else OTHERS
            parts.append(block(RATES + at * COLUMN, y + 2, max(rate / fastest[one] * BAR, 1), HEIGHT - 4, fill))
            parts.append(text(RATES + at * COLUMN + 4, y + 17, short(rate), SIZE))

    below = TOP + (1 + len(ours) + len(measured)) * HEIGHT + 6
    for at, (fill, words) in enumerate(((OURS, "rowdex"), (FASTER, "faster than rowdex with the least memory"))):
        parts.append(block(RATES, below + at * HEIGHT + 3, 16, 16, fill))
        parts.append(text(RATES + 24, below + at * HEIGHT + 17, words, SIZE))
    parts.append(block(RATES, below + 2 * HEIGHT + 3, 16, 16, WRONG))
    parts.append(text(RATES + 24, below + 2 * HEIGHT + 17, "unequal steps: a job hangs", SIZE))
    parts.append(text(RATES, below + 3 * HEIGHT + 17, "* reads a copy in another format", SIZE))

    rows = ranks["rowdex"]["served"] - ranks["rowdex"]["again"] + ranks["rowdex"]["never"]
    cores = rates[ours[0], "tab"]["machine"].split(" (")[0]
    end = TOP + len(lines) * HEIGHT + 28
    notes = [
        f"Left: {rows:,} rows. Right: each rank is a process without workers, on {cores} in all, one run each.",
        "rowdex has one more process with two threads, which reads for both ranks; its memory is a share of the",
        "decoded data. The others read in the processes of the ranks, and not all of them shuffle all rows.",
    ]
    parts += [text(LEFT, end + at * 22, words, SIZE) for at, words in enumerate(notes)]
    return picture("Steps, rows and rates of rowdex and of other loaders", int(end + len(notes) * 22 - 4), parts)
