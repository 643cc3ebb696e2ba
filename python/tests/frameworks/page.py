"""The scripts of docs/frameworks.md, which are run as they are shown."""

from __future__ import annotations

import re

from ..conftest import REPOSITORY

MOST_LINES = 25


def script(section: str) -> str:
    """The first Python program below a heading of the page."""
    text = (REPOSITORY / "docs/frameworks.md").read_text()
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    sections = dict(zip(parts[1::2], parts[2::2]))
    found = re.search(r"```python\n(.*?)```", sections[section], re.DOTALL)
    assert found is not None, f"no program below {section!r}"
    assert len(found[1].splitlines()) <= MOST_LINES
    return found[1]
