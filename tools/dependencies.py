#!/usr/bin/env python3
"""Checks what the packages depend on, by `cargo metadata` and Cargo.lock:

- licences: every package may be used under a licence that is listed here,
- sources: every package comes from the registry, with a checksum,
- bans: packages that must not come back, and why,
- the minimal Rust version: no package needs a newer one than `rust-version` of Cargo.toml,
- features: the library has of each package what the tests have of it, so that the gate compiles it once.

Advisories are not checked, since that needs their database and thus a network: `cargo audit` reads Cargo.lock as it is.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent

LICENCES = {
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
}

BANNED = {
    "aws-lc-sys": "ring does the same and builds in a fraction of the time",
    "native-tls": "rustls is what the stores use",
    "openssl-sys": "it needs a library of the system",
}


def usable(expression: str) -> bool:
    """Whether an SPDX expression allows use under the listed licences alone. `/` is how old packages write `OR`."""
    tokens = re.findall(r"\(|\)|[^\s()/]+|/", expression)

    def either(at: int) -> tuple[bool, int]:
        result, at = both(at)
        while at < len(tokens) and tokens[at] in ("OR", "/"):
            other, at = both(at + 1)
            result = result or other
        return result, at

    def both(at: int) -> tuple[bool, int]:
        result, at = one(at)
        while at < len(tokens) and tokens[at] == "AND":
            other, at = one(at + 1)
            result = result and other
        return result, at

    def one(at: int) -> tuple[bool, int]:
        if tokens[at] == "(":
            result, at = either(at + 1)
            return result, at + 1
        name, at = tokens[at], at + 1
        if at < len(tokens) and tokens[at] == "WITH":
            name, at = f"{name} WITH {tokens[at + 1]}", at + 2
        return name in LICENCES, at

    return either(0)[0]


def version(text: str) -> tuple[int, ...]:
    numbers = [int(part) for part in text.split(".")[:3]]
    return tuple(numbers + [0] * (3 - len(numbers)))


def wrong(package: dict[str, Any], ours: str) -> list[str]:
    """What is wrong with a package of `cargo metadata`."""
    found = []
    licence = package["license"]
    if licence is None or not usable(licence):
        found.append(f"its licence {licence or '(none)'} is not among those that tools/dependencies.py lists")
    if package["source"] is None or not package["source"].startswith("registry+"):
        found.append(f"it comes from {package['source'] or 'a folder'}, not from the registry")
    if package["name"] in BANNED:
        found.append(f"it is banned: {BANNED[package['name']]}")
    needed = package["rust_version"]
    if needed is not None and version(needed) > version(ours):
        found.append(f"it needs Rust {needed}, and rust-version is {ours}")
    return found


def chosen(*arguments: str) -> set[str]:
    """The packages that a build compiles, each with the features that it asks for."""
    command = ["cargo", "tree", "--locked", "--all-features", "--prefix", "none", "-f", "{p} ({f})", *arguments]
    lines = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {line.removesuffix(" (*)").strip() for line in lines}


def compiled_twice() -> list[str]:
    """What the library has with other features than the tests."""
    tested = chosen("--workspace", "-e", "normal,build,dev")
    alone = chosen("-p", "rowdex", "-p", "rowdex-cli", "-e", "normal,build") - tested
    return [f"{line}: the library alone has it with these features; give the tests the same" for line in alone]


def main() -> int:
    command = ["cargo", "metadata", "--locked", "--format-version", "1", "--all-features"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    own = packages[metadata["resolve"]["root"]]
    members = set(metadata["workspace_members"])
    problems = []
    for package in packages.values():
        if package["id"] not in members:
            problems += [
                f"{package['name']} {package['version']}: {what}" for what in wrong(package, own["rust_version"])
            ]
    lock = (ROOT / "Cargo.lock").read_text()
    for entry in lock.split("[[package]]")[1:]:
        if "source = " in entry and "checksum = " not in entry:
            problems.append(f"{entry.split(chr(34))[1]}: Cargo.lock has no checksum for it")
    toolchain = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    if version(toolchain.split()[1].split("-")[0]) < version(own["rust_version"]):
        problems.append(f"rustc is {toolchain.split()[1]}, older than rust-version {own['rust_version']}")
    problems += sorted(compiled_twice())
    for problem in problems:
        print(problem, file=sys.stderr)
    said = f"{len(packages) - len(members)} packages, {len(problems)} problems"
    print(said, file=sys.stderr if problems else sys.stdout)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
