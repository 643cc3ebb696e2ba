"""The two programs of each page on coming from another loader, both run on the same files."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import pyarrow
import pytest
import rowdex

from ..conftest import REPOSITORY
from .conftest import ROWS
from .need import need, need_peer

need("torch", "pyarrow")
FOLDER = REPOSITORY / "docs/coming-from"
PROGRAM = re.compile(r'^```python title="(.*?)"\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PEERS = {"datasets": "datasets", "grain": "grain", "ray": "ray", "distributed-sampler": "torch"}
"""What the program of before imports, by page."""
COPIES = {
    "webdataset": ("webdataset", "tars"),
    "litdata": ("litdata", "chunks"),
    "mosaicml-streaming": ("streaming", "mds"),
    "lancedb": ("lancedb", "tables"),
}
"""The same for loaders that have a format of their own, and the folder of their copy."""


@pytest.fixture()
def place(unequal: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """``data/`` and ``train.rdx``, as all pages expect them."""
    # Each page has its own, because some programs leave files beside the data.
    place = tmp_path / "here"
    shutil.copytree(unequal, place / "data", ignore=shutil.ignore_patterns("*.rdx"))
    rowdex.build(place / "data", place / "train.rdx")
    return place


def seen(program: str, place: pathlib.Path, peers: str = "") -> list[int]:
    """The ids that a program saw."""
    told = run(f"{program}\nimport json\nprint()\nprint(json.dumps(seen))\n", place, peers)
    found: list[int] = json.loads(told.strip().splitlines()[-1])
    return found


def run(program: str, place: pathlib.Path, peers: str = "") -> str:
    """What a program printed, which finds packages in the folder ``peers`` first."""
    paths = filter(None, [peers, os.environ.get("PYTHONPATH")])
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(place / "hub"), "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
    # Not a cluster that somebody else has on this machine.
    offline["RAY_ADDRESS"] = "local"
    offline["PYTHONPATH"] = os.pathsep.join(paths)
    # As a file, which processes that are spawned import again.
    file = place / "program.py"
    file.write_text(program)
    # MosaicML's and LitData's leave files with names of their own in the folder for temporary files.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        done = subprocess.run(
            [sys.executable, file.name], cwd=place, capture_output=True, text=True, timeout=300,
            env={**os.environ, **offline, **({"TMPDIR": scratch} if peers else {})},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def programs(page: str) -> list[tuple[str, str]]:
    return PROGRAM.findall((FOLDER / f"{page}.md").read_text())


def test_every_page_is_in_a_list_and_has_all_parts() -> None:
    pages = {path.stem for path in FOLDER.glob("*.md")} - {"index"}
    assert pages == {*PEERS, *COPIES, "petastorm", "dali"}
    for page in pages:
        text = (FOLDER / f"{page}.md").read_text()
        for part in ("What is the same", "What changes", "What you lose", "Going back"):
            assert f"\n## {part}\n" in text, (page, part)
        assert f"({page}.md)" in (FOLDER / "index.md").read_text()


@pytest.mark.parametrize("page", ["datasets", "grain", "petastorm", "ray"])
def test_both_programs_of_a_page_serve_every_row_once(page: str, place: pathlib.Path) -> None:
    if page in PEERS:
        need(PEERS[page])
    found = programs(page)
    assert found
    for title, program in found:
        rows = seen(program, place)
        assert sorted(rows) == list(range(ROWS)), title
        assert title.startswith("before: streaming") or rows != sorted(rows), title


def test_the_sampler_of_pytorch_and_its_order_here_serve_the_same_rows(place: pathlib.Path) -> None:
    (_, before), (_, after) = programs("distributed-sampler")
    assert seen(before, place) == seen(after, place)


@pytest.mark.parametrize("page", COPIES)
def test_a_copy_is_made_served_and_becomes_parquet_files_with_the_same_rows(
    page: str, place: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    name, folder = COPIES[page]
    peers = need_peer(name)
    found = {title.split(":")[0]: program for title, program in programs(page)}
    run(found["back"], place, peers)
    before = seen(found["before"], place, peers)
    assert sorted(before) == list(range(ROWS)) and before != sorted(before)
    # The way here begins with nothing but the copy.
    new = tmp_path / "new"
    new.mkdir()
    shutil.move(place / folder, new / folder)
    run(found["once"], new, peers)
    after = seen(found["after"], new)
    assert sorted(after) == list(range(ROWS)) and after != sorted(after)
    rows = [pyarrow.table(rowdex.Dataset(at / "train.rdx")).sort_by("id").to_pydict() for at in (place, new)]
    assert rows[0] == rows[1]
