"""What every library is asked for."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq


@dataclasses.dataclass
class Job:
    """What a rank is to do."""

    data: pathlib.Path
    """A folder of Parquet files."""
    copy: pathlib.Path
    """Where a library keeps what it made of them beforehand."""
    columns: list[str]
    counted: str
    """The column whose values are counted."""
    batch: int
    """Rows of a step of one rank."""
    chunk: int
    """Bytes of a file of formats that have files of a chosen size."""
    splits: int | None = None
    """A number that all numbers of ranks divide with which a run is to go on, for who must know it beforehand."""
    changed: bool = False
    """Whether the shares of a mixture are others than when it began."""
    rank: int = 0
    world: int = 1

    def files(self) -> list[str]:
        return sorted(map(str, self.data.glob("*.parquet")))


class Peer:
    """A library, in the process of one rank, which serves shuffled epochs of a job."""

    package: ClassVar[str]
    """What is imported."""
    distribution: ClassVar[str | None] = None
    """The name under which it is installed."""
    manual: ClassVar[str]
    """What its manual says to use."""
    converts: ClassVar[bool] = False
    """Whether it rewrites the data before it can serve them."""

    def __init__(self, job: Job) -> None:
        self.job = job

    @classmethod
    def prepare(cls, job: Job) -> None:
        """Makes what it needs in ``job.copy``."""

    def open(self) -> None:
        raise NotImplementedError

    def epoch(self) -> Iterable[dict[str, Any]]:
        """The batches of the next epoch, or of the rest of one that was loaded."""
        raise NotImplementedError

    def state(self) -> Any:
        """What a checkpoint takes of this rank."""
        raise NotImplementedError

    def load(self, states: list[Any]) -> None:
        """Goes on from a checkpoint, with the states of all ranks that there were."""
        raise NotImplementedError


class OfLoader(Peer):
    """A library with a loader as PyTorch's, which serves one epoch after another, with a state of its rank."""

    loader: Any

    def epoch(self) -> Iterable[dict[str, Any]]:
        return self.loader

    def state(self) -> Any:
        return self.loader.state_dict()

    def load(self, states: list[Any]) -> None:
        self.loader.load_state_dict(own(states, self.job.rank))


SHARES = {"large": 0.7, "small": 0.3}
"""The sources of a mixture, each a folder of the data, and how often each is to come."""
SOURCE_ROWS = {"large": 8_960, "small": 960}
MIXED_ROWS = 12_800
"""Rows of an epoch of a mixture: as many as have each row of the large source once, and of the small one four times."""


CHANGED = {"large": 0.3, "small": 0.7}
"""What becomes of the shares in mid-run."""


def shares(job: Job) -> list[float]:
    return list((CHANGED if job.changed else SHARES).values())


def sources(job: Job) -> list[Job]:
    return [dataclasses.replace(job, data=job.data / name, copy=job.copy / name) for name in SHARES]


class OfSources(Peer):
    """Before the class of a library: one that serves a mixture of sources."""

    @classmethod
    def prepare(cls, job: Job) -> None:
        for one in sources(job):
            one.copy.mkdir()
            super().prepare(one)


def own(states: list[Any], rank: int) -> Any:
    """The state that a rank can load where each is of one rank: a new rank has none of its own."""
    return states[rank % len(states)]


def groups(files: list[str]) -> list[tuple[str, int]]:
    return [(file, group) for file in files for group in range(pq.read_metadata(file).num_row_groups)]


def rows(file: str, group: int, columns: list[str]) -> Iterator[dict[str, Any]]:
    """The rows of a row group as samples of numpy's and Python's values; fields of structs are columns of their own."""
    table = pq.ParquetFile(file).read_row_group(group, columns).flatten()
    values = [values_of(column.combine_chunks()) for column in table.columns]
    for row in zip(*values):
        yield dict(zip(table.column_names, row))


def values_of(column: pa.Array) -> Iterable[Any]:
    if pa.types.is_list(column.type):
        return (value.values.to_numpy() for value in column)
    # Numbers become Python's, because not all formats take numpy's.
    return column.to_pylist()
