"""Whole passes over a dataset in the order of its rows, without a shuffle."""

from __future__ import annotations

import ctypes
from typing import Any

from .. import native
from ..native.library import Handle, Operands, library, loader_options, waiting

_BATCH_BYTES = 16 << 20
_BATCH_ROWS = 65_536


def batch_rows(dataset: Any) -> int:
    """Rows that take about 16 MiB when decoded, and 65,536 at most."""
    decoded: int = dataset.decoded_bytes
    rows = len(dataset)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES * rows // max(decoded, 1)))


def begin(dataset: Any) -> Handle:
    """A loader of the library that serves one pass, and ends. It reads nothing yet."""
    orders = Operands().make(library.order_new, {"order": "sequential", "rows": len(dataset)})
    sampling = native.SamplerOptions(world_size=1, batch_size=batch_rows(dataset))
    sampler = Handle(library.sampler_new, orders, ctypes.byref(sampling))
    options = loader_options(epochs=1)
    arguments = (dataset._pointer, sampler, ctypes.byref(options))
    return waiting(dataset._remote, lambda: Handle(library.loader_new, *arguments))
