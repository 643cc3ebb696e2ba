"""What `rowdex doctor` says of this machine, of machines described in folders, and of indexes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex import doctor

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def run_doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rowdex", "doctor", *arguments]
    environ = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)


def machine_of(root: pathlib.Path, limit: int | str) -> pathlib.Path:
    """A machine of 64 GiB, where a control group above that of the process limits memory."""
    for name, text in {
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemFree: 1000000 kB\n",
        "proc/self/cgroup": "1:cpu:/other\n0::/job/task\n",
        "sys/fs/cgroup/job/memory.max": f"{limit}\n",
        "sys/fs/cgroup/job/task/memory.max": "max\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def said(report: doctor.Report, level: str, text: str) -> doctor.Finding:
    """The one finding that says this."""
    (found,) = (finding for finding in report.findings if text in finding.says)
    assert found.level == level and found.do
    return found


def test_it_prints_facts_and_the_same_as_json(index: str) -> None:
    done = run_doctor(index)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (rowdex.__version__, "rank 0 of 1", "memory", "processors", "1003"):
        assert line in done.stdout, line
    told = json.loads(run_doctor(index, "--json").stdout)
    assert told["rows"] == 1003 and told["files"] == 3 and told["row_groups"] == 12
    assert told["findings"] == [] and told["packages"]["pyarrow"] == pa.__version__


def test_it_imports_no_framework() -> None:
    program = """
import sys, rowdex.doctor
rowdex.doctor.examine()
print(sorted({"torch", "numpy", "pyarrow", "ray"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["[]"], done.stderr


def test_every_package_that_rowdex_imports_is_among_those_it_looks_for() -> None:
    called = {"PIL": "pillow", "nvidia": "nvidia-dali-cuda120", "sklearn": "scikit-learn"}
    imported = set()
    for path in pathlib.Path(rowdex.__file__).parent.rglob("*.py"):
        text = path.read_text()
        imported |= set(re.findall(r"^\s*(?:import|from) ([A-Za-z]\w*)", text, re.MULTILINE))
        imported |= set(re.findall(r'(?:import_module|loaded)\("([A-Za-z]\w*)', text))
    # Type checkers alone import the second one.
    others = imported - sys.stdlib_module_names - {"rowdex", "typing_extensions"}
    assert {"torch", "grain", "PIL"} <= others
    assert {called.get(name, name.replace("_", "-")) for name in others} <= set(doctor.FRAMEWORKS)


def test_wrong_usage_is_told_with_status_2() -> None:
    assert run_doctor("a", "b").returncode == 2


def test_a_launcher_that_cannot_be_understood_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in zip(VARIABLES, "3412"):
        monkeypatch.setenv(name, value)
    assert doctor.examine().facts["launch"] == "rank 3 of 4 (torchrun)"
    monkeypatch.delenv("WORLD_SIZE")
    said(doctor.examine(), "wrong", "WORLD_SIZE")
    assert run_doctor(RANK="3").returncode == 1


def test_loaders_that_have_no_room_are_wrong(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.examine(machine=machine_of(tmp_path, "max")).findings == []
    machine = machine_of(tmp_path, 4 << 30)
    assert doctor.examine(machine=machine).facts["memory_limit_bytes"] == 4 << 30
    for name, value in zip(VARIABLES, ("0", "64", "0", "64")):
        monkeypatch.setenv(name, value)
    report = doctor.examine(machine=machine)
    assert f"memory={16 << 20}" in said(report, "wrong", "64 ranks here may use 4096 MiB").do
    said(report, "slow", "64 ranks of this machine share")
    assert doctor.examine(machine=tmp_path / "nowhere").facts["processors"] >= 1


def test_files_that_are_missing_or_of_another_size_are_wrong(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    shutil.copytree(folder, tmp_path / "data")
    index = tmp_path / "data/train.rdx"
    files = sorted((tmp_path / "data").glob("*.parquet"))
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes() + b"x")
    report = doctor.examine(index)
    said(report, "wrong", f"{files[0]} is not there")
    said(report, "wrong", f"{files[1]} has another size")
    said(doctor.examine(tmp_path / "none.rdx"), "wrong", "none.rdx")


def test_small_row_groups_are_slow(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({"id": range(500)}), tmp_path / "a.parquet", row_group_size=2)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    said(doctor.examine(tmp_path / "a.rdx"), "slow", "row groups have")
