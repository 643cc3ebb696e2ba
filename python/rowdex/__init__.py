"""Parquet files as a map-style dataset for distributed training.

- :func:`open` opens a dataset of Parquet files, and builds its index if there is none.
- :func:`build` writes an index: every row of all files gets a number, its *row id*.
- :func:`select` chooses rows of it, and writes them as another index of the same files; :func:`count` counts rows.
- :func:`rows_digest` is one number for all rows in any order; :func:`same_rows` shows that two datasets have the same.
- :func:`rewrite` writes the rows again, as files in a shuffled order.
- :class:`Dataset` answers what is in a row, :class:`Index` where it is.
- :class:`DistributedSampler` says which rank serves which rows: shuffled over all files, and the same number on every
  rank.
- :class:`Loader` serves batches in that order, fast: it knows which rows are needed next, so it decodes row groups
  seldom.
- :mod:`rowdex.order` has orders from lists and files, by weight and class, over parts of the rows, and
  :class:`MixedDataset` joins the rows of datasets, :class:`Zipped` their columns.
- :mod:`rowdex.torch` has what PyTorch's ``DataLoader`` takes.

A *batch* is what one rank works on in one *step*; an *epoch* serves every row once. *Repeated rows* are rows that are
served again, so that every rank has the same number. Exceptions are in :mod:`rowdex.errors`, and the reports that
functions return in :mod:`rowdex.reports`.
"""

import importlib
from typing import TYPE_CHECKING

from .native.columns import Codes, Masked, Ragged
from .native.library import library as _library, reported as _reported
from .loading.share import Share
from .batch import Batch
from .dataset import Dataset
from .errors import Error
from .building import build
from .index import Index
from .launch import Launch
from .loader import Loader
from .mixed import MixedDataset
from .opening import open
from .packing import Pack
from .sampler import DistributedSampler
from .schema import Schema
from .store import StoreOptions
from .zipped import Zipped
from .disk_cache import DiskCache

from . import order  # isort: skip
from .digest import rows_digest, same_rows  # isort: skip
from .views import count, select  # isort: skip
from .rewriting import rewrite  # isort: skip
from . import reports as _reports  # isort: skip  # noqa: F401

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # PyTorch takes seconds to import, and not everybody has it.
        if name == "torch":
            return importlib.import_module("rowdex.torch")
        raise AttributeError(f"module 'rowdex' has no attribute {name!r}")


__version__: str = _reported(_library.describe, None)["version"]

__all__ = [
    "Batch",
    "Codes",
    "Dataset",
    "DiskCache",
    "DistributedSampler",
    "Error",
    "Index",
    "Launch",
    "Loader",
    "Masked",
    "MixedDataset",
    "Pack",
    "Ragged",
    "Schema",
    "Share",
    "StoreOptions",
    "Zipped",
    "build",
    "count",
    "open",
    "order",
    "rows_digest",
    "same_rows",
    "select",
    "rewrite",
]
