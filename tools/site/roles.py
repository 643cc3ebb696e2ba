"""Reads the roles of the Python package's documentation, such as ``:class:`Dataset```, as links of the site.

A role whose name has no heading on a page of the reference becomes plain code.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

REFERENCE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference"
HEADING = re.compile(r"^::: rowdex\.(\S+)$", re.MULTILINE)
ROLE = re.compile(r":(?:attr|class|func|meth|mod):`(~?)\.?([\w.]+)`")


def headings() -> list[str]:
    """What the pages of the reference document, by its public name without ``rowdex.``."""
    return [name for page in sorted(REFERENCE.glob("*.md")) for name in HEADING.findall(page.read_text())]


class Roles(griffe.Extension):
    """Rewrites each docstring once the whole package is known."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        self.package = pkg
        self.shown = {pkg[name].canonical_path for name in headings()}
        self.visit(pkg)
        missing = sorted(name for name in pkg.exports or [] if pkg[name].canonical_path not in self.shown)
        missing = [name for name in missing if not pkg[name].is_module]
        if missing:
            raise PluginError(f"docs/reference has no heading for {', '.join(missing)} of the Python package")

    def visit(self, thing: griffe.Object) -> None:
        if thing.docstring is not None:
            thing.docstring.value = ROLE.sub(lambda found: self.link(found, thing), thing.docstring.value)
        for member in thing.members.values():
            if not member.is_alias:
                self.visit(member)

    def link(self, found: re.Match[str], thing: griffe.Object) -> str:
        short, name = found.groups()
        shown = name.rpartition(".")[2] if short else name
        owner = thing if thing.is_class else thing.parent
        places = [name.removeprefix("rowdex."), f"{thing.module.path}.{name}".removeprefix("rowdex.")]
        if owner is not None:
            places.insert(0, f"{owner.path}.{name}".removeprefix("rowdex."))
        heading = next(filter(None, map(self.heading, places)), None)
        return f"[`{shown}`][{heading}]" if heading else f"`{shown}`"

    def heading(self, place: str) -> str | None:
        """The path of what is found at this place, if the site has a heading for it."""
        try:
            path = str(self.package[place].canonical_path)
        except (KeyError, griffe.GriffeError):
            return None
        return path if path in self.shown or path.rpartition(".")[0] in self.shown else None
