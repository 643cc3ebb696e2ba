"""Checks a wheel of rowdex: python check_wheel.py WHEEL.

It has the library, the header, the types, pages for programs that write code, the licences and a list of what it is
made of, and no symbols for debugging. The library is for the processors that its name says. If this machine has these,
the wheel installs into an empty environment without a network and without Rust, and works there, and so does its
command, which the library has.
"""

from __future__ import annotations

import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from elftools.elf.elffile import ELFFile

LIBRARY, HEADER, TYPED = "rowdex/librowdex.so", "rowdex/include/rowdex.h", "rowdex/py.typed"
SKILL = "rowdex/skill/SKILL.md"
CONTENTS = "sboms/rowdex.cdx.json"
TEXTS = ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt", "COPYRIGHT-library.html")
# What ELF calls the processors of a wheel's name.
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}


def machine_of(wheel: pathlib.Path) -> str:
    """The processors that a wheel is for, by its name."""
    return next(name for name in MACHINES if wheel.stem.endswith(name))


def check_contents(wheel: pathlib.Path) -> list[str]:
    """What is wrong with the files of a wheel."""
    wrong = []
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(name for name in names if name.endswith(".dist-info/WHEEL"))
        told = [metadata.replace("WHEEL", name) for name in (CONTENTS, *(f"licenses/{text}" for text in TEXTS))]
        for name in (LIBRARY, HEADER, TYPED, SKILL, "rowdex/__main__.py", *told):
            if name not in names:
                wrong.append(f"it has no {name}")
        if told[0] in names:
            invalid = JsonStrictValidator(SchemaVersion.V1_6).validate_str(archive.read(told[0]).decode())
            wrong += [f"{told[0]} is no CycloneDX: {invalid}"] if invalid else []
        # A link that became a file has the name of another one in it.
        short = [name for name in told[1:] if name in names and len(archive.read(name)) < 1000]
        wrong += [f"{name} is no licence" for name in short]
        strangers = [name for name in names if not name.startswith(("rowdex/", "rowdex-"))]
        if strangers:
            wrong.append(f"it has {strangers}")
        tags = [line for line in archive.read(metadata).decode().splitlines() if line.startswith("Tag: ")]
        if len(tags) != 1 or not tags[0].startswith("Tag: py3-none-manylinux_"):
            wrong.append(f"its tags are {tags}")
        if LIBRARY in names:
            with archive.open(LIBRARY) as file:
                elf = ELFFile(file)
                kept = [section.name for section in elf.iter_sections()]
                if elf["e_machine"] != MACHINES[machine_of(wheel)]:
                    wrong.append(f"{LIBRARY} is for {elf['e_machine']}")
            symbols = [section for section in kept if section in {".symtab", ".debug_info", ".debug_line"}]
            if symbols:
                wrong.append(f"{LIBRARY} is not stripped: it has {symbols}")
    return wrong


def without_rust(path: str) -> str:
    """A ``PATH`` without the folders that have cargo, but for those of the system."""
    kept = [
        folder
        for folder in path.split(os.pathsep)
        if folder.startswith("/usr") or not shutil.which("cargo", path=folder)
    ]
    return os.pathsep.join(kept)


def check_installation(wheel: pathlib.Path) -> None:
    """Installs it into an empty environment, and asks it what it is."""
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("ROWDEX_", "CARGO", "PYTHON"))
    }
    environment |= {"PATH": without_rust(environment.get("PATH", "")), "CARGO": "/nonexistent/cargo"}
    with tempfile.TemporaryDirectory() as folder:

        def run(*command: str) -> str:
            done = subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True, timeout=300
            )
            return done.stdout

        run(sys.executable, "-m", "venv", f"{folder}/venv")
        python = f"{folder}/venv/bin/python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", str(wheel))
        version = wheel.name.split("-")[1]
        if run(f"{folder}/venv/bin/rowdex", "--version").split() != ["rowdex", version]:
            raise SystemExit(f"{wheel}: its command is not of version {version}")
        if run(python, "-c", "import rowdex; print(rowdex.__version__)").split() != [version]:
            raise SystemExit(f"{wheel}: its package is not of version {version}")
        run(f"{folder}/venv/bin/rowdex", "demo", "--keep", "demo")
        program = "import rowdex; print(len(rowdex.Dataset('demo/train.rdx')[[0, 1]]))"
        if run(python, "-c", program).split() != ["2"]:
            raise SystemExit(f"{wheel}: its package cannot read what its command writes")


def main() -> None:
    wheel = pathlib.Path(sys.argv[1]).resolve()
    wrong = check_contents(wheel)
    if wrong:
        raise SystemExit(f"{wheel}: " + "; ".join(wrong))
    size = f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB"
    if machine_of(wheel) != platform.machine():
        print(f"{size}; this machine cannot run it")
        return
    check_installation(wheel)
    print(f"{size}, installs without a network and without Rust, and works")


if __name__ == "__main__":
    main()
