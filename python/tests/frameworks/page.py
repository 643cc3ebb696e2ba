"""The scripts of pages, which are run as they are shown."""

from __future__ import annotations

import re

from ..conftest import REPOSITORY

MOST_LINES = 25


def script(page: str, section: str | None = None, number: int = 0) -> str:
    """A Python program of a page, or below one of its headings: the first one, or of another number from 0."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    if section is not None:
        parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
        text = dict(zip(parts[1::2], parts[2::2]))[section]
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert number < len(found), f"no program {number} in {page}, {section}"
    assert len(found[number].splitlines()) <= MOST_LINES
    return str(found[number])
