"""Builds the library, which has the command, too, with cargo, and puts it into the wheel with the header."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

LIBRARY = "librowdex.dylib" if sys.platform == "darwin" else "librowdex.so"


class CargoBuild(BuildHookInterface[Any]):
    """`cargo`, and where its results go."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        repository = pathlib.Path(self.root).parent
        if not (repository / "Cargo.toml").is_file():
            raise RuntimeError("rowdex is built from its repository: pip install ./python")
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        # For another machine, if cargo's own variable says so.
        triple = os.environ.get("CARGO_BUILD_TARGET", "")
        if "-linux-" in triple:
            platform = f"linux_{triple.split('-')[0]}"
        build_data["pure_python"] = False
        # No part of it is compiled against Python, so it is for every Python 3 there is.
        build_data["tag"] = f"py3-none-{platform}"
        if version == "editable":
            # An editable installation finds the library by ROWDEX_LIBRARY or below target/.
            return
        target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", repository / "target"))
        if not target.is_absolute():
            target = repository / target
        profile = os.environ.get("ROWDEX_CARGO_PROFILE", "dist")
        common = ["--profile", profile, "--features", "full", "--target-dir", str(target)]
        common += ["--manifest-path", str(repository / "Cargo.toml")]
        common += shlex.split(os.environ.get("ROWDEX_CARGO_ARGS", ""))
        # For the last step only, so that what is compiled of the dependencies is shared with other builds. Users get no
        # symbols: they are five times the size of the code.
        last = ["-C", "strip=symbols"]
        linker = os.environ.get("ROWDEX_LINKER")
        if linker:
            last += ["-C", f"linker={linker}"]
        parts = ["--cfg", "rowdex_library", "--cfg", "rowdex_command"]
        self.cargo("rustc", "-p", "rowdex", *common, "--lib", "--crate-type", "cdylib", "--", *last, *parts)
        built = target / triple / ("debug" if profile == "dev" else profile)
        build_data["force_include"].update(
            {
                str(built / LIBRARY): f"rowdex/{LIBRARY}",
                str(repository / "include/rowdex.h"): "rowdex/include/rowdex.h",
            }
        )
        self.contents(repository, target / "wheel-contents", common, build_data)

    def contents(
        self, repository: pathlib.Path, folder: pathlib.Path, arguments: list[str], build_data: dict[str, Any]
    ) -> None:
        """Puts in which Rust packages are in it (PEP 770), and their licences."""
        shutil.rmtree(folder, ignore_errors=True)
        program = repository / "tools/python/contents.py"
        subprocess.run([sys.executable, str(program), str(folder), *arguments], check=True)
        licences = f"rowdex-{self.metadata.version}.dist-info/licenses"
        for path in folder.iterdir():
            if path.suffix == ".json":
                build_data["sbom_files"].append(str(path))
            else:
                build_data["force_include"][str(path)] = f"{licences}/{path.name}"

    def cargo(self, *arguments: str) -> None:
        cargo = os.environ.get("CARGO", "cargo")
        try:
            subprocess.run([cargo, *arguments], check=True)
        except FileNotFoundError:
            raise RuntimeError("building rowdex needs Rust: install it from https://rustup.rs") from None
