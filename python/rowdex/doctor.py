"""What rowdex finds on a machine, what is slow or wrong there, and what to do: ``rowdex doctor``.

:func:`examine` asks the operating system, the installed packages and, if one is named, an index. It reads no data,
imports no framework, and uses no network unless the index is at a URL.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from pathlib import Path
from typing import Any, Literal, NamedTuple

from . import __version__, native
from .errors import ArgumentError, Error
from .index import Index
from .launch import Launch
from .native.library import library, located

MIB = 1 << 20
LOADER_MEMORY = 1 << 30
"""What a ``Loader`` holds by default."""

MOST_FILES = 10_000  # that are looked at

FRAMEWORKS = (
    "numpy pyarrow torch torchdata torchvision pillow simplejpeg accelerate transformers trl datasets lightning "
    "pytorch-lightning ray grain jax nvidia-dali-cuda110 nvidia-dali-cuda120 nvidia-dali-cuda130 scikit-learn polars "
    "duckdb pandas tqdm"
).split()
"""The packages that rowdex works with."""


class Finding(NamedTuple):
    level: Literal["wrong", "slow"]
    says: str
    do: str


class Report(NamedTuple):
    facts: dict[str, Any]
    """By name. Sizes are in bytes."""
    findings: list[Finding]

    def to_text(self) -> str:
        width = max(map(len, self.facts))
        lines = [f"{name.replace('_', ' '):<{width}}  {_shown(name, value)}" for name, value in self.facts.items()]
        found = [f"{finding.level}: {finding.says}\n  -> {finding.do}" for finding in self.findings]
        return "\n".join([*lines, "", *(found or ["Nothing is wrong, and nothing is known to be slow."])])


def examine(index: str | os.PathLike[str] | None = None, *, machine: str | os.PathLike[str] = "/") -> Report:
    """Looks at this process and its machine, and at an index and its data files if one is named.

    ``machine`` is the folder that has ``proc`` and ``sys``.
    """
    report = Report({
        "rowdex": f"{__version__}, C API {native.ABI_VERSION}, {library._name}",
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": {name: version for name in FRAMEWORKS if (version := _version(name)) is not None},
    }, [])  # fmt: skip
    ranks = 1
    try:
        launch = Launch.from_env()
        report.facts["launch"] = f"rank {launch.rank} of {launch.world_size} ({launch.launcher})"
        ranks = launch.local_world_size or 1
    except ArgumentError as error:
        report.facts["launch"] = "rank 0 of 1, unless torch.distributed says otherwise"
        if not str(error).startswith("no launcher"):
            report.findings.append(Finding("wrong", str(error), error.hint or "set the variables of one launcher"))
    _machine(report, Path(machine), ranks)
    if index is not None:
        _index(report, index)
    return report


def _machine(report: Report, root: Path, ranks: int) -> None:
    processors = len(os.sched_getaffinity(0))
    report.facts["processors"] = processors
    if ranks > processors:
        says = f"{ranks} ranks of this machine share {processors} processors, and each Loader has its own 2 threads"
        report.findings.append(Finding("slow", says, "give the job more processors, or the loaders threads=1"))
    lines = [line.split() for line in _text(root / "proc/meminfo").splitlines()]
    total = next((int(words[1]) * 1024 for words in lines if words[0] == "MemTotal:"), None)
    if total is None:
        return
    usable = min([total, *_limits(root)])
    report.facts.update(memory_bytes=total, memory_limit_bytes=usable if usable < total else None)
    if ranks * LOADER_MEMORY > usable // 2:
        says = f"{ranks} ranks here may use {usable // MIB} MiB, and each Loader holds 1024 MiB by default"
        report.findings.append(Finding("wrong", says, f"give each Loader memory={max(usable // (4 * ranks), MIB)}"))


def _limits(root: Path) -> list[int]:
    """The limits of memory of the control group of this process, and of those above it."""
    group = next((line[3:] for line in _text(root / "proc/self/cgroup").splitlines() if line[:3] == "0::"), "/")
    folders = [root / "sys/fs/cgroup" / folder.relative_to("/") for folder in [Path(group), *Path(group).parents]]
    said = [_text(folder / "memory.max") for folder in folders]
    return [int(limit) for limit in said if limit.isdigit()]


def _index(report: Report, path: str | os.PathLike[str]) -> None:
    where = located(path)
    try:
        index = Index(path)
        files, groups = index.files, index.num_row_groups
    except (Error, OSError) as error:
        hint = error.hint if isinstance(error, Error) else None
        report.findings.append(Finding("wrong", str(error), hint or "name an index that `rowdex build` wrote"))
        return
    data = sum(file.size for file in files)
    report.facts.update(index=where, rows=len(index), files=len(files), row_groups=groups, data_bytes=data)
    if groups > 100 and data // groups < MIB:
        says = f"row groups have {data // groups} bytes on average, and small ones cost several times more a row"
        report.findings.append(Finding("slow", says, "write the data with larger row groups, or `rowdex rewrite` it"))
    if "://" in where or "://" in index.root:
        return
    root = os.path.normpath(os.path.join(os.path.dirname(where), index.root))
    paths = [os.path.join(root, file.path) for file in files[:MOST_FILES]]
    sizes = [os.stat(path).st_size if os.path.isfile(path) else None for path in paths]
    missing = [path for path, size in zip(paths, sizes) if size is None]
    other = [path for path, file, size in zip(paths, files, sizes) if size not in (None, file.size)]
    for found, says in ((missing, "is not there"), (other, "has another size than when it was indexed")):
        if found:
            more = f", and so {len(found) - 1} others" if len(found) > 1 else ""
            do = "give Dataset root=, the folder of the files" if found is missing else "rowdex build --update"
            report.findings.append(Finding("wrong", f"{found[0]} {says}{more}", do))


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _shown(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items()) or "none"
    return f"{value / MIB:,.1f} MiB" if name.endswith("_bytes") and value is not None else str(value)
