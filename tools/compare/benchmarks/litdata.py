"""LitData."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import litdata
from litdata.streaming.item_loader import ParquetLoader

from .peer import Job, OfLoader, OfSources, groups, rows, shares, sources


def samples(group: tuple[str, int], columns: list[str]) -> Iterator[dict[str, Any]]:
    yield from rows(*group, columns)


class LitData(OfLoader):
    package = distribution = "litdata"
    manual = "`optimize`, `StreamingDataset(shuffle=True, drop_last=True)`, `StreamingDataLoader`"
    converts = True
    options: dict[str, Any] = {"drop_last": True}

    @classmethod
    def prepare(cls, job: Job) -> None:
        litdata.optimize(
            functools.partial(samples, columns=job.columns), inputs=groups(job.files()), output_dir=str(job.copy),
            chunk_bytes=job.chunk, num_workers=1,
        )  # fmt: skip

    def open(self) -> None:
        dataset = litdata.StreamingDataset(str(self.job.copy), shuffle=True, seed=1, **self.options)
        self.loader = litdata.StreamingDataLoader(dataset, batch_size=self.job.batch)


class Whole(LitData):
    manual = "`litdata` with `drop_last=False`"
    options = {"drop_last": False}


class Mixed(OfSources, LitData):
    manual = "`CombinedStreamingDataset` with weights of two of `optimize`, `StreamingDataLoader`"

    def open(self) -> None:
        copies, options = [str(one.copy) for one in sources(self.job)], {"shuffle": True, "seed": 1, **self.options}
        parts = [litdata.StreamingDataset(copy, **options) for copy in copies]
        dataset = litdata.CombinedStreamingDataset(
            parts, seed=1, weights=tuple(shares(self.job)), iterate_over_all=False
        )
        self.loader = litdata.StreamingDataLoader(dataset, batch_size=self.job.batch)


class Parquet(LitData):
    manual = "`index_parquet_dataset`, `StreamingDataset(item_loader=ParquetLoader())`, `StreamingDataLoader`"
    converts = False

    @classmethod
    def prepare(cls, job: Job) -> None:
        # Its index lies beside the files.
        for file in job.data.glob("*.parquet"):
            (job.copy / file.name).symlink_to(file.resolve())
        litdata.index_parquet_dataset(str(job.copy))

    def open(self) -> None:
        self.options = {"drop_last": True, "item_loader": ParquetLoader(columns=self.job.columns)}
        super().open()
