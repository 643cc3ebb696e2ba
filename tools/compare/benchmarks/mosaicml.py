"""MosaicML Streaming."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import streaming

from .peer import MIXED_ROWS, Job, OfLoader, OfSources, groups, rows, shares, sources

KINDS = {
    pa.int64(): "int64", pa.int32(): "int32", pa.float32(): "float32", pa.float64(): "float64", pa.string(): "str",
    pa.binary(): "bytes", pa.list_(pa.int32()): "ndarray:int32",
}  # fmt: skip


class Mosaic(OfLoader):
    package = "streaming"
    distribution = "mosaicml-streaming"
    manual = "`MDSWriter`, `StreamingDataset(shuffle=True)`, `StreamingDataLoader`"
    converts = True

    @classmethod
    def prepare(cls, job: Job) -> None:
        chosen = pq.read_schema(job.files()[0]).empty_table().select(job.columns).flatten().schema
        # Names of a list's elements are no part of its kind.
        plain = [pa.list_(one.type.value_type) if pa.types.is_list(one.type) else one.type for one in chosen]
        columns = {name: KINDS[kind] for name, kind in zip(chosen.names, plain)}
        with streaming.MDSWriter(out=str(job.copy), columns=columns, size_limit=job.chunk) as writer:
            for file, group in groups(job.files()):
                for row in rows(file, group, job.columns):
                    writer.write(row)

    def open(self) -> None:
        dataset = streaming.StreamingDataset(
            **self.data(), shuffle=True, shuffle_seed=1, batch_size=self.job.batch
        )
        self.loader = streaming.StreamingDataLoader(dataset, batch_size=self.job.batch)

    def data(self) -> dict[str, Any]:
        return {"local": str(self.job.copy)}


class Mixed(OfSources, Mosaic):
    manual = "a `Stream` with its `proportion` for each source, `StreamingDataset(epoch_size=…)`"

    def data(self) -> dict[str, Any]:
        each = zip(sources(self.job), shares(self.job))
        streams = [streaming.Stream(local=str(one.copy), proportion=share) for one, share in each]
        return {"streams": streams, "epoch_size": MIXED_ROWS}
