"""Makes a page of the cells: a table for each kind, between marks, so that what people write around them stays."""

from __future__ import annotations

import datetime
import json
import os
import pathlib
import platform
import sys
import textwrap
from collections.abc import Callable


from performance import once, placed, short, table

from .registry import TABLES, Told

ROWS = ["shuffle", "ranks", "resume", "mixtures", "packs"]
TITLES = {
    "shuffle": "A global shuffle", "ranks": "Rows and steps of ranks", "resume": "Killed and resumed",
    "mixtures": "Mixtures",
    "packs": "Packs of tokens",
}  # fmt: skip


SETS = ["tab", "tok", "text", "hub_images"]
"""In the order of the page."""


def key(cell: Told) -> tuple[str, str, str, int]:
    return cell["table"], cell.get("set", ""), cell["peer"], cell.get("accelerators", 0)


def machine() -> str:
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{os.cpu_count()} cores ({model}), {gib:.0f} GiB, Python {platform.python_version()}"


def keep(file: pathlib.Path, cell: Told) -> None:
    """Puts a cell in the place of the one that was measured before."""
    there: Told = json.loads(file.read_text()) if file.exists() else {"cells": []}
    cell = {**cell, "machine": machine()}
    there["cells"] = [one for one in there["cells"] if key(one) != key(cell)] + [cell]
    file.write_text(json.dumps(there, indent=1) + "\n")


def mark(name: str) -> str:
    return f"<!-- tools/compare/all.py page: {name} -->\n"


def write(page: pathlib.Path, check: bool = False) -> None:
    """Writes the tables of a page, or fails if they are others than its JSON says."""
    found = json.loads(page.with_suffix(".json").read_text())
    text = page.read_text() if page.exists() else f"# Benchmarks\n\n{mark('machine')}<!-- end -->\n"
    # What is measured and has no place yet gets one.
    new = [name for name in ROWS if of(found, name) and mark(name) not in text]
    if new:
        page.write_text(text + "".join(f"\n## {TITLES[name]}\n\n{mark(name)}<!-- end -->\n" for name in new))
    lines = {"machine": where(found)}
    described: set[str] = set()
    for name in ROWS:
        lines[name] = lines_of(name, of(found, name), described)
    for name, due in lines.items():
        if mark(name) not in page.read_text():
            continue
        there, new = placed(page, mark(name), due)
        if there != new and check:
            sys.exit(f"{page.name} has other figures than its JSON: run tools/compare/all.py page")
        page.write_text(new)


def of(found: Told, name: str) -> list[Told]:
    """The cells of a table, in the order of the peers in the registry."""
    cells, order = [cell for cell in found["cells"] if cell["table"] == name], TABLES.get(name, [])
    cells.sort(key=lambda cell: order.index(cell["peer"]) if cell["peer"] in order else len(order))
    return sorted(cells, key=lambda cell: SETS.index(cell["set"]) if "set" in cell else 0)


def where(found: Told) -> list[str]:
    days = sorted({datetime.date.fromtimestamp(cell["began"]).isoformat() for cell in found["cells"]})
    loads = [cell["load"] for cell in found["cells"]]
    versions: dict[str, set[str]] = {}
    for cell in found["cells"]:
        for name, version in cell.get("versions", {}).items():
            versions.setdefault(name, set()).add(version)
    listed = ", ".join(f"{name} {' and '.join(sorted(each))}" for name, each in sorted(versions.items()))
    dates = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    machines = sorted({cell["machine"] for cell in found["cells"]})
    return [
        *textwrap.wrap(f"Measured on {dates}, {'; '.join(machines)}.", 118),
        f"Others worked on the machine: its load was {min(loads)} to {max(loads)}.",
        *textwrap.wrap(f"Versions: {listed}.", 118),
    ]


def lines_of(name: str, cells: list[Told], described: set[str]) -> list[str]:
    """A table, and how each peer was used that no table before describes."""
    if not cells:
        return []
    head, row, note = LAYOUTS[name]
    rows = [row(cell) if "error" not in cell else failed(cell, len(head)) for cell in cells]
    lines = [*table(head, once(rows) if head[0] == "set" else rows), ""]
    if note:
        manuals = {cell["peer"]: cell["manual"] for cell in cells if "manual" in cell}
        lines += [f"- `{peer}`: {manual}" for peer, manual in manuals.items() if peer not in described] + [""]
        described |= set(manuals)
    return lines[:-1]


