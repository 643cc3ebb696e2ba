"""What rowdex finds on a machine, what is slow or wrong there, and what to do: ``rowdex doctor``.

:func:`examine` asks the operating system, the installed packages and, if one is named, an index. It reads no data,
imports no framework, and uses no network unless the index is at a URL.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import textwrap
from typing import Any, Literal, NamedTuple

from .. import __version__, native
from ..errors import ArgumentError, Error
from ..index import FileInfo, Index
from ..launch import Launch
from ..native.library import library, located
from .machine import Machine, cached

try:
    import resource
except ImportError:  # Not on this system.
    resource = None  # type: ignore[assignment]

GIB = 1 << 30
MIB = 1 << 20

FRAMEWORKS = {
    "numpy": "",
    "pyarrow": "",
    "torch": "2.3",
    "torchdata": "",
    "torchvision": "",
    "pillow": "",
    "simplejpeg": "",
    "accelerate": "",
    "transformers": "",
    "trl": "",
    "datasets": "",
    "lightning": "",
    "pytorch-lightning": "",
    "ray": "",
    "grain": "",
    "jax": "",
    "nvidia-dali-cuda110": "",
    "nvidia-dali-cuda120": "",
    "nvidia-dali-cuda130": "",
    "scikit-learn": "",
    "polars": "",
    "duckdb": "",
    "pandas": "",
    "tqdm": "",
}
"""The packages that rowdex works with, and the oldest version of each that it does."""

LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "Open MPI": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "PMI": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", "PMIX_RANK"),
    "Slurm": ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
}
"""The variables that say which rank a process is."""

LOADER_MEMORY = GIB
"""What a ``Loader`` holds unless it is told otherwise."""

POOL = (8, 4096)
"""rowdex keeps at most a quarter of the files that a process may have open, and never less or more than this."""

MOST_FILES_LOOKED_AT = 10_000
MOST_FILES_OF_CACHE = 100

WIDTH = 120
# Paths and commands are to be copied, so they stay in one piece.
_WHOLE: Any = {"break_long_words": False, "break_on_hyphens": False}


class Finding(NamedTuple):
    """Something to know or to mend."""

    level: Literal["wrong", "slow", "note"]
    """``"wrong"``: a job fails or is killed. ``"slow"``: it works, and could be faster. ``"note"``: good to know."""
    about: str
    """The section that it belongs to."""
    says: str
    """What is the case."""
    do: str
    """What to do."""


class Report(NamedTuple):
    """What :func:`examine` found."""

    sections: dict[str, dict[str, Any]]
    """Facts by section. Sizes are in bytes."""
    findings: list[Finding]
    """What is wrong, then what is slow, then what is good to know."""

    def to_json(self) -> dict[str, Any]:
        """What ``--json`` prints."""
        return {**self.sections, "findings": [finding._asdict() for finding in self.findings]}

    def to_text(self) -> str:
        """What is printed without ``--json``."""
        lines = []
        for title, facts in self.sections.items():
            lines.append(title.replace("_", " "))
            shown = {
                name.removesuffix("_bytes").replace("_", " "): _shown(name, value) for name, value in facts.items()
            }
            width = max(map(len, shown), default=0)
            for name, text in shown.items():
                after = " " * (width + 4)
                lines += textwrap.wrap(
                    text, WIDTH, initial_indent=f"  {name:<{width}}  ", subsequent_indent=after, **_WHOLE
                )
            lines.append("")
        for finding in self.findings:
            says = f"{finding.level}: {finding.about.replace('_', ' ')}: {finding.says}"
            lines += textwrap.wrap(says, WIDTH, subsequent_indent="  ", **_WHOLE)
            lines += textwrap.wrap(finding.do, WIDTH, initial_indent="  -> ", subsequent_indent="     ", **_WHOLE)
        if not self.findings:
            lines.append("Nothing is wrong, and nothing is known to be slow.")
        return "\n".join(lines)


class _Examination:
    """The report in the making."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.sections: dict[str, dict[str, Any]] = {}
        self.findings: list[Finding] = []

    def wrong(self, about: str, says: str, do: str) -> None:
        self.findings.append(Finding("wrong", about, says, do))

    def slow(self, about: str, says: str, do: str) -> None:
        self.findings.append(Finding("slow", about, says, do))

    def note(self, about: str, says: str, do: str) -> None:
        self.findings.append(Finding("note", about, says, do))


