"""Grain, over what a rank holds in memory: it has no reader of Parquet files that reaches any row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import grain.python as grain

from .peer import Job, Peer, own, shares, sources


def values(job: Job) -> list[int]:
    return pa.concat_tables(map(pq.read_table, job.files()))[job.counted].to_pylist()


class Grain(Peer):
    package = distribution = "grain"
    manual = "`IndexSampler` with shards, `DataLoader`"
    drop_remainder = False

    def open(self) -> None:
        job = self.job
        source = values(job)
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


class Mixed(Grain):
    manual = "`MapDataset.mix` with weights of shuffled and repeated sources, a slice for each rank"

    def open(self) -> None:
        job = self.job
        parts = [grain.MapDataset.source(values(one)).shuffle(seed=1).repeat() for one in sources(job)]
        dataset = grain.MapDataset.mix(parts, weights=shares(job))
        self.rows = iter(dataset[job.rank :: job.world].batch(job.batch).to_iter_dataset())
