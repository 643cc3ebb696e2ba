"""An import of rowdex.torchtitan where torchtitan is another than it is written for."""

from __future__ import annotations

import pathlib

import pytest

from .conftest import run_python

pytest.importorskip("torch")


@pytest.mark.parametrize(
    "module, text",
    [
        (None, ""),
        ("dataloader", "class Other: pass"),
        ("dataloader", "class BaseDataLoader: pass"),
    ],
)
def test_another_torchtitan_is_an_error_that_names_the_version_that_fits(
    tmp_path: pathlib.Path, module: str | None, text: str
) -> None:
    folder = tmp_path / "torchtitan/components"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent):
        (package / "__init__.py").touch()
    if module is not None:
        (folder / f"{module}.py").write_text(text)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rowdex.torchtitan"
    done = run_python(program, timeout=120)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: rowdex.torchtitan is written for torchtitan 0.3"), done.stderr
    assert "pip install torchtitan==0.3.0" in last


def test_an_error_within_torchtitan_is_told_as_it_is(tmp_path: pathlib.Path) -> None:
    (tmp_path / "torchtitan").mkdir()
    (tmp_path / "torchtitan/__init__.py").write_text("import what_torchtitan_needs")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import rowdex.torchtitan"
    assert "No module named 'what_torchtitan_needs'" in run_python(program, timeout=120).stderr
