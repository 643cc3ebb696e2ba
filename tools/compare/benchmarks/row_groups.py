"""Loaders that deal row groups to ranks."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from .peer import Peer, groups


class RowGroups(Peer):
    """What petastorm does, by pyarrow: row group ``g`` is of rank ``g % world``."""

    package = distribution = "pyarrow"
    manual = "row groups assigned in turn, as petastorm does"

    def open(self) -> None:
        own = groups(self.job.files())[self.job.rank :: self.job.world]
        read = [pq.ParquetFile(file).read_row_group(group)[self.job.counted].to_numpy() for file, group in own]
        self.ids = np.concatenate(read)

    def epoch(self) -> Iterable[dict[str, Any]]:
        starts = range(0, len(self.ids), self.job.batch)
        return ({self.job.counted: self.ids[start : start + self.job.batch]} for start in starts)


class Petastorm(Peer):
    package = distribution = "petastorm"
    manual = "`make_batch_reader` with shards, `BatchedDataLoader`"

    def open(self) -> None:
        pytorch = importlib.import_module("petastorm.pytorch")
        reader = importlib.import_module("petastorm").make_batch_reader(
            f"file://{self.job.data}", cur_shard=self.job.rank, shard_count=self.job.world
        )
        self.loader = pytorch.BatchedDataLoader(reader, batch_size=self.job.batch)

    def epoch(self) -> Iterable[dict[str, Any]]:
        return self.loader


class TorchDataloaderUtils(Peer):
    package = "torch_dataloader_utils"
    distribution = "torch-dataloader-utils"
    manual = "`StructuredDataset.create_dataloader`"

    def open(self) -> None:
        self.loader, _ = importlib.import_module(self.package).StructuredDataset.create_dataloader(
            path=str(self.job.data), format="parquet", batch_size=self.job.batch, shuffle=True, num_workers=0,
            num_ranks=self.job.world, rank=self.job.rank,
        )  # fmt: skip

    def epoch(self) -> Iterable[dict[str, Any]]:
        return self.loader
