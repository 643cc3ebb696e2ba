"""Grain, over what a rank holds in memory: it has no reader of Parquet files that reaches any row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import grain.python as grain

from .peer import Peer, own


class Grain(Peer):
    package = distribution = "grain"
    manual = "`IndexSampler` with shards, `DataLoader`"
    drop_remainder = False

    def open(self) -> None:
        job = self.job
        source = pa.concat_tables(map(pq.read_table, job.files()))[job.counted].to_pylist()
        shard = grain.ShardOptions(job.rank, job.world, drop_remainder=self.drop_remainder)
        sampler = grain.IndexSampler(len(source), shard, shuffle=True, num_epochs=1, seed=1)
        batches = [grain.Batch(job.batch)]
        self.rows = iter(grain.DataLoader(data_source=source, sampler=sampler, operations=batches, worker_count=0))

    def epoch(self) -> Iterable[dict[str, Any]]:
        return ({self.job.counted: batch} for batch in self.rows)

    def state(self) -> Any:
        return self.rows.get_state()

    def load(self, states: list[Any]) -> None:
        self.rows.set_state(own(states, self.job.rank))


class Even(Grain):
    manual = "the same with `ShardOptions(drop_remainder=True)`"
    drop_remainder = True
