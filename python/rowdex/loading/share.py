"""Loaders of the ranks of a machine that share one reader."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import os
import socket
import sys
from collections.abc import Sequence
from typing import Any, Literal

from ..native.library import described, library, no_nul

_numbers = itertools.count()
# As Linux has them.
_CLOSES_ON_EXEC, _SEALS = 1, 2


@dataclasses.dataclass(frozen=True)
class Share:
    """How the loaders of the ranks of a machine share one reader, where ``share="machine"`` does not say enough. All
    ranks give the same.

    Args:
        name: Which of the loaders of a rank this is. Default: ranks count the loaders that they make with ``share``, so
            they must make the same ones in the same order.
        job: The name of the job. Default: what the launcher says.
        ranks: How many ranks are on this machine. Default: what the launcher says.
        drift: How many steps a rank may be ahead of another one, about, before it waits. Default: 32, fewer of large
            batches.
        program: The program that reads, as a command line: the command ``rowdex`` of this version. Default: that of
            this package, ``[sys.executable, "-m", "rowdex"]``, if it has one, else ``rowdex`` on the path.
    """

    name: str | None = None
    job: str | None = None
    ranks: int | None = None
    drift: int | None = None
    program: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for argument, value in (("ranks", self.ranks), ("drift", self.drift)):
            if value is not None and not 0 < value < 2**31:
                raise ValueError(f"{argument} of a Share is {value}: use 1 or more")
        if isinstance(self.program, str) or self.program is not None and not self.program:
            raise TypeError(f"program={self.program!r} of a Share: give the words of a command line, as [\"rowdex\"]")
        for argument, text in (("name", self.name), ("job", self.job)):
            no_nul((text or "").encode(), f"{argument} of a Share")

    def named(self, suffix: str) -> Share:
        """The same for another loader, if this one has a name."""
        return self if self.name is None else dataclasses.replace(self, name=f"{self.name} {suffix}")


Sharing = Share | Literal["machine"] | None


def options(share: Sharing) -> dict[str, Any]:
    """The options of the library for this argument of a loader."""
    if share is None:
        return {}
    if share == "machine":
        share = Share()
    if not isinstance(share, Share):
        raise ValueError(f"share={share!r}: use 'machine', a rowdex.Share, or None")
    if not sys.platform.startswith("linux"):
        raise ValueError("share needs Linux: leave it out, and each rank reads for itself")
    if share.name is None:
        # The ranks make their loaders in the same order.
        share = dataclasses.replace(share, name=f"loader {next(_numbers)}")
    return _library_options(share)


@functools.cache
def can_share() -> bool:
    """Whether this system has what a reader is shared by: memory files, and addresses without a folder."""
    try:
        os.close(_memory_file())
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as own:
            own.bind("")
    except (AttributeError, OSError):
        return False
    return True


def _memory_file() -> int:
    """The descriptor of one that can be sealed. A Python that was built for an old glibc has no function for it."""
    made: int = ctypes.CDLL(None, use_errno=True).memfd_create(b"rowdex", _CLOSES_ON_EXEC | _SEALS)
    if made < 0:
        raise OSError(ctypes.get_errno(), "no memory files")
    return made


def among_workers(job: str, name: str) -> dict[str, Any]:
    """The same for the workers of a rank that share a reader with no other rank."""
    return _library_options(Share(name=name, job=job, ranks=1))


def _library_options(share: Share) -> dict[str, Any]:
    has_command = sys.executable and hasattr(library, "rowdex_command")
    program = share.program or ([sys.executable, "-m", "rowdex"] if has_command else [])
    described_share = described(
        name=share.name or "", job=share.job, ranks=share.ranks, drift=share.drift, program=program
    )
    return {"share": described_share}
