"""The scripts of the pages about frameworks, which are run as they are shown."""

from __future__ import annotations

import re

from ..conftest import REPOSITORY

MOST_LINES = 25


def script(section: str, page: str = "frameworks", number: int = 0) -> str:
    """A Python program below a heading of a page: the first one, or of another number from 0."""
    text = (REPOSITORY / f"docs/{page}.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    found = re.findall(r"```python\n(.*?)```", sections[section], re.DOTALL)
    assert number < len(found), f"no program below {section!r}"
    assert len(found[number].splitlines()) <= MOST_LINES
    return str(found[number])
