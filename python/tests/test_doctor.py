"""What `rowdex doctor` says of this machine, of machines described in folders, and of indexes."""

from __future__ import annotations

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex import doctor
from rowdex.doctor.machine import Machine, cached

MEMINFO = (
    "MemTotal:       67108864 kB\nMemFree:         1000000 kB\nMemAvailable:   33554432 kB\nHugePages_Total:       0\n"
)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (name for names in doctor.LAUNCHERS.values() for name in names):
        monkeypatch.delenv(name, raising=False)
    for name in ("OMP_NUM_THREADS", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)


def machine_of(root: pathlib.Path, **files: str) -> Machine:
    """A machine with these files, `__` for `/`, over one of 64 GiB that limits nothing."""
    files = {"proc__meminfo": MEMINFO, "proc__self__cgroup": "0::/job/task\n"} | files
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(root)


def run_doctor(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rowdex", "doctor", *arguments]
    environ = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environ)


def findings(report: doctor.Report, about: str) -> list[doctor.Finding]:
    return [finding for finding in report.findings if finding.about == about]


def said(report: doctor.Report, level: str, about: str, text: str) -> doctor.Finding:
    """The one finding that says this."""
    found = [finding for finding in findings(report, about) if text in finding.says]
    assert len(found) == 1 and found[0].level == level, report.findings
    return found[0]


def test_it_prints_versions_launch_limits_memory_processors_and_pages() -> None:
    done = run_doctor()
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        f"rowdex {rowdex.__version__}",
        "rank 0 of 1",
        "open files",
        "control group limit",
        "usable",
        "huge pages",
    ):
        assert line in done.stdout, line
    assert max(map(len, done.stdout.splitlines())) <= 120


