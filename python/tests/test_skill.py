"""The pages in the package for programs that write code: they are short, and what they name is there."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shutil
import subprocess

import pytest
import rowdex

from .conftest import REPOSITORY

PACKAGE = pathlib.Path(rowdex.__file__).parent
PAGES = {path.name: path.read_text() for path in sorted((PACKAGE / "skill").glob("*.md"))}
COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
MOST_WORDS = 2_500
OTHERS = {"batch_info", "datamodule", "dataset_kwargs", "packing", "remove_unused_columns", "train_dataset"}
"""Arguments of what is not rowdex's."""


def code() -> str:
    """All that the pages have as code."""
    return "\n".join(re.findall(r"```.*?```|`[^`]+`", "\n".join(PAGES.values()), re.DOTALL))


def public(name: str) -> bool:
    """Whether a module of the package has this name, or it is one. No framework is needed."""
    *parts, last = name.split(".")[1:]
    folder = PACKAGE.joinpath(*parts)
    if (folder / f"{last}.py").is_file() or (folder / last).is_dir():
        return True
    file = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    found = set()
    for node in ast.parse(file.read_text()).body if file.is_file() else []:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            found |= {one.asname or one.name for one in node.names}
    return last in found and not last.startswith("_")


def test_the_wheel_has_the_pages() -> None:
    pages = {"SKILL.md", "build-and-open.md", "loader.md", "resume.md", "frameworks.md", "memory.md"}
    assert set(PAGES) == pages == {path.name for path in (REPOSITORY / "python/rowdex/skill").iterdir()}
    assert sum(len(text.split()) for text in PAGES.values()) <= MOST_WORDS
    front = re.match(r"---\nname: rowdex\ndescription: >-\n((?:  .+\n)+)---\n", PAGES["SKILL.md"])
    assert front and len(front[1]) < 1024


def test_links_of_the_pages_lead_to_pages() -> None:
    assert {link for text in PAGES.values() for link in re.findall(r"\]\(([^)]+)\)", text)} == set(PAGES) - {"SKILL.md"}


def test_names_on_the_pages_are_in_the_package() -> None:
    names = set(re.findall(r"\browdex(?:\.\w+)+", code()))
    assert len(names) > 25 and not public("rowdex.nothing") and not public("rowdex.order.Nothing")
    assert [name for name in sorted(names) if not public(name)] == []


def test_arguments_on_the_pages_are_in_the_package() -> None:
    trees = [ast.parse(path.read_text()) for path in PACKAGE.rglob("*.py")]
    functions = [node.args for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    known = {argument.arg for of in functions for argument in (*of.posonlyargs, *of.args, *of.kwonlyargs)}
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", "\n".join(PAGES.values()), flags=re.DOTALL))
    told = {name for text in inline for name in re.findall(r"(?<![-\w])([a-z_]+)=(?!=)", text)}
    # Fields of a `Pack` are its arguments.
    known |= set(rowdex.Pack.__dataclass_fields__) | OTHERS
    assert len(told) > 25 and sorted(told - known) == []


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
def test_options_on_the_pages_are_those_of_the_command() -> None:
    lines = [line for line in re.split(r"[`\n]", code()) if re.match(r"rowdex [a-z]", line)]
    assert len(lines) >= 5
    for line in lines:
        name = line.split()[1]
        if name == "doctor":
            continue  # It is the package's.
        done = subprocess.run([COMMAND, name, "--help"], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, line
        assert set(re.findall(r"--[a-z-]+", line)) <= set(re.findall(r"--[a-z-]+", done.stdout)), line
