"""What a loader tells of: what it will do, what would help it, and what it could not read."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple, Protocol

from .. import native, notebook
from ..errors import Error, TransformError
from ..native.library import call, library, waiting
from ..sampler import DistributedSampler


class LostGroup(NamedTuple):
    """A row group that a loader could not read."""

    row_group: int
    """Its number, counted over the whole index."""
    error: Error
    """Why it could not be read; names file, row group and column where they are known."""


class LostRow(NamedTuple):
    """A row of which a loader could not decode a value."""

    row_id: int
    """Its row id."""
    error: TransformError
    """Why; names file, row group and column."""


class Advice(NamedTuple):
    """One way for a loader to decode less."""

    means: str
    """``"memory"``; ``"blocks"``, which is ``order="blocks(k)"``; ``"rewrite"``, which is ``rowdex shuffle`` and then
    ``order="sequential"``; or ``"share"``, which is ``share="machine"``."""
    value: int
    """Bytes of memory; the ``k`` of blocks; ranks that share, with the memory of all of them; 1 for ``"rewrite"``."""
    passes: float
    """Decodes of each row group in every epoch after the first, then; where ranks share, the part of each."""
    bytes_read: int
    """Bytes read in every epoch after the first, then; where ranks share, the part of each."""

    def __str__(self) -> str:
        what = {
            "memory": f"memory={self.value}",
            "blocks": f"order='blocks({self.value})'",
            "rewrite": "rowdex shuffle, and then order='sequential'",
            "share": f"share='machine' for {self.value} ranks, with the memory of all",
        }
        return f"{what[self.means]}: {self.passes:.1f} passes and {self.bytes_read / 1e6:,.0f} MB an epoch"


class Prediction(NamedTuple):
    """What a loader will do."""

    first_passes: float
    """Decodes of each row group in the first epoch, on average."""
    passes: float
    """Decodes of each row group in every later epoch, on average."""
    decodes: float
    """Row groups decoded in every later epoch."""
    first_batch_decodes: int
    """Row groups decoded before the first batch is there."""
    peak_bytes: int
    """The most bytes held."""
    first_decodes: float
    """Row groups decoded in the first epoch."""
    first_bytes_read: int
    """Bytes read in the first epoch."""
    bytes_read: int
    """Bytes read in every later epoch."""
    first_requests: int
    """Requests to a store in the first epoch; 0 for local files."""
    requests: int
    """Requests to a store in every later epoch."""
    units: int
    """Units that row groups are read, decoded and held in: one for each, or for several small ones of a file."""
    bookkeeping_bytes: int
    """How many of ``peak_bytes`` are not rows: what is known of row groups, and of rows that are looked ahead at."""
    least_memory: int
    """The least ``memory`` that a loader takes."""

    def _repr_html_(self) -> str:
        whole = ("first_batch_decodes", "peak_bytes", "bookkeeping_bytes", "least_memory", "units")
        rows = [
            (name, *(notebook.figure(name, getattr(self, each)) for each in (f"first_{name}", name)))
            for name in ("passes", "decodes", "bytes_read", "requests")
        ]
        rows += [(name, notebook.figure(name, getattr(self, name)), "") for name in whole]
        return notebook.table("What the loader will do", ("", "first epoch", "later epochs"), rows)


class _Loading(Protocol):
    """A dataset, of one index or of several."""

    @property
    def _pointer(self) -> Any: ...
    @property
    def _remote(self) -> bool: ...


def predicted(dataset: _Loading, sampler: DistributedSampler, options: native.LoaderOptions) -> Prediction:
    """What a loader with these options will do."""
    found = native.Prediction()
    _ask(dataset, sampler, options, ctypes.byref(found), None)
    return Prediction(*(getattr(found, name) for name in Prediction._fields))


def advised(dataset: _Loading, sampler: DistributedSampler, options: native.LoaderOptions) -> list[Advice]:
    """What would let a loader with these options decode less."""
    found = native.Advice()
    _ask(dataset, sampler, options, None, ctypes.byref(found))
    told = (
        Advice(way, getattr(found, way), getattr(found, f"{way}_passes"), getattr(found, f"{way}_bytes_read"))
        for way in ("memory", "blocks", "rewrite", "share")
    )
    return sorted((one for one in told if one.value), key=lambda one: one.passes)


def _ask(dataset: _Loading, sampler: DistributedSampler, options: native.LoaderOptions, *out: Any) -> None:
    given = (dataset._pointer, sampler._at(sampler.epoch), ctypes.byref(options), *out)
    waiting(dataset._remote, lambda: call(library.loader_predict, *given))