def examine(index: str | os.PathLike[str] | None = None, *, machine: Machine | None = None) -> Report:
    """Looks at this process and its machine, and at an index and its data files if one is named.

    It takes about a second, and one ``stat`` for each data file, of 10,000 at most.

    Args:
        index: The path or URL of an index.
        machine: Where to read what the operating system says. Default: this machine.
    """
    found = _Examination(machine or Machine())
    _versions(found)
    launch = _launch(found)
    _limits(found)
    _memory(found, launch)
    _processors(found, launch)
    _huge_pages(found)
    if index is not None:
        _index(found, index)
    order = ("wrong", "slow", "note")
    return Report(found.sections, sorted(found.findings, key=lambda finding: order.index(finding.level)))


def _versions(found: _Examination) -> None:
    versions = {name: _version(name) for name in FRAMEWORKS}
    libc = " ".join(platform.libc_ver()) or "unknown C library"
    found.sections["versions"] = {
        "rowdex": f"rowdex {__version__}",
        "library": str(library._name),
        "library_version": library.version().decode(),
        "c_api": native.ABI_VERSION,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}, {libc}",
        "packages": {name: version for name, version in versions.items() if version is not None},
    }
    for name, least in FRAMEWORKS.items():
        version = versions[name]
        if least and version is not None and _numbers(version) < _numbers(least):
            found.wrong(
                "versions", f"{name} is {version}, and rowdex needs {least} or newer", f"pip install '{name}>={least}'"
            )


def _launch(found: _Examination) -> Launch | None:
    variables = {name: os.environ[name] for names in LAUNCHERS.values() for name in names if os.environ.get(name)}
    launch = None
    known: dict[str, Any] = {"rank": 0, "world_size": 1, "local_rank": None, "local_world_size": None, "launcher": None}
    try:
        launch = Launch.from_env()
        known = launch._asdict()
        says = f"rank {launch.rank} of {launch.world_size}"
        if launch.local_rank is not None:
            says += f", local rank {launch.local_rank}"
            says += "" if launch.local_world_size is None else f" of {launch.local_world_size}"
        says += f" ({launch.launcher})"
    except ArgumentError as error:
        if variables:
            says = "not known"
            known = dict.fromkeys(known)
            found.wrong("launch", _message(error), error.hint or "set the variables of one launcher, or none")
        else:
            says = "rank 0 of 1, unless torch.distributed says otherwise: no launcher has set a rank"
    found.sections["launch"] = {"taken_as": says, **known, "variables": variables}
    return launch


