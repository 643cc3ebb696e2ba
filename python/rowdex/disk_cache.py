"""A local disk that row groups are kept on."""

from __future__ import annotations

import ctypes
import os
from typing import Any, NamedTuple

from . import native
from .native.library import path_bytes, size


class DiskCache(NamedTuple):
    """A folder on a local disk that keeps row groups for all processes of a machine and for later passes.

    It may be deleted at any time. Only its owner should be able to write to it: what is in it is served as data.
    """

    folder: str | os.PathLike[str]
    """The folder, which is made when something is first kept."""
    bytes: int
    """The most bytes of files to keep in it."""

    def _struct(self) -> native.DiskCache:
        return native.DiskCache(folder=path_bytes(self.folder), bytes=size(self.bytes, "bytes"))


class DiskCacheCounters(NamedTuple):
    """What a dataset has done with its disk cache so far, in this process."""

    hits: int
    """Row groups served from the disk cache, each as often as it was."""
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


def located_disk_cache(disk_cache: DiskCache) -> DiskCache:
    """The same folder wherever the process goes, and for workers that begin elsewhere."""
    if not isinstance(disk_cache, DiskCache):
        raise TypeError(f"disk_cache is {disk_cache!r}: give a rowdex.DiskCache(folder, bytes)")
    return disk_cache._replace(folder=os.path.abspath(os.fsdecode(disk_cache.folder)))


def disk_cache_pointer(disk_cache: DiskCache | None) -> Any:
    """What the library gets: a pointer, or nothing."""
    return None if disk_cache is None else ctypes.pointer(disk_cache._struct())


__all__ = ["DiskCache", "DiskCacheCounters"]
