"""What the operating system says of this machine and this process: memory, processors, files, pages and disks.

Everything is read below ``root``, so that a test can describe a machine in a folder.
"""

from __future__ import annotations

import ctypes
import math
import mmap
import os
import re
from pathlib import Path
from typing import NamedTuple

NETWORK = re.compile(r"nfs|cifs|smb|lustre|gpfs|beegfs|ceph|glusterfs|9p|afs|fuse\.")
"""The file systems that are reached over a network, or through another process."""


class Memory(NamedTuple):
    """In bytes."""

    total: int
    """Of the machine."""
    available: int
    """What processes can have before the machine swaps or kills, as the kernel estimates it."""
    limit: int | None
    """That of the control group, if it has one: a process that exceeds it is killed."""

    @property
    def usable(self) -> int:
        """What the processes of this job may have at most."""
        return self.total if self.limit is None else min(self.total, self.limit)


class Processors(NamedTuple):
    """How many there are, and how many are for this process."""

    present: int
    """Of the machine."""
    affinity: int
    """Those that this process may run on."""
    quota: float | None
    """How many the control group may use at a time, on average."""

    @property
    def usable(self) -> int:
        """How many threads can run at a time."""
        return self.affinity if self.quota is None else max(1, min(self.affinity, math.ceil(self.quota)))


class Mount(NamedTuple):
    """Where a path is."""

    file_system: str
    """Its type, such as ``"ext4"``."""
    source: str
    """The device or server."""
    rotational: bool | None
    """Whether it is a disk that turns; ``None`` if nobody says."""

    @property
    def network(self) -> bool:
        """Whether reads go over a network, or through another process."""
        return NETWORK.match(self.file_system) is not None


_VIRTUAL = re.compile(r"/dev/x?vd[a-z]")


class Machine:
    """The files below ``root`` that describe a machine."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = Path(root)

    def text(self, path: str) -> str | None:
        """A small file without its white space at the ends, or ``None`` if it cannot be read."""
        try:
            return (self._root / path).read_text(errors="replace").strip()
        except OSError:
            return None

    def memory(self) -> Memory | None:
        """``None`` where there is no ``/proc``."""
        found: dict[str, str] = dict(re.findall(r"^(\w+):\s+(\d+) kB$", self.text("proc/meminfo") or "", re.MULTILINE))
        if "MemTotal" not in found:
            return None
        total = int(found["MemTotal"]) * 1024
        limits = [
            *(int(limit) for limit in self._groups(None, "memory.max") if limit.isdigit()),
            # Version 1 says "no limit" by a number that is larger than any memory.
            *(int(limit) for limit in self._groups("memory", "memory.limit_in_bytes") if limit.isdigit()),
        ]
        limit = min(limits, default=total)
        available = int(found.get("MemAvailable", found["MemTotal"])) * 1024
        return Memory(total, available, limit if limit < total else None)

    def processors(self) -> Processors:
        """Those of the machine, and those of this process."""
        present = os.cpu_count() or 1
        affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else present
        quotas = []
        for line in self._groups(None, "cpu.max"):
            quota, _, period = line.partition(" ")
            if quota.isdigit() and period.isdigit() and int(period):
                quotas.append(int(quota) / int(period))
        quotas_v1 = self._groups("cpu", "cpu.cfs_quota_us")
        for quota, period in zip(quotas_v1, self._groups("cpu", "cpu.cfs_period_us"), strict=False):
            # -1 is no limit.
            if quota.isdigit() and period.isdigit() and int(period):
                quotas.append(int(quota) / int(period))
        return Processors(present, affinity, min(quotas, default=None))

    def huge_pages(self) -> str | None:
        """When the kernel uses huge pages for ordinary memory: ``"always"``, ``"madvise"`` or ``"never"``."""
        found = re.search(r"\[(\w+)\]", self.text("sys/kernel/mm/transparent_hugepage/enabled") or "")
        return found[1] if found else None

    def mount(self, path: str) -> Mount | None:
        """The file system that holds a path."""
        real = os.path.realpath(path)
        best, found = -1, None
        for line in (self.text("proc/self/mountinfo") or "").splitlines():
            before, _, after = line.partition(" - ")
            fields, kind = before.split(" "), after.split(" ")
            if len(fields) < 5 or len(kind) < 2:
                continue
            # Blanks and the like in names are written as octal numbers.
            point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
            inside = point == "/" or real == point or real.startswith(point + "/")
            # Of several at one place the last one hides the others.
            if inside and len(point) >= best:
                best, found = len(point), Mount(kind[0], kind[1], self._rotational(fields[2], kind[1]))
        return found

    def _rotational(self, device: str, source: str) -> bool | None:
        # A partition has its queue in the folder of its disk.
        for queue in ("queue", "../queue"):
            said = self.text(f"sys/dev/block/{device}/{queue}/rotational")
            if said is not None:
                # The disk of a virtual machine is said to turn whatever it is kept on.
                return None if said == "1" and _VIRTUAL.match(source) else said == "1"
        return None

    def _groups(self, controller: str | None, name: str) -> list[str]:
        """A file of the control group of this process and of those above it; ``None`` is version 2."""
        found = []
        for line in (self.text("proc/self/cgroup") or "").splitlines():
            number, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if controller is None and number == "0" and not controllers:
                top = "sys/fs/cgroup"
            elif controller is not None and controller in controllers.split(","):
                top = f"sys/fs/cgroup/{controller}"
            else:
                continue
            # In a container the path may be one that is not seen from inside: then the folders above it count.
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for depth in range(len(parts), -1, -1):
                said = self.text("/".join([top, *parts[:depth], name]))
                if said is not None:
                    found.append(said)
        return found


def cached(path: str) -> tuple[int, int] | None:
    """How many pages of a file are in the page cache, and how many it has. ``None`` if the kernel does not tell.

    It tells those alone who may write to the file.
    """
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            pages = -(-status.st_size // mmap.PAGESIZE)
            if pages == 0:
                return 0, 0
            if status.st_uid != os.geteuid() and not os.access(path, os.W_OK):
                return None
            libc = ctypes.CDLL(None, use_errno=True)
            libc.mmap.restype = ctypes.c_void_p
            libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
            libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
            libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
            # The pages are asked about, and never touched: a file that shrinks meanwhile does no harm.
            address = libc.mmap(None, status.st_size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
            if address is None or address == ctypes.c_void_p(-1).value:
                return None
            try:
                seen = ctypes.create_string_buffer(pages)
                if libc.mincore(address, status.st_size, seen):
                    return None
            finally:
                libc.munmap(address, status.st_size)
            return seen.raw.count(b"\1"), pages
    except (OSError, AttributeError):
        return None
