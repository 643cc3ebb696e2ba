"""Writes docs/notebooks/*.ipynb from the programs beside them, which jupytext calls the percent format.

    python -m tools.notebooks           writes them anew
    python -m tools.notebooks --check   fails if one is not what would be written

A program is what people edit and what the tests run. jupytext opens it as a notebook, too, and keeps the two in step.
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Any

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs/notebooks"
CELL = re.compile(r"^# %%( \[markdown\])?$", re.MULTILINE)


def cells(program: str) -> list[tuple[str, str]]:
    """The cells of a program, in order: ``"code"`` or ``"markdown"``, and the text."""
    _, *parts = CELL.split(program)
    found = []
    for mark, text in zip(parts[::2], parts[1::2]):
        text = text.strip("\n")
        if mark:
            text = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
        found.append(("markdown" if mark else "code", text))
    return found


def notebook(program: str) -> str:
    """The notebook, without outputs."""
    found: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(program)):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}}
        if kind == "code":
            cell = {**cell, "execution_count": None, "outputs": []}
        found.append({**cell, "source": text.splitlines(keepends=True)})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"jupytext": {"formats": "ipynb,py:percent"}, "kernelspec": kernel}
    whole = {"cells": found, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def page(name: str, program: str) -> str:
    """The notebook as a page of Markdown, with a link to the notebook itself."""
    (_, first), *rest = cells(program)
    title, _, said = first.partition("\n")
    link = f"[Download it as a notebook]({name}.ipynb), or [as a program]({name}.py)."
    parts = [title, link, said.strip("\n")]
    parts += [f"```python\n{text}\n```" if kind == "code" else text for kind, text in rest]
    return "\n\n".join(parts) + "\n"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    made = {path.with_suffix(".ipynb"): notebook(path.read_text()) for path in sorted(FOLDER.glob("*.py"))}
    if not arguments:
        for path, text in made.items():
            path.write_text(text)
        return 0
    wrong = [str(path) for path, text in made.items() if not path.is_file() or path.read_text() != text]
    wrong += [str(path) for path in FOLDER.glob("*.ipynb") if path not in made]
    if wrong:
        print("not what python3 -m tools.notebooks writes:", *wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