def test_json_has_the_same_facts_and_findings(index: str) -> None:
    done = run_doctor(index, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert list(told) == ["versions", "launch", "limits", "memory", "processors", "huge_pages", "index", "findings"]
    assert told["index"]["rows"] == 1003 and told["index"]["files"] == 3 and told["index"]["row_groups"] == 12
    assert told["index"]["files_missing"] == 0 and told["index"]["data_bytes"] > 0
    assert all(set(finding) == {"level", "about", "says", "do"} and finding["do"] for finding in told["findings"])


def test_it_imports_no_framework_and_names_those_that_are_installed() -> None:
    program = """
import sys, rowdex.doctor
report = rowdex.doctor.examine()
print(sorted({"torch", "numpy", "pyarrow", "ray"} & set(sys.modules)))
print(report.sections["versions"]["packages"]["pyarrow"])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["[]", pa.__version__], done.stderr


def test_every_package_that_rowdex_imports_is_among_those_it_looks_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = {"PIL": "pillow", "nvidia": "nvidia-dali-cuda120", "sklearn": "scikit-learn"}
    imported = set()
    for path in pathlib.Path(rowdex.__file__).parent.rglob("*.py"):
        text = path.read_text()
        imported |= set(re.findall(r"^\s*(?:import|from) ([A-Za-z]\w*)", text, re.MULTILINE))
        imported |= set(re.findall(r'(?:import_module|loaded)\("([A-Za-z]\w*)', text))
    # Type checkers alone import the second one.
    others = imported - sys.stdlib_module_names - {"rowdex", "typing_extensions"}
    assert {"torch", "grain", "PIL"} <= others
    names = {called.get(name, name.replace("_", "-")) for name in others}
    assert names <= set(doctor.FRAMEWORKS), names - set(doctor.FRAMEWORKS)
    # And those that it works with, under the names that they are installed by.
    for name in names | {"trl", "datasets", "nvidia-dali-cuda130"}:
        folder = tmp_path / f"{name.replace('-', '_')}-99.1.dist-info"
        folder.mkdir(exist_ok=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 99.1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    packages = doctor.examine().sections["versions"]["packages"]
    for name in names | {"trl", "datasets", "nvidia-dali-cuda130"}:
        assert packages[name] == "99.1"


def test_wrong_usage_is_told_with_status_2() -> None:
    assert run_doctor("a", "b").returncode == 2


def test_the_rank_is_what_the_launcher_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}.items():
        monkeypatch.setenv(name, value)
    launch = doctor.examine().sections["launch"]
    assert launch["taken_as"] == "rank 5 of 16, local rank 1 of 4 (torchrun)"
    assert (launch["rank"], launch["world_size"], launch["launcher"]) == (5, 16, "torchrun")
    assert launch["variables"]["LOCAL_WORLD_SIZE"] == "4"


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and RANK is not"),
        ({"RANK": "3", "WORLD_SIZE": "2"}, "RANK"),
        ({"RANK": "0", "WORLD_SIZE": "2", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}, "SLURM_PROCID"),
    ],
)
def test_variables_that_make_no_sense_are_wrong(variables: dict[str, str], says: str) -> None:
    done = run_doctor(**variables)
    assert done.returncode == 1 and "wrong: launch: " in done.stdout and says in done.stdout
    assert "rank 0 of 1" not in done.stdout


def test_the_limit_of_open_files_is_that_of_the_process(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for number in range(20):
        shutil.copy(folder / "part-0.parquet", tmp_path / f"{number}.parquet")
    rowdex.build(tmp_path, tmp_path / "many.rdx")
    command = f'ulimit -S -n 64; exec "{sys.executable}" -m rowdex doctor "{tmp_path / "many.rdx"}" --json'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120)
    told = json.loads(done.stdout)
    assert told["limits"]["open_files"] == 64 and told["limits"]["data_files_kept_open"] == 16
    slow = [finding for finding in told["findings"] if finding["about"] == "limits"]
    assert len(slow) == 1 and "20 files" in slow[0]["says"] and slow[0]["do"].startswith("ulimit -n 80")


@pytest.mark.skipif(not shutil.which("taskset"), reason="there is no taskset")
def test_the_processors_are_those_that_nproc_counts() -> None:
    program = "import rowdex.doctor as d; print(d.examine().sections['processors']['affinity'])"
    for prefix in ([], ["taskset", "-c", "0"]):
        nproc = subprocess.run([*prefix, "nproc"], capture_output=True, text=True, check=True)
        done = subprocess.run([*prefix, sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
        assert done.stdout == nproc.stdout


def test_a_control_group_limits_memory_wherever_above_the_process_it_is(tmp_path: pathlib.Path) -> None:
    cases: dict[str, dict[str, str]] = {
        "its own": {"sys__fs__cgroup__job__task__memory.max": str(8 << 30)},
        "above": {"sys__fs__cgroup__job__task__memory.max": "max", "sys__fs__cgroup__job__memory.max": str(8 << 30)},
        "seen from a container": {"sys__fs__cgroup__memory.max": str(8 << 30)},
        "version 1": {
            "proc__self__cgroup": "4:memory:/job\n0::/\n",
            "sys__fs__cgroup__memory__memory.limit_in_bytes": "9223372036854771712",
            "sys__fs__cgroup__memory__job__memory.limit_in_bytes": str(8 << 30),
        },
    }
    for number, files in enumerate(cases.values()):
        machine = machine_of(tmp_path / str(number), **files)
        memory = machine.memory()
        assert memory is not None and (memory.total, memory.available) == (64 << 30, 32 << 30)
        assert memory.limit == memory.usable == 8 << 30
        said(doctor.examine(machine=machine), "note", "memory", "8.0 GiB of 64.0 GiB")


def test_a_limit_above_the_memory_of_the_machine_is_none(tmp_path: pathlib.Path) -> None:
    memory = machine_of(tmp_path, **{"sys__fs__cgroup__job__memory.max": str(1 << 62)}).memory()
    assert memory is not None and memory.limit is None and memory.usable == 64 << 30


def test_loaders_that_do_not_fit_into_the_memory_are_wrong(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = machine_of(tmp_path, **{"sys__fs__cgroup__job__memory.max": str(4 << 30)})
    assert not [finding for finding in doctor.examine(machine=machine).findings if finding.level == "wrong"]
    for name, value in {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    finding = said(doctor.examine(machine=machine), "wrong", "memory", "8 ranks on this machine may use 4.0 GiB")
    assert f"memory={128 << 20}" in finding.do


def test_a_quota_below_the_processors_is_slow_unless_threads_are_limited(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(16)))
    two = machine_of(tmp_path / "2", **{"sys__fs__cgroup__job__cpu.max": "150000 100000"})
    one = machine_of(
        tmp_path / "1",
        **{
            "proc__self__cgroup": "3:cpu,cpuacct:/job\n",
            "sys__fs__cgroup__cpu__job__cpu.cfs_quota_us": "150000",
            "sys__fs__cgroup__cpu__job__cpu.cfs_period_us": "100000",
        },
    )
    for machine in (one, two):
        report = doctor.examine(machine=machine)
        assert report.sections["processors"]["usable"] == 2
        assert said(report, "slow", "processors", "1.5 of 16").do == "set OMP_NUM_THREADS=2"
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert not findings(doctor.examine(machine=two), "processors")
    free = machine_of(tmp_path / "free", **{"sys__fs__cgroup__job__cpu.max": "max 100000"})
    assert doctor.examine(machine=free).sections["processors"]["usable"] == 16


def test_huge_pages_are_asked_for_where_the_kernel_wants_that(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "sys__kernel__mm__transparent_hugepage__enabled"
    said(
        doctor.examine(machine=machine_of(tmp_path / "a", **{name: "always madvise [never]"})),
        "slow",
        "huge_pages",
        "none",
    )
    asks = machine_of(tmp_path / "b", **{name: "always [madvise] never"})
    said(doctor.examine(machine=asks), "note", "huge_pages", "malloc does not ask")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.malloc.hugetlb=1")
    assert not findings(doctor.examine(machine=asks), "huge_pages")
    always = machine_of(tmp_path / "c", **{name: "[always] madvise never"})
    assert not findings(doctor.examine(machine=always), "huge_pages")


def test_an_index_that_is_none_is_wrong(tmp_path: pathlib.Path) -> None:
    (tmp_path / "x.rdx").write_bytes(b"no index" * 100)
    for name in ("x.rdx", "absent.rdx"):
        done = run_doctor(str(tmp_path / name))
        assert done.returncode == 1 and "wrong: index: " in done.stdout and name in done.stdout


def test_data_files_that_are_missing_or_have_another_size_are_wrong(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    for number in range(3):
        shutil.copy(folder / f"part-{number}.parquet", tmp_path)
    rowdex.build(tmp_path, tmp_path / "t.rdx")
    assert not [finding for finding in doctor.examine(tmp_path / "t.rdx").findings if finding.level == "wrong"]
    (tmp_path / "part-0.parquet").unlink()
    with open(tmp_path / "part-1.parquet", "ab") as file:
        file.write(b"more")
    report = doctor.examine(tmp_path / "t.rdx")
    said(report, "wrong", "index", "1 of 3 data files cannot be seen below")
    assert "rowdex build --update" in said(report, "wrong", "index", "another size").do


def test_small_row_groups_are_slow(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({"x": range(1000)}), tmp_path / "x.parquet", row_group_size=5)
    rowdex.build(tmp_path, tmp_path / "t.rdx")
    said(doctor.examine(tmp_path / "t.rdx"), "slow", "index", "row groups have")


MOUNTS = """\
22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
23 22 0:21 / /mnt/data\\040of\\040all rw - nfs4 server:/export rw
24 22 8:17 / /mnt/disk rw,noatime - xfs /dev/sdb1 rw
25 22 0:50 / /mnt/disk/tmp rw - tmpfs tmpfs rw
"""


def test_a_path_is_on_the_innermost_mount(tmp_path: pathlib.Path) -> None:
    machine = machine_of(
        tmp_path,
        proc__self__mountinfo=MOUNTS,
        **{
            "sys__dev__block__254:1__queue__rotational": "0\n",
            "sys__dev__block__8:17__dev": "",
            "sys__dev__block__queue__rotational": "1\n",
        },
    )
    mount: Any = machine.mount("/mnt/data of all/x")
    assert (mount.file_system, mount.source, mount.network) == ("nfs4", "server:/export", True)
    mount = machine.mount("/mnt/data")
    assert (mount.file_system, mount.rotational, mount.network) == ("ext4", False, False)
    mount = machine.mount("/mnt/disk/x")
    assert (mount.file_system, mount.rotational) == ("xfs", True)
    assert machine.mount("/mnt/disk/tmp").file_system == "tmpfs"  # type: ignore[union-attr]
    assert machine.mount("/mnt/diskette").file_system == "ext4"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "said", "turns"),
    [("/dev/vda1", "1", None), ("/dev/xvdf", "1", None), ("/dev/vda1", "0", False), ("/dev/sda1", "1", True)],
)
def test_a_virtual_disk_that_is_said_to_turn_may_be_anything(
    tmp_path: pathlib.Path, source: str, said: str, turns: bool | None
) -> None:
    machine = machine_of(
        tmp_path,
        proc__self__mountinfo=f"22 1 254:1 / / rw - ext4 {source} rw\n",
        **{"sys__dev__block__254:1__queue__rotational": f"{said}\n"},
    )
    mount = machine.mount("/data")
    assert mount is not None and mount.rotational is turns


def test_data_on_a_network_is_slow(folder: pathlib.Path, index: str, tmp_path: pathlib.Path) -> None:
    there = str(folder.resolve()).replace(" ", "\\040")
    machine = machine_of(
        tmp_path, proc__self__mountinfo=f"1 0 0:9 / / rw - ext4 /dev/vda rw\n2 1 0:10 / {there} rw - nfs a:/b rw\n"
    )
    assert "DiskTier" in said(doctor.examine(index, machine=machine), "slow", "index", "its data is on nfs (a:/b)").do


@pytest.mark.skipif(not shutil.which("findmnt"), reason="there is no findmnt")
def test_the_file_system_is_the_one_that_findmnt_names(index: str) -> None:
    for path in (index, "/dev/shm", "/proc"):
        told = subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "-T", path], capture_output=True, text=True)
        mount = Machine().mount(path)
        if told.returncode == 0:
            assert mount is not None and mount.file_system == told.stdout.split()[-1]


@pytest.mark.skipif(not shutil.which("fincore"), reason="there is no fincore")
def test_the_pages_in_the_cache_are_those_that_fincore_counts(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "pages"
    path.write_bytes(os.urandom(100_001))
    # Pages are dropped from the cache once they are on the disk; some file systems are memory, and keep them.
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        counted = subprocess.run(
            ["fincore", "-n", "-b", "-o", "PAGES", path], capture_output=True, text=True, check=True
        )
        assert cached(str(path)) == (int(counted.stdout), 25)
        file.read()
    assert cached(str(path)) == (25, 25)
    (tmp_path / "empty").touch()
    assert cached(str(tmp_path / "empty")) == (0, 0)
    assert cached(str(tmp_path / "absent")) is None


def test_a_reader_that_has_read_enough_is_no_error_and_a_full_disk_is_one_line() -> None:
    command = [sys.executable, "-m", "rowdex", "doctor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        assert run.stderr.read() == b"" and run.wait(60) == 0
    if os.path.exists("/dev/full"):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
        assert done.returncode == 1 and done.stderr.startswith("rowdex: cannot write to stdout"), done.stderr
        assert len(done.stderr.splitlines()) == 1
