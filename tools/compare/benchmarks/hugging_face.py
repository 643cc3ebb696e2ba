"""Hugging Face datasets, with what PyTorch and torchdata have for ranks and states."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import datasets
from datasets.distributed import split_dataset_by_node
from torch.utils.data import BatchSampler, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from .peer import Job, OfLoader, OfSources, shares, sources


def mixed(job: Job, parts: list[Any]) -> Any:
    """Until each source has come once."""
    return datasets.interleave_datasets(
        parts, probabilities=shares(job), seed=1, stopping_strategy="all_exhausted"
    )


def load(job: Job, **options: Any) -> Any:
    return datasets.load_dataset(
        "parquet", data_files=job.files(), split="train", columns=job.columns, cache_dir=str(job.copy), **options
    )


class HuggingFace(OfLoader):
    package = distribution = "datasets"
    epochs = 0

    def epoch(self) -> Iterable[dict[str, Any]]:
        self.shuffled.set_epoch(self.epochs)
        self.epochs += 1
        return self.loader

    shuffled: Any


class Mapped(HuggingFace):
    manual = "a mapped Arrow copy, `DistributedSampler`, `BatchSampler`, torchdata's `StatefulDataLoader`"
    converts = True

    @classmethod
    def prepare(cls, job: Job) -> None:
        load(job)

    def open(self) -> None:
        dataset = self.data().with_format("torch")
        self.shuffled = DistributedSampler(dataset, self.job.world, self.job.rank, seed=1)
        batches = BatchSampler(self.shuffled, self.job.batch, drop_last=False)
        self.loader = StatefulDataLoader(dataset, batch_size=None, sampler=batches)


    def data(self) -> Any:
        return load(self.job)


class MappedMixed(OfSources, Mapped):
    manual = "`interleave_datasets` of shuffled mapped copies, the rest as above"

    def data(self) -> Any:
        return mixed(self.job, [load(one).shuffle(seed=1) for one in sources(self.job)])


class Streaming(HuggingFace):
    manual = "`streaming=True`, `shuffle` (1,000 rows), `split_dataset_by_node`, `StatefulDataLoader`"

    def open(self) -> None:
        dataset = split_dataset_by_node(self.data(), self.job.rank, self.job.world).with_format("torch")
        self.shuffled = dataset
        self.loader = StatefulDataLoader(dataset, batch_size=self.job.batch)

    def data(self) -> Any:
        return load(self.job, streaming=True).shuffle(seed=1)


class StreamingMixed(Streaming):
    manual = "`interleave_datasets` of shuffled streams, the rest as above"

    def data(self) -> Any:
        return mixed(self.job, [load(one, streaming=True).shuffle(seed=1) for one in sources(self.job)])
