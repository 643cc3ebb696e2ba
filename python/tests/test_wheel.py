"""What a wheel says of its contents."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def wheel() -> Iterator[zipfile.ZipFile]:
    path = os.environ.get("ROWDEX_WHEEL")
    if not path:
        pytest.skip("ROWDEX_WHEEL names no wheel; tools/python.sh makes one")
    with zipfile.ZipFile(path) as archive:
        yield archive


def read(wheel: zipfile.ZipFile, name: str) -> bytes:
    """A file whose path ends with this."""
    [found] = [path for path in wheel.namelist() if path.endswith(name)]
    return wheel.read(found)


def packages(wheel: zipfile.ZipFile) -> dict[str, str]:
    """The Rust packages that it names, and their licences."""
    listed = json.loads(read(wheel, ".dist-info/sboms/rowdex.cdx.json"))
    parts = [listed["metadata"]["component"], *listed["components"]]
    return {f"{part['name']}-{part['version']}": part["licenses"][0]["expression"] for part in parts}


def test_a_wheel_names_every_package_whose_code_is_in_its_library(wheel: zipfile.ZipFile) -> None:
    # The compiler writes where a panic comes from into the library, with the folder of the package in the registry.
    inside = {
        package.decode() for package in re.findall(rb"/registry/src/[^/]+/([^/\0]+)/", read(wheel, "librowdex.so"))
    }
    named = packages(wheel)
    assert len(inside) > 50 and inside <= set(named)
    assert {name.split("-0.")[0] for name in named if name.startswith("rowdex")} >= {"rowdex", "rowdex-share"}
    # What takes part in a build alone is not in it.
    assert not [name for name in named if re.match("cc-|syn-|proc-macro2-|proptest-|criterion-", name)]


def test_a_wheel_has_the_licences_of_all_that_is_in_it(wheel: zipfile.ZipFile) -> None:
    third_party = read(wheel, ".dist-info/licenses/THIRD-PARTY.txt").decode()
    told = set(re.findall(r"^([a-z]\S*) (\d\S*) \((.+)\)$", third_party, re.M))
    foreign = {name: licence for name, licence in packages(wheel).items() if not re.match(r"rowdex|std-\d", name)}
    assert {f"{name}-{version}": licence for name, version, licence in told} == foreign
    for text in ("Permission is hereby granted, free of charge", "Apache License", "Copyright (c) Meta Platforms"):
        assert text in third_party
    assert b"rowdex" in read(wheel, ".dist-info/licenses/LICENSE-MIT").lower()
    assert b"Apache License" in read(wheel, ".dist-info/licenses/LICENSE-APACHE")
    assert b"</html>" in read(wheel, ".dist-info/licenses/COPYRIGHT-library.html").lower()
