"""Draws the pictures of the documentation, docs/pictures/*.svg.

    python3 -m tools.pictures           writes them
    python3 -m tools.pictures --check   fails if they are not what this package draws
"""

from __future__ import annotations

import pathlib
import sys

from . import index_file, order, packs, result, shard, share, shuffle

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs/pictures"
PICTURES = {
    "index.svg": index_file.draw,
    "order.svg": order.draw,
    "packs.svg": packs.draw,
    "result.svg": result.draw,
    "shard.svg": shard.draw,
    "share.svg": share.draw,
    "shuffle.svg": shuffle.draw,
}


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    drawn = {FOLDER / name: draw() for name, draw in PICTURES.items()}
    if not sys.argv[1:]:
        for path, picture in drawn.items():
            path.write_text(picture)
        return 0
    there = {path: path.read_text() for path in FOLDER.glob("*.svg")}
    wrong = sorted(path.name for path in {*drawn, *there} if drawn.get(path) != there.get(path))
    if wrong:
        told = f"{', '.join(wrong)}: not what tools/pictures draws: run python3 -m tools.pictures and commit the result"
        print(told, file=sys.stderr)
    return bool(wrong)


sys.exit(main())
