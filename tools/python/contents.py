"""Writes what a wheel contains beside our own code: python contents.py FOLDER [ARGUMENT OF CARGO...]

FOLDER gets `rowdex.cdx.json`, a list of the Rust packages that library and command are made of (a software bill of
materials in CycloneDX's format), and the texts of their licences: `THIRD-PARTY.txt`, and those of Rust's own library as
its toolchain has them. The packages are those that `cargo tree` names for the target and the features of the arguments.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid
from typing import Any, NamedTuple

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parents[2]
CARGO = os.environ.get("CARGO", "cargo")
LICENCE = re.compile(r"(COPYING|LICEN[CS]E|UNLICENSE|NOTICE|COPYRIGHT)", re.IGNORECASE)
# Python 3.10 has no module for TOML, and cargo writes its entries in one way.
LOCKED = re.compile(r'^name = "(.+)"\nversion = "(.+)"\nsource = ".+"\nchecksum = "(.+)"$', re.MULTILINE)
STANDARD_LIBRARY = "COPYRIGHT-library.html"


class Package(NamedTuple):
    """A Rust package that is linked into the library or the command."""

    id: str
    name: str
    version: str
    licence: str
    folder: pathlib.Path
    repository: str
    ours: bool
    needs: frozenset[str]


def cargo(*arguments: str) -> str:
    """What cargo prints."""
    command = [CARGO, *arguments, "--manifest-path", str(ROOT / "Cargo.toml")]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def rustc(*arguments: str) -> str:
    """What the compiler prints."""
    command = [os.environ.get("RUSTC", "rustc"), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def chosen(arguments: list[str]) -> tuple[str, list[str]]:
    """The target of a build by cargo, and those of its arguments that decide which packages are in it."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--all-features", "--no-default-features", "--locked", "--offline", "--frozen"):
        parser.add_argument(flag, dest="flags", action="append_const", const=flag)
    parser.add_argument("--features", "-F", action="append", default=[])
    parser.add_argument("--target")
    known, _ = parser.parse_known_args(arguments)
    asked = known.target or os.environ.get("CARGO_BUILD_TARGET")
    target = asked or re.findall("^host: (.+)$", rustc("-vV"), re.MULTILINE)[0]
    return target, [*(known.flags or []), *(f"--features={names}" for names in known.features)]


def linked(arguments: list[str]) -> list[Package]:
    """The packages of library and command, ordered by name, without those that only take part in the build."""
    target, features = chosen(arguments)
    edges = ["--edges=normal,no-proc-macro", f"--target={target}"]
    tree = cargo("tree", "--package=rowdex", "--prefix=none", "--format={p}", *edges, *features)
    inside = {tuple(line.split()[:2]) for line in tree.splitlines()}
    metadata = json.loads(cargo("metadata", "--format-version=1", f"--filter-platform={target}", *features))
    needs = {
        node["id"]: frozenset(
            needed["pkg"] for needed in node["deps"] if any(kind["kind"] is None for kind in needed["dep_kinds"])
        )
        for node in metadata["resolve"]["nodes"]
    }
    packages = [
        package_of(package, needs[package["id"]])
        for package in metadata["packages"]
        if (package["name"], f"v{package['version']}") in inside
    ]
    return sorted(packages, key=lambda package: (package.name, package.version))


def package_of(told: dict[str, Any], needs: frozenset[str]) -> Package:
    """A package as `cargo metadata` tells it."""
    return Package(
        id=told["id"],
        name=told["name"],
        version=told["version"],
        # Old packages write a slash for OR.
        licence=re.sub(r"\s*/\s*", " OR ", told["license"] or ""),
        folder=pathlib.Path(told["manifest_path"]).parent,
        repository=told["repository"] or "",
        ours=told["source"] is None,
        needs=needs,
    )


def bill_of_materials(packages: list[Package]) -> str:
    """The packages and what needs what, in CycloneDX's JSON. It depends on nothing but them and Cargo.lock."""
    locked = (ROOT / "Cargo.lock").read_text()
    sums = {(name, version): checksum for name, version, checksum in LOCKED.findall(locked)}
    components = {package.id: component(package, sums.get((package.name, package.version))) for package in packages}
    whole = next(components[package.id] for package in packages if package.name == "rowdex")
    release = rustc("--version").split()[1]
    standard = Component(name="std", version=release, type=ComponentType.LIBRARY, bom_ref=f"rust-std@{release}")
    standard.licenses.add(LicenseExpression("MIT OR Apache-2.0"))
    standard.description = "Rust's standard library"
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, "\n".join([locked, release, *components])),
        components=[standard, *(part for part in components.values() if part is not whole)],
    )
    bom.metadata.component = whole
    for package in packages:
        needs = [components[needed] for needed in sorted(package.needs) if needed in components]
        bom.register_dependency(components[package.id], needs)
    told = json.loads(JsonV1Dot6(bom).output_as_string())
    # The time would make two wheels of one commit differ.
    del told["metadata"]["timestamp"]
    return json.dumps(told, indent=1, sort_keys=True) + "\n"


def component(package: Package, checksum: str | None) -> Component:
    """A package as CycloneDX tells it."""
    purl = PackageURL("cargo", name=package.name, version=package.version)
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        bom_ref=purl.to_string(),
        purl=purl,
        licenses=[LicenseExpression(package.licence)] if package.licence else [],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
    )


def texts(package: Package) -> list[str]:
    """The licence texts in a package, those of what it has from others too."""
    named = sorted(path for path in package.folder.rglob("*") if LICENCE.match(path.name) and path.is_file())
    files = [path for path in named if path.suffix not in {".rs", ".c", ".h"}]
    chosen = {path.parent for path in files if not path.name.startswith("COPYING")}
    # Beside a licence, COPYING says which others may be chosen: the GPL of zstd, which has the BSD licence, too.
    return [
        path.read_text(errors="replace").strip()
        for path in files
        if not (path.name.startswith("COPYING") and path.parent in chosen)
    ]


def third_party(packages: list[Package]) -> str:
    """Each licence text once, below the packages that have it.

    A package without one has the text of another from its repository, or the text of the Apache licence, which is the
    same for all. What then has none is named with where it comes from.
    """
    owners: dict[str, list[str]] = {}
    others = [package for package in packages if not package.ours]
    for package in others:
        found = texts(package)
        kin = [other for other in others if other.repository and other.repository == package.repository]
        for other in kin:
            found = found or texts(other)
        if not found and "Apache-2.0" in package.licence:
            found = [(ROOT / "LICENSE-APACHE").read_text().strip()]
        if not found:
            found = [f"The package has no text of its licence. It comes from {package.repository}"]
        for text in found:
            owner = f"{package.name} {package.version} ({package.licence})"
            if owner not in owners.setdefault(text, []):
                owners[text].append(owner)
    head = "The library and the command of rowdex are made of these Rust packages, too. Their licences:\n"
    rule = "\n" + "-" * 80 + "\n"
    return head + "".join(rule + "\n".join(names) + f"\n\n{text}\n" for text, names in owners.items())


def main(folder: pathlib.Path, arguments: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    packages = linked(arguments)
    (folder / "rowdex.cdx.json").write_text(bill_of_materials(packages))
    (folder / "THIRD-PARTY.txt").write_text(third_party(packages))
    standard = pathlib.Path(rustc("--print", "sysroot").strip(), "share/doc/rust", STANDARD_LIBRARY)
    # Toolchains of rustup have it.
    if standard.is_file():
        shutil.copyfile(standard, folder / STANDARD_LIBRARY)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2:])
