"""Makes the page of the command: what ``rowdex COMMAND --help`` says of each subcommand, as tables."""

from __future__ import annotations

import html
import itertools
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMED = re.compile(r"^  ([a-z]+) {2,}\S", re.MULTILINE)
ENTRY = re.compile(r"^ {2,6}((?:-|<|\[)\S.*?)(?: {2,}(\S.*))?$")
DEFAULT = re.compile(r" ?\[default: (.*?)\](?= \[|$)")
VALUES = re.compile(r" ?\[possible values: (.*?)\]$")
PAGE = re.compile(r"\bdocs/([a-z-]+)\.md")
SIGN = re.compile(r"([\\*_\[\]#|])")
ITEM = "  - "
EVERYWHERE = ("-h, --help", "-V, --version")
INTRODUCTION = """# The command

This page is the output of `rowdex COMMAND --help`. Each subcommand also has `-h, --help` and `-V, --version`.
Results go to standard output, everything else to standard error. The exit status is 0 if the command succeeded, 1 if it
failed, and 2 if it was called wrongly.
"""


class Unreadable(Exception):
    """The command is not there, or says something that is not understood here."""


def program() -> pathlib.Path:
    """The command: that of ``ROWDEX_COMMAND``, or the one that cargo built for debugging."""
    built = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"), "debug/rowdex")
    path = pathlib.Path(os.environ.get("ROWDEX_COMMAND") or ROOT / built)
    if not path.is_file():
        raise Unreadable(f"there is no {path}, whose help is a page: run tools/site.sh, or set ROWDEX_COMMAND")
    return path


def helped(*words: str) -> str:
    """What the command says of itself, in lines as long as they are, whoever looks on."""
    done = subprocess.run(
        [program(), *words, "--help"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        env={**os.environ, "COLUMNS": "100000"},
    )  # fmt: skip
    if done.returncode:
        raise Unreadable(f"{' '.join(map(str, done.args))} failed: {done.stderr}")
    return done.stdout


def page() -> str:
    """The page, in Markdown."""
    names = NAMED.findall(helped().partition("\nCommands:\n")[2].partition("\n\n")[0])
    names.remove("help")
    return INTRODUCTION + "".join(section(name, helped(name)) for name in names)


def section(name: str, said: str) -> str:
    """What is said of one subcommand."""
    about, *parts = said.rstrip().split("\n\n")
    lines = [f"\n## rowdex {name}", "", prose(about) + "."]
    for part in parts:
        head, _, rest = part.partition("\n")
        if head.startswith("Usage: "):
            lines += ["", "```text", head.removeprefix("Usage: "), "```"]
        elif head in ("Arguments:", "Options:"):
            lines += ["", *table(name, head.removesuffix("s:").lower(), rest)]
        else:
            lines += paragraph(part)
    return "\n".join(lines) + "\n"


def paragraph(said: str) -> list[str]:
    """A paragraph: what is indented in it is a list, or printed as it is."""
    lines: list[str] = []
    for indent, group in itertools.groupby(said.splitlines(), indent_of):
        found = [line.removeprefix(indent) for line in group]
        if indent == ITEM:
            lines += ["", *(f"- {prose(line)}" for line in found)]
        elif indent:
            lines += ["", "```text", *found, "```"]
        else:
            lines += ["", *map(prose, found)]
    return lines


def indent_of(line: str) -> str:
    return next(indent for indent in (ITEM, "  ", "") if line.startswith(indent))


def table(name: str, kind: str, said: str) -> list[str]:
    """Arguments or options, a line for each."""
    rows = []
    for line in said.splitlines():
        found = ENTRY.match(line)
        if found is None or not found[2]:
            raise Unreadable(f"rowdex {name} --help has a line that is no {kind}: {line}")
        if found[1] in EVERYWHERE:
            continue
        says, default, values = found[2], "", ""
        if end := VALUES.search(says):
            says, values = says[: end.start()], f". One of {', '.join(map(code, end[1].split(', ')))}"
        if end := DEFAULT.search(says):
            says, default = says[: end.start()], prose(end[1])
        rows.append([code(found[1]), prose(says) + values, default])
    if not any(default for _, _, default in rows):
        return grid([[kind, "meaning"], *(row[:2] for row in rows)])
    return grid([[kind, "meaning", "default"], *rows])


def grid(rows: list[list[str]]) -> list[str]:
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return [lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]]


def code(text: str) -> str:
    return f"`{text}`"


def prose(text: str) -> str:
    """Text that is no Markdown but for its code, as Markdown, with links to the pages that it names."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        plain = SIGN.sub(r"\\\1", html.escape(parts[at], quote=False))
        parts[at] = PAGE.sub(r"[\1](../\1.md)", plain)
    return "`".join(parts)
