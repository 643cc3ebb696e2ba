"""The programs of pages, which are run as they are shown, and which test runs them. No framework is needed."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

from ..conftest import REPOSITORY

MOST_LINES = 25
DOCS = REPOSITORY / "docs"
SKILL = REPOSITORY / "python/rowdex/skill"
BLOCK = re.compile(r"^ *```(python|sh)\b[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
FRAGMENT = "# fragment"
"""A program that is not run begins so."""
PAGES = [
    "../python/README.md", "coming-from/index.md", "comparison.md", "concepts/index-file.md", "concepts/shard.md",
    "concepts/share.md", "digests.md", "disk-cache.md", "first-training.md", "remote.md", "rewriting.md", "select.md",
    "share.md",
]  # fmt: skip
HOW_TO = "resume mix side-by-side function text finetune images tables cells s3 validate budget".split()
PAGES += [f"how-to/{name}.md" for name in HOW_TO]
PAGES += [f"../python/rowdex/skill/{path.name}" for path in sorted(SKILL.glob("*.md"))]
"""``test_pages.py`` runs all programs and commands of these."""
COMING_FROM = {
    "datasets": 4, "distributed-sampler": 2, "grain": 2, "lancedb": 4, "litdata": 4, "mosaicml-streaming": 4,
    "petastorm": 1, "ray": 2, "webdataset": 4,
}  # fmt: skip


class Elsewhere(NamedTuple):
    """Other tests run these programs of a page."""

    tests: str
    programs: int


ELSEWHERE = {
    "../README.md": Elsewhere("test_package.py", 1),
    "python.md": Elsewhere("test_torch.py", 5),
    "sequences.md": Elsewhere("frameworks/test_recipes.py", 10),
    "frameworks/pytorch.md": Elsewhere("frameworks/test_torchdata.py", 1),
    "frameworks/recipes.md": Elsewhere("frameworks/test_frames.py", 1),
    **{
        f"frameworks/{name}.md": Elsewhere(f"frameworks/test_{name}.py", 1)
        for name in ("accelerate", "dali", "grain", "jax", "lightning", "ray", "transformers")
    },
    **{
        f"coming-from/{name}.md": Elsewhere("frameworks/test_coming_from.py", programs)
        for name, programs in COMING_FROM.items()
    },
}


def all_pages() -> list[pathlib.Path]:
    pages = [REPOSITORY / "README.md", REPOSITORY / "python/README.md"]
    return [*pages, *sorted(DOCS.rglob("*.md")), *sorted(SKILL.glob("*.md"))]


def blocks_of(page: str | pathlib.Path) -> list[tuple[str, str]]:
    """The language and the text of each program, and of each block of commands, of a page in ``docs``."""
    return BLOCK.findall((DOCS / page).read_text())


def programs_of(page: str | pathlib.Path) -> list[str]:
    """The programs of a page that are whole."""
    return [block for kind, block in blocks_of(page) if kind == "python" and not block.startswith(FRAGMENT)]


def commands(block: str) -> list[str]:
    """The commands of a block, each as one line."""
    return [line for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def script(page: str, section: str | None = None, number: int = 0) -> str:
    """A Python program of a page, or below one of its headings: the first one, or of another number from 0."""
    text = (DOCS / f"{page}.md").read_text()
    if section is not None:
        parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
        text = dict(zip(parts[1::2], parts[2::2]))[section]
    found = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert number < len(found), f"no program {number} in {page}, {section}"
    assert len(found[number].splitlines()) <= MOST_LINES
    return str(found[number])
