"""What is installed, and what is not imported."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import venv

import pytest
import rowdex
from rowdex import doctor, native

from .conftest import REPOSITORY, run_python

INSTALLED = pathlib.Path(rowdex.__file__).resolve().parent != REPOSITORY / "python/rowdex"


def test_importing_it_imports_nothing_big() -> None:
    program = "import sys, rowdex; sys.exit(bool({'torch', 'numpy', 'pyarrow'} & set(sys.modules)))"
    assert run_python(program).returncode == 0


def test_versions_agree() -> None:
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"', manifest, re.M)
    assert found and rowdex.__version__ == found[1]


def test_the_declarations_are_what_the_header_says(tmp_path: pathlib.Path) -> None:
    tool = "tools/python/declarations.py"
    done = subprocess.run([sys.executable, REPOSITORY / tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in (tool, "include/rowdex.h", "python/rowdex/native/declarations.py"):
        (tmp_path / path).parent.mkdir(parents=True)
        text = (REPOSITORY / path).read_text()
        (tmp_path / path).write_text(text.replace("bool rowdex_id_set_contains", "int rowdex_id_set_contains"))
    done = subprocess.run([sys.executable, tmp_path / tool, "--check"], capture_output=True, text=True)
    assert done.returncode == 1 and "run python3 tools/python/declarations.py" in done.stderr


def test_a_compiler_gives_all_structs_the_same_places_and_sizes(tmp_path: pathlib.Path) -> None:
    structs = [kind for kind in vars(native).values() if hasattr(kind, "_fields_")]
    assert len(structs) > 12
    lines, declared = [], []
    for kind in structs:
        arrow = kind.__name__.startswith("Arrow")
        name = f"struct {kind.__name__}" if arrow else "rowdex" + re.sub("([A-Z])", r"_\1", kind.__name__).lower()
        lines.append(f'printf("{name} %zu\\n", sizeof({name}));')
        declared.append(f"{name} {ctypes.sizeof(kind)}")
        for field, *_ in kind._fields_:
            member = f"(({name} *)0)->{field}"
            lines.append(f'printf("{member} %zu %zu\\n", offsetof({name}, {field}), sizeof({member}));')
            declared.append(f"{member} {getattr(kind, field).offset} {getattr(kind, field).size}")
    program = '#include <stdio.h>\n#include "rowdex.h"\nint main(void) {\n' + "\n".join(lines) + "\n}\n"
    (tmp_path / "places.c").write_text(program)
    compile_it = ["cc", f"-I{REPOSITORY / 'include'}", "-o", tmp_path / "places", tmp_path / "places.c"]
    subprocess.run(compile_it, check=True)
    done = subprocess.run([tmp_path / "places"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == declared


@pytest.mark.parametrize("case", ["missing", "not a library", "another library", "another version", "an older one"])
def test_a_library_that_does_not_fit_is_an_import_error(case: str, tmp_path: pathlib.Path) -> None:
    library = tmp_path / "librowdex.so"
    source = {
        "another library": "int other(void) { return 1; }",
        "another version": "unsigned rowdex_abi_version(void) { return 99; }",
        "an older one": "unsigned rowdex_abi_version(void) { return 1; }",
    }.get(case)
    if source is not None:
        (tmp_path / "a.c").write_text(source)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, tmp_path / "a.c"], check=True)
    elif case == "not a library":
        library.write_text("no")
    done = run_python("import rowdex", ROWDEX_LIBRARY=str(library))
    says = {
        "missing": "missing: no", "not a library": "cannot be loaded", "another library": "is not the rowdex library",
        "another version": "version 99 of the C API and this package needs version 1",
        "an older one": "it is older than this package",
    }  # fmt: skip
    assert done.returncode == 1
    assert "ImportError" in done.stderr and says[case] in done.stderr and str(library) in done.stderr


@pytest.mark.skipif(not INSTALLED, reason="it is not installed")
def test_the_wheel_has_library_header_and_command() -> None:
    package = pathlib.Path(rowdex.__file__).parent
    assert (
        (package / "librowdex.so").is_file()
        and (package / "include/rowdex.h").is_file()
        and (package / "py.typed").is_file()
    )
    wheel = importlib.metadata.distribution("rowdex").read_text("WHEEL") or ""
    assert re.search(r"^Tag: py3-none-(many)?linux_\w+$", wheel, re.M)
    command = pathlib.Path(sysconfig.get_path("scripts")) / "rowdex"
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert done.stdout.split() == ["rowdex", rowdex.__version__]


def test_the_c_library_has_the_features_of_the_wheel() -> None:
    script, build = (REPOSITORY / "tools/install.sh").read_text(), (REPOSITORY / "python/hatch_build.py").read_text()
    (own,), (wheels,) = re.findall("--features ([a-z,-]+)}", script), re.findall('"--features", "([a-z,-]+)"', build)
    assert own == wheels == "full"


def readme_example() -> str:
    return readme_block("python")


def readme_block(language: str) -> str:
    blocks = re.findall(rf"```{language}\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    assert len(blocks) == 1
    return str(blocks[0])


def test_the_python_example_of_the_readme_prints_what_it_says(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").symlink_to(folder)
    done = subprocess.run(
        [sys.executable, "-c", readme_example()], cwd=tmp_path, capture_output=True, text=True, timeout=120,
        env={**os.environ, "ROWDEX_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr + done.stdout == readme_block("text")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The Python of a new environment with the wheel, installed without a network and without Rust, and numpy."""
    wheel = os.environ.get("ROWDEX_WHEEL")
    if not wheel:
        pytest.skip("ROWDEX_WHEEL names no wheel; tools/python.sh makes one")
    environment = tmp_path_factory.mktemp("fresh")
    venv.create(environment, with_pip=True)
    python = environment / "bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", wheel]
    done = subprocess.run(install, env=bare_environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    packages = next(environment.glob("lib/python*/site-packages"))
    numpy = pathlib.Path(importlib.metadata.distribution("numpy").locate_file("numpy"))  # type: ignore[arg-type]
    for part in (numpy, numpy.with_name("numpy.libs")):
        if part.exists():
            (packages / part.name).symlink_to(part)
    return python


def bare_environment() -> dict[str, str]:
    """Variables as a new user has them: nothing of rowdex, of Python or of Rust."""
    foreign = "ROWDEX_(?!CACHE)|PYTHON|CARGO|RUST"
    kept = {name: value for name, value in os.environ.items() if not re.match(foreign, name)}
    return {**kept, "PATH": "/usr/bin:/bin", "CARGO": "/nonexistent/cargo"}


def test_the_wheel_runs_the_example_of_the_readme_in_a_fresh_environment(
    fresh: pathlib.Path, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "data").symlink_to(folder)

    def run(program: str) -> subprocess.CompletedProcess[str]:
        command = [fresh, "-c", program]
        return subprocess.run(
            command, cwd=tmp_path, env=bare_environment(), capture_output=True, text=True, timeout=120
        )

    listed = run(
        "import importlib.util as i; print([n for n in ('rowdex', 'numpy', 'torch', 'pyarrow') if i.find_spec(n)])"
    )
    assert listed.stdout.split() == ["['rowdex',", "'numpy']"], listed.stderr
    done = run(readme_example())
    assert done.returncode == 0, done.stderr
    rows, *_ = done.stdout.split()
    assert rows == "1003"


def test_the_wheel_has_a_command_that_finds_its_own_package_sound(
    fresh: pathlib.Path, index: str, tmp_path: pathlib.Path
) -> None:
    def run(*command: str | pathlib.Path) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, env=bare_environment(), capture_output=True, text=True, timeout=120
        )
        return done.stdout + done.stderr

    assert run(fresh.parent / "rowdex", "--version").split() == ["rowdex", rowdex.__version__]
    assert "1,003" in run(fresh.parent / "rowdex", "info", index)
    assert str(fresh.parent.parent) in run(fresh, "-m", "rowdex", "doctor", index)


