"""Writes llms.txt at the root of the site (https://llmstxt.org): its pages, each with its first sentence, for programs
that read."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator
from typing import Any

# What begins no sentence about a page: headings, tables, pictures, lists, quotes, HTML, code, what mkdocstrings fills
# in, and where a notebook is to be had.
OTHER = re.compile(r"[#|!<>:=-]|```|\s|\d+\. |\[?Download ")
LINK = re.compile(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])")
END = re.compile(r"(?<=[.!?])\s|:$")
MOST = 300
SKILL = "The Python package contains short pages on how to write programs with it: `rowdex/skill/SKILL.md`."
pages: list[tuple[list[str], Any]] = []


def on_nav(nav: Any, **_: Any) -> None:
    """Keeps the pages in their order, each with the sections that it is in."""
    pages[:] = walk(nav.items, [])


def walk(items: list[Any], sections: list[str]) -> Iterator[tuple[list[str], Any]]:
    for item in items:
        if item.is_page:
            yield sections, item
        elif item.is_section:
            yield from walk(item.children, [*sections, item.title])


def on_post_build(config: Any) -> None:
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", SKILL]
    section = ""
    for sections, page in pages:
        if sections[0] != section:
            section = sections[0]
            lines += ["", f"## {section}", ""]
        title = ": ".join([*sections[1:], page.title])
        said = first_sentence(page.markdown or "")
        lines.append(f"- [{title}]({page.url})" + (f": {said}" if said else ""))
    pathlib.Path(config.site_dir, "llms.txt").write_text("\n".join(lines) + "\n")


def first_sentence(markdown: str) -> str:
    """The first sentence of a page, without links, or nothing where a page has none."""
    for part in re.sub(r"^```.*?^```", "", markdown, flags=re.MULTILINE | re.DOTALL).split("\n\n"):
        lines = part.strip("\n").splitlines()
        if lines and not any(map(OTHER.match, lines)):
            text = LINK.sub(r"\1", " ".join(lines)).replace("**", "")
            return END.split(text, maxsplit=1)[0][:MOST]
    return ""
