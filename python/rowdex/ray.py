"""rowdex on a cluster of Ray.

- In a training function of Ray Train a :class:`rowdex.Loader` takes rank and world size from Ray by itself.
- :func:`rewrite` writes the rows again, in a shuffled order, by tasks.
- :func:`read` makes a ``ray.data.Dataset`` of a dataset's rows, in their order, and :func:`rows` makes a set of row ids
  of what a query of Ray Data picked.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any

import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource as _Datasource
from ray.data.datasource import ReadTask

from . import native
from .dataset import Dataset
from .errors import ArgumentError
from .index import Path
from .loading import options as _options
from .native.imports import loaded
from .native.library import located
from .native.numbers import whole_in_pickles
from .order import IdSet
from .rewriting import RewriteReport
from .rewriting import rewrite as _rewrite

_BLOCK_ROWS = 1 << 16
_BLOCK_BYTES = 64 << 20
"""What is read at once: a block of Ray Data is made of one or more of these."""


class Datasource(_Datasource):
    """The rows of a dataset for Ray Data, in their order: for ``ray.data.read_datasource``, which :func:`read` calls.

    Each task reads consecutive rows, and whole row groups where there are at least as many as there are tasks. A task
    opens the dataset where it runs, so all machines must see index and data by the same paths or URLs.

    Args:
        dataset: The rows. A dataset of an index of selected rows has those alone.
        rows: Which of them: an :class:`rowdex.order.IdSet`. Default: all.
        row_ids: Adds the row ids as a column of this name, int64.
    """

    def __init__(self, dataset: Dataset, *, rows: IdSet | None = None, row_ids: str | None = None) -> None:
        super().__init__()
        if not isinstance(dataset, Dataset):
            raise TypeError(f"{type(dataset).__name__}: give it a rowdex.Dataset")
        if row_ids in dataset.column_names:
            raise ValueError(f"there is a column called {row_ids!r}: choose another name")
        if rows is not None and not isinstance(rows, IdSet):
            raise TypeError(f"rows is a {type(rows).__name__}: give a rowdex.order.IdSet")
        if rows is not None and rows.rows != len(dataset):
            raise ValueError(f"rows: a set of {rows.rows} rows, for a dataset of {len(dataset)}: make it of this one")
        self._dataset, self._rows, self._row_ids = dataset, rows, row_ids

    def get_name(self) -> str:
        return "Rowdex"

    def estimate_inmemory_data_size(self) -> int:
        """About how many bytes the rows take, according to the footers."""
        return self._dataset.decoded_bytes * self._length() // max(1, len(self._dataset))

    def _length(self) -> int:
        return len(self._dataset) if self._rows is None else len(self._rows)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Tasks of about equal numbers of rows; together, one after the other, they read all rows in order."""
        total, whole = self._length(), max(1, len(self._dataset))
        if self._rows is None:
            pieces: list[Sequence[int]] = [range(a, b) for a, b in _pieces(self._dataset, parallelism)]
        else:
            ids, count = list(self._rows), max(1, min(parallelism, total))
            pieces = [ids[total * n // count : total * (n + 1) // count] for n in range(count)]
        width = self._dataset.decoded_bytes / whole
        step = max(1, min(_BLOCK_ROWS, int(_BLOCK_BYTES / max(1.0, width))))

        def task(piece: Sequence[int]) -> ReadTask:
            size = int(width * len(piece))
            return ReadTask(
                _Reading(self._dataset, piece, step, self._row_ids),
                BlockMetadata(num_rows=len(piece), size_bytes=size, input_files=None, exec_stats=None),
                per_task_row_limit=per_task_row_limit,
            )

        # Without any row, one task says what the columns are.
        return [task(piece) for piece in pieces if len(piece) > 0] or [task(range(0))]


class _Reading:
    """What a task does: reads rows in pieces."""

    def __init__(self, dataset: Dataset, rows: Sequence[int], step: int, row_ids: str | None) -> None:
        self._dataset, self._rows, self._step, self._row_ids = dataset, rows, step, row_ids

    def __call__(self) -> Iterator[Any]:
        arrow = loaded("pyarrow")
        with self._dataset as dataset:
            for first in range(0, max(1, len(self._rows)), self._step):
                part = self._rows[first : first + self._step]
                table = arrow.Table.from_batches([dataset.take(part).to_arrow()])
                if self._row_ids is not None:
                    table = table.append_column(self._row_ids, arrow.array(part, arrow.int64()))
                yield table


def _pieces(dataset: Dataset, count: int) -> Iterator[tuple[int, int]]:
    """At most ``count`` consecutive ranges of row ids, ending with row groups where there are enough of these."""
    total = len(dataset)
    count = max(1, min(count, total))
    bounds = [total * n // count for n in range(count + 1)]
    ends = sorted(_group_ends(dataset))
    if len(ends) >= count:
        for place, bound in enumerate(bounds[1:-1], 1):
            at = bisect.bisect_left(ends, bound)
            bounds[place] = min(ends[max(0, at - 1) : at + 1], key=lambda end: abs(end - bound))
    for start, end in zip(bounds, bounds[1:]):
        if start < end:
            yield start, end


def _group_ends(dataset: Dataset) -> Iterator[int]:
    """The row id after each row group."""
    before = 0
    for part in dataset._in_turn:
        for file in part.index._files(0, len(part.index.files), groups=True):
            for group in file["row_groups"]:
                yield before + group["first_row"] + group["rows"]
        before += len(part)


def read(
    dataset: Dataset, *, rows: IdSet | None = None, row_ids: str | None = None, **options: Any
) -> ray.data.Dataset:
    """A ``ray.data.Dataset`` of the rows of a dataset, read in parallel and kept in their order.

    Args:
        dataset, rows, row_ids: As :class:`Datasource` has them.
        options: As ``ray.data.read_datasource`` has them: ``override_num_blocks``, ``concurrency``, ``num_cpus`` and
            others.
    """
    _options.check({"pack"} & set(options), (), "rowdex.ray.read")
    found = ray.data.read_datasource(Datasource(dataset, rows=rows, row_ids=row_ids), **options)
    found.context.execution_options.preserve_order = True
    return found


def rows(picked: ray.data.Dataset, dataset: Dataset | int, column: str = "row_id") -> IdSet:
    """The row ids that a query of Ray Data picked, in any order: for :class:`rowdex.order.Subset`, or for
    ``read(rows=...)``.

    ::

        found = rowdex.ray.read(dataset, row_ids="row_id").filter(expr="label == 3")
        kept = rowdex.ray.rows(found, dataset)
        loader = rowdex.Loader(dataset, batch_size=256, order=rowdex.order.Subset("global", kept))

    Args:
        picked: What has a column of row ids, from ``read(row_ids=...)``. The query runs here.
        dataset: The dataset that the ids are of, or how many rows that has.
        column: What the column is called.

    Raises:
        ArgumentError: if there is no such column; OutOfRangeError: for a row id that the dataset does not have.
    """
    ids: list[int] = []
    for batch in picked.iter_batches(batch_size=None, batch_format="pyarrow"):
        if batch.num_rows == 0:
            continue
        if column not in batch.column_names:
            raise ArgumentError(
                f"there is no column {column!r} among {', '.join(batch.column_names)}: read with row_ids={column!r}, "
                "and keep that column in the query"
            )
        ids.extend(batch[column].to_pylist())
    return IdSet(dataset if isinstance(dataset, int) else len(dataset), ids)


def rewrite(
    source: Dataset | Path,
    output: Path,
    *,
    nodes: int | None = None,
    num_cpus: float | None = None,
    spill: Path | None = None,
    verify: bool = False,
    **options: Any,
) -> RewriteReport:
    """Writes the rows again as :func:`rowdex.rewrite` does, to the same files, by tasks on machines of a cluster. There
    is one task for each node: it spills a part of the input, and then writes some of the output files. The index is
    written here. ::

        rowdex.ray.rewrite("/shared/train.rdx", "/shared/out", nodes=16, spill="/scratch", seed=42, memory="64GiB")

    All machines must see the input, ``output`` and ``spill`` by the same paths; the first two may be URLs of a store. A
    task whose process is lost is run again by Ray, and resumes after what it had finished: files and parts appear
    whole. When a task raises an error, the call raises it at once, while other tasks end by themselves; another call
    resumes from there.

    Args:
        source: A dataset, or the path of an index.
        output: The folder to write to, or a prefix of a store.
        nodes: Tasks of each of the two steps, which Ray spreads over the machines. Default: one for each machine.
        num_cpus: Processors that each task takes, and threads unless ``threads`` is given. Default: those that each of
            the machines has.
        spill: Spills rows to a folder in this one, which all machines share. Default: in ``output``, if that is a
            folder.
        verify: Reads both once more, here, and raises unless every row is where it belongs.
        options: As :func:`rowdex.rewrite` has them, for the whole: ``seed``, ``order``, ``memory`` (of each task),
            ``files``, ``compression`` and others. If ``files`` is the number of nodes, or a multiple of it, all nodes
            have the same work.

    Raises:
        Error: what rewriting raises, in a task or here.
    """
    for name in ("step", "task", "tasks", "resume", "overwrite"):
        if name in options:
            raise TypeError(f"{name} is of rowdex.rewrite; here nodes= divides the work, which resumes by itself")
    if nodes is not None and nodes < 1:
        raise ValueError(f"nodes={nodes}: use 1 or more")
    machines = [node["Resources"].get("CPU", 0.0) for node in ray.nodes() if node["Alive"]]
    count = nodes or max(1, len(machines))
    cpus = num_cpus if num_cpus is not None else max(1.0, min((cpu for cpu in machines if cpu > 0), default=1.0))
    options.setdefault("threads", max(1, int(cpus)))
    shared: dict[str, Any] = {**options, "progress": False}
    for name, path in (("spill", spill), ("root", options.get("root"))):
        shared[name] = None if path is None else located(path)
    given, to = source if isinstance(source, Dataset) else located(source), located(output)
    # A process that begins for this task imports neither ray.data nor this module, which take two thirds of its start.
    task = ray.remote(num_cpus=cpus, scheduling_strategy="SPREAD")(_rewrite)
    with whole_in_pickles():
        sent = {**shared, "order": ray.put(options.get("order", "global"))}
    done: list[RewriteReport] = []
    for step in ("spill", "write"):
        try:
            steps = [task.remote(given, to, step=step, task=number, tasks=count, **sent) for number in range(count)]
            done += ray.get(steps)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from error
    report: RewriteReport = _rewrite(given, to, step="index", verify=verify, **shared)
    return report._replace(
        # Tasks of the first pass look at all files.
        kept_files=sum(each.kept_files for each in done[count:]),
        bytes_written=sum(each.bytes_written for each in done),
        bytes_spilled=sum(each.bytes_spilled for each in done),
    )


__all__ = ["Datasource", "read", "rewrite", "rows"]
