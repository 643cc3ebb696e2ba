"""A local disk that row groups are kept on."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from . import native
from .native.library import path_bytes, size


class DiskTier(NamedTuple):
    """A folder on a local disk that keeps row groups for all processes of a machine and for later passes.

    It may be deleted at any time. Only its owner should be able to write to it: what is in it is served as data.
    """

    folder: str | os.PathLike[str]
    """The folder, which is made when something is first kept."""
    bytes: int
    """The most bytes of files to keep in it."""

    def _struct(self) -> native.DiskTier:
        return native.DiskTier(folder=path_bytes(self.folder), bytes=size(self.bytes, "bytes"))


class TierCounters(NamedTuple):
    """What a dataset has done with its disk tier so far, in this process."""

    hits: int
    """Row groups served from the tier, each as often as it was."""
    misses: int
    """Row groups that were not there and had to be read from the source."""
    writes: int
    """Entries written."""
    bytes_written: int
    """Their bytes."""
    evictions: int
    """Entries deleted to make room."""
    bytes_evicted: int
    """Their bytes."""
    discards: int
    """Entries deleted because they were damaged or of another version."""


def located_tier(tier: DiskTier) -> DiskTier:
    """The same folder wherever the process goes, and for workers that begin elsewhere."""
    if not isinstance(tier, DiskTier):
        raise TypeError(f"disk_tier is {tier!r}: give a rowdex.DiskTier(folder, bytes)")
    return tier._replace(folder=os.path.abspath(os.fsdecode(tier.folder)))


def tier_pointer(tier: DiskTier | None) -> Any:
    """What the library is told: a pointer, or nothing."""
    return None if tier is None else ctypes.pointer(tier._struct())


__all__ = ["DiskTier", "TierCounters"]
