"""Pages of the site that programs make: what the command says of itself, and llms.txt."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from types import ModuleType

import pytest

from .conftest import REPOSITORY

COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"site_{name}", REPOSITORY / f"tools/site/{name}.py")
    assert spec and spec.loader
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
def test_the_page_of_the_command_has_every_option_and_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWDEX_COMMAND", COMMAND)
    sections = re.split(r"^## rowdex (\w+)$", module("command").page(), flags=re.MULTILINE)
    pages = dict(zip(sections[1::2], sections[2::2]))
    assert len(pages) >= 11
    for name, page in pages.items():
        done = subprocess.run([COMMAND, name, "--help"], capture_output=True, text=True, timeout=60, check=True)
        listed = set(re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", done.stdout, re.MULTILINE)) - {"--help", "--version"}
        assert set(re.findall(r"^\| `(?:-\w, )?(--[a-z-]+)", page, re.MULTILINE)) == listed
        assert page.count(f"\nrowdex {name}") == done.stdout.count(f"\n  rowdex {name}") + 1


def test_a_site_without_the_command_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWDEX_COMMAND", "nowhere/rowdex")
    command = module("command")
    with pytest.raises(command.Unreadable, match=r"nowhere/rowdex.*: run tools/site.sh, or set ROWDEX_COMMAND"):
        command.page()


@pytest.mark.parametrize(
    ("page", "says"),
    [
        ("# Head\n\n![a](a.svg)\n\n| a |\n| --- |\n\n`x` is [one](one.md#a) of\n**two**. More.", "`x` is one of two."),
        ("# Head\n\n```sh\nrowdex demo\n\nrowdex\n```\n\nThree steps:\n\n- one", "Three steps"),
        ("# Head\n\n::: rowdex.build\n", ""),
    ],
)  # fmt: skip
def test_llms_txt_has_the_first_sentence_of_a_page(page: str, says: str) -> None:
    assert module("llms").first_sentence(page) == says