def failed(cell: Told, columns: int) -> list[str]:
    names = [f"`{cell[name]}`" for name in ("set", "peer") if name in cell]
    return [*names, plain(cell["error"]), *[""] * (columns - len(names) - 1)]


def plain(text: str) -> str:
    """An error in one cell."""
    return "failed: " + text.replace("|", "/").replace("<", "‹")[:90]


def digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def mega(size: float) -> str:
    return "0" if size == 0 else "< 1" if size < 1e6 else f"{size / 1e6:,.0f}"


def shuffled(cell: Told) -> list[str]:
    return [
        f"`{cell['set']}`", f"`{cell['peer']}`", short(cell["rate"]), digits(cell["cpu"]), mega(cell["resident"]),
        mega(cell["disk"]), mega(cell["converted"]), f"{cell['prepare_cpu']:.1f}", f"{cell['first']:.2f}",
    ]  # fmt: skip


def ranked(cell: Told) -> list[str]:
    steps = " and ".join(map(str, cell["steps"]))
    even = steps if len(set(cell["steps"])) == 1 else f"**{steps}**"
    return [f"`{cell['peer']}`", even, f"{cell['served']:,}", str(cell["again"]), str(cell["never"])]


def refused(each: Told) -> str:
    return f"error: `{each['refused'].split(':')[0]}`"


def mixed(cell: Told) -> list[str]:
    def told(each: Told) -> str:
        return refused(each) if "refused" in each else f"**{each['other']:,} others**" if each["other"] else "the same"

    least, most = cell["times"]
    times = f"{least}" if least == most else f"**{least} to {most}**"
    shares = [f"{cell['share']:.2%}", f"{100 * cell['off']:.1f}", times, f"{cell['again']:,}"]
    changed = cell["changed"]
    again = f", **{changed['again']:,} rows again**" if changed.get("again") else ""
    after = refused(changed) if "refused" in changed else f"{changed['share']:.1%}{again}"
    return [f"`{cell['peer']}`", *shares, *map(told, cell["after"]), after]


def resumed(cell: Told) -> list[str]:
    def told(each: Told) -> str:
        if "refused" in each:
            return refused(each)
        if not each["again"] and not each["never"]:
            return f"exact, {each['first']:.2f} s"
        first = f"{each['first']:.2f} s" if each["first"] else "no batch"
        return f"**{each['again']:,} again, {each['never']:,} never**, {first}"

    return [f"`{cell['peer']}`", str(cell["step"]), *map(told, cell["after"])]


def packed(cell: Told) -> list[str]:
    least, most = cell["steps"]
    steps = f"{least}" if least == most else f"**{least} to {most}**"
    shares = [f"{cell['lost']:.3%}", f"{cell['again']:.3%}", f"{cell['fill']:.2%}"]
    return [f"`{cell['peer']}`", steps, *shares, cell["resume"], f"{cell['seconds']:.2f}"]


Row = Callable[[Told], list[str]]
LAYOUTS: dict[str, tuple[list[str], Row, bool]] = {
    "shuffle": (
        ["set", "peer", "rows/s", "CPU s a million rows", "resident MB", "disk MB", "MB converted", "CPU s to prepare",
         "s until the first batch"], shuffled, True,
    ),
    "ranks": (["peer", "steps of the ranks", "rows served", "served again", "never served"], ranked, True),
    "resume": (
        ["peer", "killed after step", "2 ranks of 64 rows", "1 of 128", "4 of 32", "1 of 64", "4 of 64"], resumed,
        False,
    ),
    "mixtures": (
        ["peer", "share of the small source", "farthest from 30 % in 1,000 rows, %", "times each of its rows came",
         "rows of the large one again", "killed: 2 ranks of 64 rows", "1 of 128", "4 of 32", "with 70 %"], mixed, True,
    ),
    "packs": (
        ["peer", "steps of a rank", "tokens never served", "served again", "fill", "resumed by five ranks",
         "CPU s a million tokens"], packed, False,
    ),
}  # fmt: skip
"""The head of each table, its lines, and whether it says what the manuals say."""