def test_every_framework_has_an_extra_and_all_has_every_extra() -> None:
    manifest = (REPOSITORY / "python/pyproject.toml").read_text()
    listed = re.search(r"^\[project.optional-dependencies\]\n(.*?)^\[", manifest, re.M | re.S)
    assert listed
    extras = dict(re.findall(r"^(\w+) = \[(.*?)\]$", listed[1], re.M | re.S))
    whole = extras.pop("all")

    def reached(text: str) -> set[str]:
        named = {name for group in re.findall(r"rowdex\[([\w,]+)\]", text) for name in group.split(",")}
        return named.union(*(reached(extras[name]) for name in named))

    assert reached(whole) == set(extras)
    packages = {
        re.split(r"[\[<>=]", package)[0] for text in extras.values() for package in re.findall(r'"([^"]+)"', text)
    }
    # Installed by what needs them, under one of several names, or from elsewhere than the package index.
    others = {"datasets", "pytorch-lightning", "simplejpeg", "torchvision", "trl"}
    others |= {f"nvidia-dali-cuda{version}" for version in (110, 120, 130)}
    assert set(doctor.FRAMEWORKS) - packages == others


def test_the_package_for_torch_is_there_without_its_import() -> None:
    program = """
import sys
import rowdex
assert "torch" not in sys.modules
try:
    assert rowdex.torch.Dataset
except ModuleNotFoundError as error:
    assert error.name == "torch"
try:
    rowdex.tensorflow
except AttributeError as error:
    assert "tensorflow" in str(error)
else:
    raise AssertionError("there is no such thing")
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr
