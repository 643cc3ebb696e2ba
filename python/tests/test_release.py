"""What makes a release: its notes, and the workflows."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

from .conftest import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github/workflows").glob("*.yml"))


def release(tag: str, root: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(REPOSITORY / "tools/release.py"), tag, str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("tag", "head", "says"),
    [
        ("v1.2.3", "1.2.3 (2026-10-01)", ""),
        ("v1.2.4", "1.2.3 (2026-10-01)", "the tag is v1.2.4, and Cargo.toml has the version '1.2.3'"),
        ("1.2.3", "1.2.3 (2026-10-01)", "the tag is 1.2.3, and"),
        ("v1.2.3", "1.2.3 (unreleased)", "is '1.2.3 (unreleased)', and not '1.2.3 (YEAR-MONTH-DAY)'"),
        ("v1.2.3", "1.2.30 (2026-10-01)", "is '1.2.30 (2026-10-01)', and not"),
    ],
)
def test_a_release_has_the_notes_of_its_version_or_is_none(
    tmp_path: pathlib.Path, tag: str, head: str, says: str
) -> None:
    (tmp_path / "Cargo.toml").write_text('[package]\nname = "x"\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text(f"# Changes\n\n## {head}\n\n- More.\n\n## 1.2.2 (2026-09-01)\n\n- Less.\n")
    done = release(tag, tmp_path)
    assert says in done.stderr and done.returncode == bool(says)
    assert done.stdout == ("" if says else "- More.\n")


def test_a_release_of_this_repository_is_refused_or_has_notes() -> None:
    version = re.search(r'^version = "(.+)"$', (REPOSITORY / "Cargo.toml").read_text(), re.MULTILINE)
    assert version
    done = release(f"v{version[1]}", REPOSITORY)
    assert done.stdout.startswith("- ") or "(unreleased)" in done.stderr


def test_workflows_run_what_is_there_and_give_each_job_what_it_needs_alone() -> None:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    assert {path.stem for path in WORKFLOWS} == {"check", "nightly", "release", "wheels"}
    for path in WORKFLOWS:
        whole = yaml.safe_load(path.read_text())
        assert whole["permissions"] == {"contents": "read"}, path
        for name, job in whole["jobs"].items():
            assert set(job.get("needs", "").split()) <= set(whole["jobs"])
            # A job that may write or publish runs for a tag or for main alone.
            writes = {what for what, how in job.get("permissions", {}).items() if how == "write"}
            assert not writes or path.stem in {"nightly", "release"}, name
            assert "id-token" not in writes or job.get("environment"), f"{name} publishes without an environment"
            for called in filter(None, [job.get("uses")]):
                assert (REPOSITORY / called).is_file()
            for step in job.get("steps", []):
                assert ("run" in step) != ("uses" in step), step
                for tool in re.findall(r"tools/[\w/]+\.(?:sh|py)", step.get("run", "")):
                    assert (REPOSITORY / tool).is_file(), tool
                assert re.fullmatch(r"[\w-]+/[\w-]+@(release/)?v\d+", step.get("uses", "actions/x@v1")), step
