"""What is installed, and what is not imported."""

from __future__ import annotations

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
from rowdex import doctor

from .conftest import REPOSITORY, run_python

INSTALLED = pathlib.Path(rowdex.__file__).resolve().parent != REPOSITORY / "python/rowdex"


def test_importing_it_imports_nothing_big() -> None:
    program = "import sys, rowdex; sys.exit(bool({'torch', 'numpy', 'pyarrow'} & set(sys.modules)))"
    assert run_python(program).returncode == 0


def test_versions_agree() -> None:
    manifest = (REPOSITORY / "Cargo.toml").read_text()
    found = re.search(r'^version = "(.*)"', manifest, re.M)
    assert found and rowdex.__version__ == found[1]


def test_the_signatures_are_those_of_the_header() -> None:
    from rowdex import _ffi

    header = (REPOSITORY / "include/rowdex.h").read_text()
    declared = re.findall(r"^[a-z].*?\browdex_(\w+)\(([^;{]*)\);", header, re.M | re.S)
    arguments = {name: 0 if listed.strip() == "void" else listed.count(",") + 1 for name, listed in declared}
    for name, (result, types) in _ffi.SIGNATURES.items():
        assert arguments[name] == len(types) + (result is _ffi._STATUS), name
    assert int(re.findall(r"define ROWDEX_ABI_VERSION (\d+)", header)[0]) == _ffi.ABI_VERSION
    assert int(re.findall(r"define ROWDEX_STATE_CAPACITY (\d+)", header)[0]) == _ffi.STATE_CAPACITY


def test_the_structs_are_those_of_the_header() -> None:
    from rowdex import _ffi

    header = (REPOSITORY / "include/rowdex.h").read_text()
    checked = 0
    for name, struct in vars(_ffi).items():
        if isinstance(struct, type) and issubclass(struct, _ffi.Versioned) and struct is not _ffi.Versioned:
            c_name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
            found = re.search(rf"typedef struct rowdex_{c_name} {{(.*?)}} rowdex_{c_name};", header, re.S)
            assert found, c_name
            lines = [line.strip() for line in found[1].splitlines()]
            fields = [
                re.split(r"[ *]", line.rstrip(";"))[-1]
                for line in lines
                if line.endswith(";") and not line.startswith("//")
            ]
            assert fields == [field for field, *_ in struct._fields_], c_name
            checked += 1
    assert checked >= 12


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


def readme_example() -> str:
    programs = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    assert len(programs) == 1
    return str(programs[0])


def test_the_python_example_of_the_readme_runs_as_it_is_written(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").symlink_to(folder)
    done = subprocess.run(
        [sys.executable, "-c", readme_example()], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


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
    kept = {name: value for name, value in os.environ.items() if not re.match("ROWDEX_|PYTHON|CARGO|RUST", name)}
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
    others = {"datasets", "pytorch-lightning", "simplejpeg", "torchtitan", "torchvision", "trl", "xgboost-cpu"}
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
