"""The programs and commands of the pages for newcomers, run in their order as the pages show them, and notebooks."""

from __future__ import annotations

import ast
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from ..conftest import REPOSITORY
from .need import need

torch = need("torch", "pyarrow", "PIL.Image")
COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = ["../python/README.md", "first-training.md", "concepts/index-file.md", "concepts/shard.md"]
HOW_TO = ("resume", "mix", "function", "text", "images", "tables", "cells", "budget")
PAGES += [f"how-to/{name}.md" for name in HOW_TO]
SKILL = REPOSITORY / "python/rowdex/skill"
PAGES += [f"../python/rowdex/skill/{path.name}" for path in sorted(SKILL.glob("*.md"))]
OTHERS = ("pip ", "torchrun ", "cargo ", "tools/")
"""Commands that pages show and this does not run: others' own, and installing."""


def run(line: str) -> None:
    """Runs a line of a shell block, without what it says behind it."""
    words = shlex.split(line, comments=True)
    if not words or line.startswith(OTHERS):
        return
    assert words[0] == "rowdex", line
    done = subprocess.run([COMMAND, *words[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run_as_they_are_shown(
    page: str, unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Threads of PyTorch that wait for each other take minutes on a machine that is busy.
    torch.set_num_threads(1)
    if page.endswith("skill/frameworks.md"):
        need("accelerate")
    text = (REPOSITORY / "docs" / page).read_text()
    # A page that makes no data of its own speaks of data/. Its index it makes itself.
    if page != "first-training.md":
        shutil.copytree(unequal, "data", ignore=shutil.ignore_patterns("*.rdx"))
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = BLOCK.findall(text)
    assert blocks
    for kind, block in blocks:
        if kind == "python":
            exec(compile(block, page, "exec"), names)
        else:
            for line in block.splitlines():
                run(line)


NOTEBOOKS = sorted((REPOSITORY / "docs/notebooks").glob("*.py"))


@pytest.mark.parametrize("program", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_its_cells_end_with(
    program: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program.stem != "first-training" and not os.environ.get("ROWDEX_LONG"):
        pytest.skip("ROWDEX_LONG=1 runs all notebooks")
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names: dict[str, object] = {"__name__": "__main__"}
    shown = 0
    for cell in re.split(r"^# %%.*$", program.read_text(), flags=re.MULTILINE):
        body = ast.parse(cell).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), str(program), "exec"), names)
        if isinstance(last, ast.Expr):
            shown += eval(compile(ast.Expression(last.value), str(program), "eval"), names) is not None
    # A notebook in which no cell shows anything shows too little.
    assert shown >= 1
