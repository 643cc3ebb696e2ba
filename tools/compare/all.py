#!/usr/bin/env python3
"""Measures data loaders beside each other, and makes one page of it and a file of JSON.

    python tools/compare/all.py DATA [--tables TABLE ...] [--peers PEER ...] [--sets SET ...] [--page FILE.md]
    python tools/compare/all.py cell TABLE PEER [DATA/SET]     prints one cell as JSON
    python tools/compare/all.py page [--check] [FILE.md]       writes the page from its JSON, or compares them

DATA holds the sets of tools/compare/shapes.py that the table `shuffle` needs; those that are missing are made there.
The JSON lies beside the page, under the same name; without `--page` both are those of docs/benchmarks.md. Cells that
are measured take the place of those in it, all others stay, so a page can be filled in parts. A peer that is not
installed, or fails, is told so in its place. Peers and tables are those of tools/compare/benchmarks.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys

from benchmarks import page, tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"


def measure(data: pathlib.Path, peers: list[str], wanted: list[str], sets: list[str], to: pathlib.Path) -> None:
    """Each cell by the command that the page names."""
    if "shuffle" in wanted:
        subprocess.run([sys.executable, ROOT / "tools/compare/shapes.py", data, *sets], check=True)
    for table in wanted:
        for name in tables.NAMES[table]:
            if name not in peers:
                continue
            for place in [[str(data / one)] for one in sets] if table == "shuffle" else [[]]:
                command = [sys.executable, __file__, "cell", table, name, *place]
                done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
                found = json.loads(done.stdout.strip().splitlines()[-1])
                page.keep(to.with_suffix(".json"), found)
                print(json.dumps(found), flush=True)
    page.write(to)


def main() -> None:
    match sys.argv[1:]:
        case ["rank", task, name, job]:
            # Imports what ranks need, and no more.
            from benchmarks import rank

            rank.main(task, name, job)
        case ["prepare", name, job]:
            tables.prepare(name, job)
        case ["cell", table, name, *data]:
            print(json.dumps(tables.cell(table, name, *map(pathlib.Path, data))), flush=True)
        case ["page", *options]:
            given = [pathlib.Path(option) for option in options if option != "--check"]
            page.write(given[0] if given else PAGE, check="--check" in options)
        case _:
            parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
            parser.add_argument("data", type=pathlib.Path)
            every = sorted({name for names in tables.NAMES.values() for name in names})
            known = {"--peers": every, "--tables": list(tables.TABLES), "--sets": list(tables.SETS)}
            for option, choices in known.items():
                parser.add_argument(option, nargs="+", choices=choices, default=choices)
            parser.add_argument("--page", type=pathlib.Path, default=PAGE)
            given = parser.parse_args()
            measure(given.data.resolve(), given.peers, given.tables, given.sets, given.page)


if __name__ == "__main__":
    main()
