#!/usr/bin/env python3
"""Fails where a text for users has a phrase that plainer words have replaced, and says what to write instead."""

from __future__ import annotations

import ast
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
TEXTS = ("*.md", "python/README.md", "docs/**/*.md", "include/rowdex.h", "python/rowdex/**/*.py", "src/command/**/*.rs")
INSTEAD = {
    r"(go(es|ing)?|went) on": "resumes, continues",
    r"noted|notes?(?= (in|by|how) )": "recorded, records",
    r"pads|(a|each|no) pad": "repeated rows",
    r"dealt|deals|dealing": "assigned, assigns",
    r"told|tells? (of|which|how|that)|footers tell": "reported, says",
    r"as many(?![^.;:]* as\b)": "the same number of",
    r"anew": "again",
    r"(is|are|was|were|comes?) due": "is needed next",
    r"(who|what|which)ever": "anyone who, any",
    r"is an error": "is refused, raises",
    r"beside": "next to, compared with, in addition to",
    r"of (its|their|one's) own": "separate, its own …",
    r"for ever": "without end",
}
MARKDOWN_CODE = re.compile(r"^ *```.*?^ *```|`+[^`]*`+|\{\w*\}", re.MULTILINE | re.DOTALL)
C_COMMENT = re.compile(r"^ *(?://| \*)(?P<text>.*)", re.MULTILINE)
RUST = re.compile(r"//[/!](?P<text>.*)|//.*|r#\"(?P<raw>[\s\S]*?)\"#|'\"'|\"(?P<string>(?:\\[\s\S]|[^\"\\])*)\"")


def spans(path: pathlib.Path, text: str) -> list[tuple[int, int]]:
    """Where a file has text for people: all of it, its docstrings, or its comments and strings of several words."""
    if path.suffix == ".py":
        lines = [0, *(found.end() for found in re.finditer("\n", text)), len(text)]
        found = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
        found = [value for value in found if isinstance(value, ast.Constant) and isinstance(value.value, str)]
        return [(lines[value.lineno - 1], lines[value.end_lineno or value.lineno]) for value in found]
    if path.suffix not in (".rs", ".h"):
        return [(0, len(text))]
    matches = (RUST if path.suffix == ".rs" else C_COMMENT).finditer(text)
    return [match.span(name) for match in matches if (name := match.lastgroup) and " " in match[name]]


bad: list[str] = []
for path in sorted(path for texts in TEXTS for path in ROOT.glob(texts)):
    name, text = path.relative_to(ROOT).as_posix(), path.read_text()
    # All else becomes blanks, so that lines keep their numbers.
    prose = list(re.sub(r"[^\n]", " ", text))
    for start, end in spans(path, text):
        prose[start:end] = text[start:end].replace("\\\n", " \n")
    said = MARKDOWN_CODE.sub(lambda code: re.sub(r"[^\n]", " ", code[0]), "".join(prose))
    for phrase, instead in INSTEAD.items():
        for found in re.finditer(rf"\b({phrase})\b".replace(" ", r"\s+"), said, re.IGNORECASE):
            words, line = " ".join(found[0].lower().split()), said.count("\n", 0, found.start()) + 1
            bad.append(f"{name}:{line}: {words} -> {instead}")
sys.exit("\n".join(bad) or None)
