"""Prints what CHANGELOG.md says of a release, if the release may be made: python3 tools/release.py vVERSION [ROOT]

The tag has the version of Cargo.toml, and the section of that version is the first one, has a date, and says something.
"""

from __future__ import annotations

import pathlib
import re
import sys


def notes(tag: str, root: pathlib.Path) -> str:
    """The section of the release; a ``ValueError`` says what does not fit."""
    package = (root / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.+)"$', package, re.MULTILINE)
    version = found[1] if found else ""
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, and Cargo.toml has the version {version!r}")
    _, *sections = re.split(r"^## ", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    head, _, text = (sections[0] if sections else "").partition("\n")
    if not re.fullmatch(rf"{re.escape(version)} \(\d{{4}}-\d{{2}}-\d{{2}}\)", head):
        raise ValueError(f"the first section of CHANGELOG.md is {head!r}, and not '{version} (YEAR-MONTH-DAY)'")
    if not text.strip():
        raise ValueError(f"CHANGELOG.md says nothing of {version}")
    return text.strip() + "\n"


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        print(__doc__, file=sys.stderr)
        return 2
    root = pathlib.Path(arguments[1]) if arguments[1:] else pathlib.Path(__file__).resolve().parents[1]
    try:
        print(notes(arguments[0], root), end="")
    except ValueError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
