"""LanceDB."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lancedb
import pyarrow.dataset as ds
from lancedb.streaming import StreamingDataset
from torch.utils.data import DataLoader

from .peer import Job, Peer


class Lance(Peer):
    package = distribution = "lancedb"
    manual = "`StreamingDataset` of a table, `DataLoader`"
    converts = True

    @classmethod
    def prepare(cls, job: Job) -> None:
        rows = ds.dataset(job.files()).scanner(job.columns).to_reader()
        lancedb.connect(str(job.copy)).create_table("train", rows)

    def open(self) -> None:
        self.table = lancedb.connect(str(self.job.copy)).open_table("train")
        self.epochs = 0
        self.dataset = self.of_epoch()

    def of_epoch(self) -> StreamingDataset:
        return StreamingDataset(
            self.table, columns=self.job.columns, shuffle_seed=1, rank=self.job.rank, world_size=self.job.world,
            num_splits=self.job.splits, epoch=self.epochs,
        )  # fmt: skip

    def epoch(self) -> Iterable[dict[str, Any]]:
        # A dataset is of one epoch.
        if self.epochs:
            self.dataset = self.of_epoch()
        self.epochs += 1
        return DataLoader(self.dataset, batch_size=self.job.batch)

    def state(self) -> Any:
        return self.dataset.state_dict()

    def load(self, states: list[Any]) -> None:
        self.dataset.load_state_dict(StreamingDataset.merge_state_dicts(states))
