"""Programs for readers, in pages, docstrings and examples: a test runs them, or they say that they are fragments."""

from __future__ import annotations

import ast
import builtins
import itertools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest
import rowdex

from .conftest import REPOSITORY
from .frameworks.page import BLOCK, DOCS, ELSEWHERE, PAGES, all_pages, blocks_of, commands, programs_of
from .test_skill import public

COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
"""Its program counts epochs as DALI does, from the one that the source begins with."""
FRAMEWORKS = re.compile(r"rowdex\.(torch|ray|jax|accelerate|lightning|grain|dali|transformers|transforms)\b")


def name_of(path: pathlib.Path) -> str:
    """A page as the lists name it."""
    return os.path.relpath(path, DOCS)


def docstring_examples() -> Iterator[tuple[str, str]]:
    """The literal blocks of the package, each with where it is."""
    for path in sorted((REPOSITORY / "python/rowdex").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                where = f"{path.relative_to(REPOSITORY)}: {getattr(node, 'name', 'the module')}"
                yield from ((where, block) for block in literal_blocks(ast.get_docstring(node) or ""))


def literal_blocks(text: str) -> Iterator[str]:
    lines = text.splitlines()
    for at, line in enumerate(lines):
        if line.endswith("::"):
            inside = " " * (len(line) - len(line.lstrip()) + 1)
            block = itertools.takewhile(lambda line: not line or line.startswith(inside), lines[at + 1 :])
            yield textwrap.dedent("\n".join(block)).strip()


def all_programs() -> Iterator[tuple[str, str]]:
    """All programs that a reader sees, each with where it is."""
    for path in all_pages():
        yield from ((name_of(path), block) for kind, block in blocks_of(path) if kind == "python")
    for path in sorted([*(REPOSITORY / "examples").glob("*.py"), *(DOCS / "notebooks").glob("*.py")]):
        yield path.name, path.read_text()
    yield from docstring_examples()


def test_a_test_runs_every_program_of_a_page_that_is_whole() -> None:
    assert not set(PAGES) & set(ELSEWHERE)
    for path in all_pages():
        page = name_of(path)
        if page not in PAGES:
            tests, programs = ELSEWHERE.get(page, ("no test", 0))
            assert len(programs_of(path)) == programs, f"{page}: {tests} runs {programs} programs of it"
    for page, (tests, _) in ELSEWHERE.items():
        text = (REPOSITORY / "python/tests" / tests).read_text()
        assert pathlib.Path(page).stem in text, f"{tests} runs no program of {page}"
    assert all((DOCS / page).is_file() and blocks_of(page) for page in PAGES)


def test_every_fence_with_a_language_that_runs_is_found() -> None:
    for path in all_pages():
        text = path.read_text()
        assert len(BLOCK.findall(text)) == len(re.findall(r"^ *(?:```|~~~) *(?:python|py|sh|bash|shell)\b", text, re.M))


def test_programs_parse_and_name_what_the_package_has() -> None:
    programs = list(all_programs())
    assert len(programs) > 100
    for where, program in programs:
        ast.parse(program, where)
        # Up to the class: its attributes are no names of a module.
        for name in re.findall(r"\browdex(?:\.[a-z]\w*)*\.(?:[A-Z]\w*|[a-z]\w*\b(?!\.))", program):
            assert public(name), f"{where}: {name}"


def loops(tree: ast.AST) -> Iterator[tuple[ast.For, ast.Call]]:
    """The loops over a ``range``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call) and ast.unparse(node.iter.func) == "range":
            yield node, node.iter


def is_over_epochs(loop: ast.For) -> bool:
    """Whether it is named so, or has a loop over something else than a ``range``."""
    inner = (node for part in loop.body for node in ast.walk(part) if isinstance(node, ast.For))
    return "epoch" in ast.unparse(loop.target) or any("range" not in ast.unparse(node.iter) for node in inner)


def test_programs_that_may_resume_begin_with_the_epoch_to_resume() -> None:
    found = 0
    for where, program in all_programs():
        if "rowdex" not in program:
            continue
        for loop, over in loops(ast.parse(program)):
            if "epoch" in ast.unparse(loop.target) or (".load_state_dict(" in program and is_over_epochs(loop)):
                assert len(over.args) == 2 and ast.unparse(over.args[0]).endswith(".epoch"), (
                    f"{where}, for {ast.unparse(loop.target)} in {ast.unparse(over)}: write range(loader.epoch, N)"
                )
                found += 1
    assert found >= 15


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
def test_commands_on_pages_have_options_that_there_are() -> None:
    lines = []
    for path in all_pages():
        lines += [line for kind, block in blocks_of(path) if kind == "sh" for line in commands(block)]
        lines += re.findall(r"^\$ (.*)", path.read_text(), re.M)
    helped: dict[str, str] = {}
    for line in lines:
        words = shlex.split(line, comments=True)
        tools = [word for word in words if word.startswith("tools/") and not word.endswith("/")]
        assert all((REPOSITORY / tool).exists() for tool in tools), line
        # A command of Python's package.
        if words[:1] != ["rowdex"] or words[1] in ("doctor", "--version"):
            continue
        if words[1] not in helped:
            done = subprocess.run([COMMAND, words[1], "--help"], capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, line
            helped[words[1]] = done.stdout
        options = {word.partition("=")[0] for word in words if re.match(r"--[a-z]", word)}
        assert options <= set(re.findall(r"--[a-z-]+", helped[words[1]])), line
    assert len(helped) >= 10


def free_names(program: str) -> set[str]:
    """What a program needs to be given."""
    names = [node for node in ast.walk(ast.parse(program)) if isinstance(node, ast.Name)]
    imported = [node for node in ast.walk(ast.parse(program)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    bound = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    bound |= {one.asname or one.name for node in imported for one in node.names}
    return {name.id for name in names} - bound - set(dir(builtins))


@pytest.fixture()
def given(as_a_newcomer: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What examples take as given."""
    monkeypatch.chdir(as_a_newcomer)
    monkeypatch.setenv("ROWDEX_CACHE", str(as_a_newcomer / "cache"))
    launched = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    for name, value in launched.items():
        monkeypatch.setenv(name, value)
    for name in ("web", "code"):
        rowdex.select("train.rdx", f"{name}.rdx", sample=0.5, progress=False)
    rowdex.rewrite("train.rdx", "rows", seed=42, progress=False)
    rowdex.build("rows", "shuffled.rdx", progress=False)
    dataset = rowdex.Dataset("train.rdx")
    return {"rowdex": rowdex, "pyarrow": pyarrow, "dataset": dataset, "batch": dataset[:10]}


def test_examples_in_docstrings_run(given: dict[str, Any]) -> None:
    ran = []
    for where, program in docstring_examples():
        # Modules of frameworks need those.
        if free_names(program) <= set(given) and not FRAMEWORKS.search(program):
            exec(compile(program, where, "exec"), dict(given))
            ran.append(where)
    assert len(ran) >= 6, ran