def _limits(found: _Examination) -> None:
    if resource is None:
        return
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    pool = POOL[1] if soft is None else min(max(soft // 4, POOL[0]), POOL[1])
    found.sections["limits"] = {"open_files": soft, "open_files_at_most": hard, "data_files_kept_open": pool}


def _memory(found: _Examination, launch: Launch | None) -> None:
    memory = found.machine.memory()
    if memory is None:
        return
    shared = _free("/dev/shm")
    found.sections["memory"] = {
        "total_bytes": memory.total,
        "available_bytes": memory.available,
        "control_group_limit_bytes": memory.limit,
        "shared_memory_free_bytes": shared,
    }
    ranks = (launch.local_world_size if launch is not None else None) or 1
    if ranks * LOADER_MEMORY > memory.usable // 2:
        found.wrong(
            "memory",
            f"{_ranks(ranks)} on this machine may use {_bytes(memory.usable)}, and each Loader holds "
            f"{_bytes(LOADER_MEMORY)} "
            "of decoded rows unless it is told otherwise",
            f"give each Loader memory={max(memory.usable // (4 * ranks * MIB), 1) * MIB} or less, and Dataset a "
            "smaller cache=",
        )
    elif memory.limit is not None:
        found.note(
            "memory",
            f"the control group limits this job to {_bytes(memory.limit)} of {_bytes(memory.total)}; the page cache "
            "counts",
            "choose memory= of the loaders by the limit, not by the machine",
        )
    if shared is not None and shared < GIB and "torch" in found.sections["versions"]["packages"]:
        found.slow(
            "memory",
            f"/dev/shm has {_bytes(shared)} free, and the workers of a DataLoader hand over batches there: without "
            "room they are killed",
            "start the container with --shm-size=8g, or use rowdex.Loader, which has threads in the place of workers",
        )


def _processors(found: _Examination, launch: Launch | None) -> None:
    processors = found.machine.processors()
    found.sections["processors"] = {
        "present": processors.present,
        "affinity": processors.affinity,
        "control_group_quota": processors.quota,
        "usable": processors.usable,
    }
    usable = processors.usable
    ranks = (launch.local_world_size if launch is not None else None) or 1
    if ranks > usable:
        found.slow(
            "processors",
            f"{_ranks(ranks)} of this machine share {_processors_text(usable)}; each Loader has 2 threads of its own",
            "give the job more processors (srun --cpus-per-task, docker --cpus), or the loaders threads=1",
        )
    if usable < processors.affinity and not os.environ.get("OMP_NUM_THREADS"):
        found.slow(
            "processors",
            f"the control group allows {processors.quota:g} of {processors.affinity} processors, and libraries start a "
            "thread for each of them",
            f"set OMP_NUM_THREADS={max(usable // ranks, 1)}",
        )
    elif processors.affinity < processors.present:
        found.note(
            "processors",
            f"this process may run on {processors.affinity} of {processors.present} processors",
            "nothing, if that is meant; else look at the launcher's binding (srun --cpu-bind, mpirun --bind-to, "
            "taskset)",
        )


def _huge_pages(found: _Examination) -> None:
    when = found.machine.huge_pages()
    if when is None:
        return
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    asked = re.search(r"glibc\.malloc\.hugetlb=[12]", tunables) is not None
    found.sections["huge_pages"] = {"transparent": when, "malloc_asks_for_them": asked}
    if when == "never":
        found.slow(
            "huge_pages",
            "the kernel gives none, so gathering random rows waits for the page tables",
            "as root: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    elif when == "madvise" and not asked:
        found.note(
            "huge_pages",
            "the kernel gives them to those who ask, and malloc does not ask; gathering random rows may gain",
            "start Python with GLIBC_TUNABLES=glibc.malloc.hugetlb=1 (glibc 2.35 or newer)",
        )


def _index(found: _Examination, path: str | os.PathLike[str]) -> None:
    where = located(path)
    facts: dict[str, Any] = {"path": where}
    found.sections["index"] = facts
    try:
        index = Index(path)
        files, groups = index.files, index.num_row_groups
    except (Error, OSError) as error:
        hint = error.hint if isinstance(error, Error) else None
        found.wrong("index", _message(error), hint or "give the path of an index that `rowdex build` wrote")
        return
    data = sum(file.size for file in files)
    facts |= {"rows": len(index), "files": len(files), "row_groups": groups, "data_bytes": data}
    if groups > 100 and data // groups < MIB:
        found.slow(
            "index",
            f"its row groups have {_bytes(data // groups)} on average; small ones cost several times more for each row",
            "write the data with larger row groups (pyarrow: row_group_size=), or in fewer and larger files",
        )
    elif groups and data // groups > LOADER_MEMORY // 4:
        found.note(
            "index",
            f"its row groups have {_bytes(data // groups)} on average, and a Loader holds {_bytes(LOADER_MEMORY)} of "
            "decoded rows",
            "give the Loader more memory=; `rowdex predict` says how often it will decode each row group",
        )
    pool = found.sections.get("limits", {}).get("data_files_kept_open")
    if pool is not None and pool < min(len(files), POOL[1]):
        found.slow(
            "limits",
            f"the index has {len(files)} files, and rowdex keeps {pool} of them open: others are closed and opened "
            "again",
            f"ulimit -n {4 * min(len(files), POOL[1])}, in the shell that starts the job",
        )
    root = index.root
    if "://" in where or "://" in root:
        facts["disk"] = "in an object store: not looked at"
        return
    root = os.path.normpath(os.path.join(os.path.dirname(where), root))
    facts |= {"root": root}
    _files(found, facts, where, root, files)
    _disk(found, facts, root, files, data)


def _files(found: _Examination, facts: dict[str, Any], where: str, root: str, files: list[FileInfo]) -> None:
    """Whether the data files are there, and are as long as when they were indexed."""
    looked_at = _some(files, MOST_FILES_LOOKED_AT)
    missing, other = [], []
    for file in looked_at:
        try:
            if os.stat(os.path.join(root, file.path)).st_size != file.size:
                other.append(file.path)
        except OSError:
            missing.append(file.path)
    facts["files_looked_at"] = len(looked_at)
    facts["files_missing"] = len(missing)
    facts["files_of_another_size"] = len(other)
    if missing:
        found.wrong(
            "index",
            f"{len(missing)} of {len(looked_at)} data files cannot be seen below {root}, the first is {missing[0]}",
            "if the data was moved, open it with Dataset(index, root=...); if files were deleted, build the index "
            "again",
        )
    if other:
        found.wrong(
            "index",
            f"{len(other)} of {len(looked_at)} data files have another size than when they were indexed, the first is "
            f"{other[0]}",
            f"build the index again: rowdex build --update {root} -o {where}",
        )


def _disk(found: _Examination, facts: dict[str, Any], root: str, files: list[FileInfo], data: int) -> None:
    """Where the data is, and how much of it is in memory."""
    mount = found.machine.mount(root)
    if mount is not None:
        facts |= {"file_system": mount.file_system, "disk": mount.source, "disk_turns": mount.rotational}
    pages = [0, 0]
    sample = _some(files, MOST_FILES_OF_CACHE)
    known = 0
    for file in sample:
        seen = cached(os.path.join(root, file.path))
        if seen is not None:
            known += 1
            pages = [pages[0] + seen[0], pages[1] + seen[1]]
    share = pages[0] / pages[1] if pages[1] else None
    facts |= {"cached_share": share, "cached_share_of_files": known}
    memory = found.machine.memory()
    if memory is not None and data > memory.usable and (share is None or share < 0.9):
        found.slow(
            "index",
            f"its data of {_bytes(data)} does not fit into the {_bytes(memory.usable)} of memory: every epoch reads "
            "from the disk",
            "`rowdex predict` says how many bytes an epoch reads; more memory= for the loaders means fewer of them",
        )
    if mount is not None and mount.network:
        found.slow(
            "index",
            f"its data is on {mount.file_system} ({mount.source}), where each read waits for another machine or "
            "process",
            "keep decoded row groups on a local disk: Dataset(index, disk_tier=rowdex.DiskTier(folder, bytes))",
        )
    elif mount is not None and mount.rotational and (share is None or share < 0.9):
        found.slow(
            "index",
            f"its data is on a disk that turns ({mount.source}), and reads at random places wait for it",
            "copy the data to an SSD, or read in longer pieces: order='blocks(8)' with partition='contiguous'",
        )


def _some(files: list[FileInfo], most: int) -> list[FileInfo]:
    """At most so many of them, from all over the list."""
    return files if len(files) <= most else [files[number * len(files) // most] for number in range(most)]


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.split("+")[0])[:3]]


def _free(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except (OSError, AttributeError):
        return None
    return status.f_bavail * status.f_frsize


def _message(error: Exception) -> str:
    """An error without its hint, which is told as what to do."""
    text, hint = str(error), getattr(error, "hint", None)
    return text.removesuffix(f"; {hint}") if hint else text


def _ranks(ranks: int) -> str:
    return "1 rank" if ranks == 1 else f"{ranks} ranks"


def _processors_text(usable: int) -> str:
    return "1 processor" if usable == 1 else f"{usable} processors"


def _bytes(count: int) -> str:
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"


def _shown(name: str, value: Any) -> str:
    """A fact as people read it."""
    if value is None:
        return "none" if name.startswith(("open_files", "control_group")) else "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {shown}" for key, shown in value.items()) or "none"
    if name.endswith("_share"):
        return f"{value:.0%}"
    if name.endswith("_bytes"):
        return _bytes(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


__all__ = ["Finding", "Report", "examine"]
