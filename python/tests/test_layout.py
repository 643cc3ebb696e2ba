"""How the modules of the package lie: no two of them know each other, by whatever way."""

from __future__ import annotations

import ast
import pathlib
from collections.abc import Iterable, Iterator

import pytest

from .conftest import REPOSITORY

PACKAGE = REPOSITORY / "python/rowdex"
LAZY = ("import_module", "loaded", "__import__")


def modules(package: pathlib.Path) -> dict[str, pathlib.Path]:
    """The modules of a package by name; a folder's own is its ``__init__.py``."""
    found = {}
    for path in package.rglob("*.py"):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, known: dict[str, pathlib.Path]) -> Iterator[str]:
    """The modules that one imports: at once or when it is called, for types alone or by the text of a name."""
    home = name.split(".") if known[name].name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(known[name].read_text())):
        if isinstance(node, ast.ImportFrom):
            base = home[: len(home) - node.level + 1] if node.level else []
            path = ".".join([*base, *filter(None, [node.module])])
            yield from (nearest(f"{path}.{part.name}", known) for part in node.names)
        elif isinstance(node, ast.Import):
            yield from (nearest(part.name, known) for part in node.names)
        elif isinstance(node, ast.Call) and isinstance(node.func, (ast.Name, ast.Attribute)) and node.args:
            called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            if called in LAZY and isinstance(node.args[0], ast.Constant):
                yield nearest(str(node.args[0].value), known)


def nearest(name: str, known: dict[str, pathlib.Path]) -> str:
    """The module that has what is imported, or the empty text if it is of another package."""
    while name and name not in known:
        name = name.rpartition(".")[0]
    return name


def circles(package: pathlib.Path) -> list[list[str]]:
    """Modules each of which imports all others, be it by way of others."""
    known = modules(package)
    reached = {name: set(imports(name, known)) - {"", name} for name in known}
    for between in known:
        for name, others in reached.items():
            if between in others:
                others |= reached[between]
    found = {frozenset(other for other in reached[name] if name in reached[other]) for name in known}
    return sorted(sorted(circle) for circle in found if circle)


def written(package: pathlib.Path, files: Iterable[tuple[str, str]]) -> pathlib.Path:
    for path, text in files:
        (package / path).parent.mkdir(parents=True, exist_ok=True)
        (package / path).write_text(text)
    return package


def test_no_module_imports_another_that_imports_it() -> None:
    known = modules(PACKAGE)
    assert "rowdex.native.library" in imports("rowdex.sampler", known) and len(known) > 50
    assert circles(PACKAGE) == []


@pytest.mark.parametrize(
    "back",
    ["from .a import x", "from . import a", "import package.a", "def f():\n    from .a import x",
     "importlib.import_module('package.a')", "if TYPE_CHECKING:\n    from .a import x", "loaded('package.a')"],
)  # fmt: skip
def test_a_circle_is_found_by_whatever_way_it_closes(back: str, tmp_path: pathlib.Path) -> None:
    files = [("__init__.py", ""), ("a.py", "from .below.c import y"), ("below/__init__.py", ""), ("b.py", back)]
    package = written(tmp_path / "package", [*files, ("below/c.py", "from .. import b")])
    assert circles(package) == [["package.a", "package.b", "package.below.c"]]


def test_files_are_short_and_nothing_is_hidden_at_the_top() -> None:
    known = modules(PACKAGE)
    hidden = [name for name, path in known.items() if path.stem.startswith("_") and not path.stem.endswith("_")]
    assert hidden == []
    lengths = {name: len(path.read_text().splitlines()) for name, path in known.items()}
    # Nobody writes what is generated from the header, and nobody reads it from top to bottom.
    del lengths["rowdex.native.declarations"]
    assert {name for name, length in lengths.items() if length >= 500} == set()
