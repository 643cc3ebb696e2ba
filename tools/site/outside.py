"""Pages of the site whose source is no page in docs/: the README, what else documents link, notebooks, what the command
says of itself, and rustdoc.

A link from a document to a file of the repository becomes one to the file's page, so each text exists once.
"""

from __future__ import annotations

import os
import pathlib
import posixpath
import re
import shutil
import sys
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import notebooks  # noqa: E402
from tools.site import command  # noqa: E402

PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "LICENSE-MIT": "licence-mit.md",
    "LICENSE-APACHE": "licence-apache.md",
    "include/rowdex.h": "reference/header.md",
    "examples/ddp.py": "examples/ddp.md",
    "examples/train_loop.c": "examples/train-loop-c.md",
    "examples/look_up.c": "examples/look-up-c.md",
    "examples/side_by_side.c": "examples/side-by-side-c.md",
    **{
        f"examples/with_{name}.py": f"examples/with-{name}.md"
        for name in ("delta", "iceberg", "lightgbm", "megatron", "polars", "torchtitan", "xgboost")
    },
}
"""The page of each file outside of docs/ that has one."""

LANGUAGES = {".c": "c", ".h": "c", ".py": "python", "": "text"}
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages."""
    for source, page in PAGES.items():
        path = ROOT / source
        if path.is_file():
            text = path.read_text()
            if path.suffix != ".md":
                text = f"# {source}\n\n```{LANGUAGES[path.suffix]}\n{text}```\n"
            files.append(File.generated(config, page, content=text))
    for program in sorted(notebooks.FOLDER.glob("*.py")):
        text = notebooks.page(program.stem, program.read_text())
        files.append(File.generated(config, f"notebooks/{program.stem}.md", content=text))
    try:
        files.append(File.generated(config, "reference/command.md", content=command.page()))
    except command.Unreadable as error:
        raise PluginError(str(error)) from error
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turns links between files of the repository into links between pages of the site."""
    here = page.file.src_uri
    sources = {name: source for source, name in PAGES.items()}
    source = sources.get(here, f"docs/{here}")
    parts = FENCE.split(markdown)
    for at in range(0, len(parts), 2):
        parts[at] = LINK.sub(lambda found: found[1] + target(found[2], source, here) + found[3], parts[at])
    return "".join(parts)


def target(link: str, source: str, here: str) -> str:
    """What a link of a source leads to on the page that is made of it."""
    path, sign, anchor = link.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return link
    named = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if named.startswith("docs/"):
        led = named.removeprefix("docs/")
    elif named in PAGES:
        led = PAGES[named]
    elif (ROOT / named).exists():
        raise PluginError(f"{source} links {named}, which has no page: name one in tools/site/outside.py")
    else:
        raise PluginError(f"{source} links {named}, which is not there")
    return posixpath.relpath(led, posixpath.dirname(here) or ".") + sign + anchor


def on_post_build(config: Any) -> None:
    """Adds what `cargo doc` has made, where it has."""
    made = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "doc")
    if (made / "rowdex/index.html").is_file():
        shutil.copytree(made, pathlib.Path(config.site_dir, "rustdoc"), dirs_exist_ok=True)
