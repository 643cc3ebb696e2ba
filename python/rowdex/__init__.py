"""Parquet files as a map-style dataset for distributed training.

- :func:`build` writes an index: every row of all files gets a number, its *row id*.
- :func:`select` chooses rows of it, and writes them as another index of the same files; :func:`count` counts rows.
- :func:`rows_digest` is one number for all rows in any order; :func:`same_rows` shows that two datasets have the same.
- :func:`shuffle` writes rows anew, as files in a shuffled order.
- :class:`Dataset` answers what is in a row, :class:`Index` where it is.
- :class:`DistributedSampler` says which rows are whose: shuffled over all files, and exactly as many on every rank.
- :class:`Loader` serves batches in that order, fast: it knows what comes, so it decodes row groups seldom.
- :mod:`rowdex.order` has orders from lists and files, by weight and class, over parts of the rows, and
  :class:`MixedDataset` joins datasets.
- :mod:`rowdex.torch` has what PyTorch's ``DataLoader`` takes.

A *batch* is what one rank works on in one *step*; an *epoch* serves every row once. *Pads* are rows that are served
again, so that every rank has as many. Exceptions are in :mod:`rowdex.errors` and here.
"""

import importlib
from typing import TYPE_CHECKING

from .native.columns import Codes, Masked, Ragged
from .native.library import library as _library
from .loading.share import Share
from .loading.stats import LoaderStats
from .prefetched import Prefetched, PrefetchedStats
from .batch import Batch, Substituted
from .dataset import Counters, Dataset, Labels, VerifyReport
from .errors import (
    AlreadyExistsError,
    ArgumentError,
    ClosedError,
    Error,
    FormatError,
    InternalError,
    IoError,
    NotFoundError,
    OutOfRangeError,
    SchemaError,
    StaleError,
    StateError,
    TooLargeError,
    TransformError,
)
from .building import BuildReport, build
from .index import FileInfo, Index, Location
from .launch import Launch
from .loader import Loader
from .loading.reports import Advice, LostGroup, LostRow, PackForecast, Prediction
from .mixed import MixedDataset
from .packing import Buckets, Budget, Pack
from .sampler import DistributedSampler, SampledBatch
from .spec import SamplerSpec
from .schema import Field, Schema
from .store import StoreOptions
from .tier import DiskTier, TierCounters

from . import order  # isort: skip
from .digest import SameRows, noted_digest, rows_digest, same_rows  # isort: skip
from .views import SelectReport, count, select  # isort: skip
from .rewriting import ShuffleReport, shuffle  # isort: skip

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # PyTorch takes seconds to import, and not everybody has it.
        if name == "torch":
            return importlib.import_module("rowdex.torch")
        raise AttributeError(f"module 'rowdex' has no attribute {name!r}")


__version__: str = _library.version().decode()

__all__ = [
    "Advice",
    "AlreadyExistsError",
    "Prefetched",
    "PrefetchedStats",
    "ArgumentError",
    "Batch",
    "Buckets",
    "Budget",
    "BuildReport",
    "ClosedError",
    "Codes",
    "Counters",
    "Dataset",
    "DiskTier",
    "DistributedSampler",
    "Error",
    "Field",
    "FileInfo",
    "FormatError",
    "Index",
    "InternalError",
    "IoError",
    "Labels",
    "Launch",
    "Loader",
    "LoaderStats",
    "Location",
    "LostGroup",
    "LostRow",
    "Masked",
    "MixedDataset",
    "NotFoundError",
    "OutOfRangeError",
    "Pack",
    "PackForecast",
    "Prediction",
    "Ragged",
    "SameRows",
    "SampledBatch",
    "SamplerSpec",
    "Schema",
    "SchemaError",
    "SelectReport",
    "Share",
    "ShuffleReport",
    "StaleError",
    "StateError",
    "StoreOptions",
    "Substituted",
    "TierCounters",
    "TooLargeError",
    "TransformError",
    "VerifyReport",
    "build",
    "count",
    "noted_digest",
    "order",
    "rows_digest",
    "same_rows",
    "select",
    "shuffle",
]
