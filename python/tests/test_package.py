"""What is installed, and what is not imported."""

from __future__ import annotations

import importlib.metadata
import pathlib
import re
import subprocess
import sys
import sysconfig

import pytest
import rowdex

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
            fields = [re.split(r"[ *]", line.rstrip(";"))[-1] for line in lines if line.endswith(";") and not line.startswith("//")]
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
        "another version": "version 99 of the C API and this package needs version 1", "an older one": "it is older than this package",
    }  # fmt: skip
    assert done.returncode == 1
    assert "ImportError" in done.stderr and says[case] in done.stderr and str(library) in done.stderr


@pytest.mark.skipif(not INSTALLED, reason="it is not installed")
def test_the_wheel_has_library_header_and_command() -> None:
    package = pathlib.Path(rowdex.__file__).parent
    assert (package / "librowdex.so").is_file() and (package / "include/rowdex.h").is_file() and (package / "py.typed").is_file()
    wheel = importlib.metadata.distribution("rowdex").read_text("WHEEL") or ""
    assert re.search(r"^Tag: py3-none-\w+$", wheel, re.M) and "any" not in wheel
    command = pathlib.Path(sysconfig.get_path("scripts")) / "rowdex"
    done = subprocess.run([command, "--version"], capture_output=True, text=True)
    assert done.stdout.split() == ["rowdex", rowdex.__version__]


def test_the_python_example_of_the_readme_runs_as_it_is_written(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    programs = re.findall(r"```python\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.S)
    assert len(programs) == 1
    (tmp_path / "data").symlink_to(folder)
    done = subprocess.run([sys.executable, "-c", programs[0]], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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
