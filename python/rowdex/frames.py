"""Datasets for the engines that read data frames.

polars, DuckDB, pyarrow and pandas take a :class:`rowdex.Dataset` as it is, because it is an Arrow stream of all rows.
:func:`scan_polars` makes a lazy frame of it, which reads the columns that a query needs, and no more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .batch import Batch
from .dataset import Dataset
from .index import Path
from .loading import passes as _passes
from .native.imports import loaded


def scan_polars(
    dataset: Dataset | Path, columns: Sequence[str] | None = None, *, row_ids: str | None = None
) -> Any:
    """A ``polars.LazyFrame`` of a dataset, in the order of its rows.

    A query reads the columns that it needs, and stops reading once it has the rows that it needs. Memory is bounded,
    whatever the size of the dataset: about 1 GiB of decoded rows are held at most. Each ``collect`` reads again. With
    ``row_ids``, a query can choose the rows of a training run::

        rows = rowdex.scan_polars("train.rdx", row_ids="row").filter(polars.col("score") > 0.5).select("row").collect()
        kept = rowdex.order.IdSet(len(dataset), rows["row"])

    Args:
        dataset: The dataset, or the path of its index.
        columns: The columns to offer, in this order. Default: all.
        row_ids: Adds the row ids under this name, as the first column, uint64.

    Raises:
        ValueError: if there is a column of the name that ``row_ids`` says.
        ModuleNotFoundError: if polars is not installed.
        Error: from a query, whatever reading meets.
    """
    pl = loaded("polars")
    plugins = loaded("polars.io.plugins")
    if not isinstance(dataset, Dataset):
        dataset = Dataset(dataset, columns)
    elif columns is not None:
        dataset = dataset.select(columns)
    if row_ids is not None and row_ids in dataset.column_names:
        raise ValueError(f"there is a column called {row_ids!r}: choose another name for the row ids")
    schema = dict(pl.DataFrame(dataset.take([])).schema)
    if row_ids is not None:
        schema = {row_ids: pl.UInt64, **schema}
    source = _Source(dataset, row_ids)
    return plugins.register_io_source(source, schema=schema, is_pure=True)


class _Source:
    """What polars asks for frames. It is pickled with a lazy frame."""

    def __init__(self, dataset: Dataset, row_ids: str | None) -> None:
        self._dataset, self._row_ids = dataset, row_ids

    def __call__(
        self, with_columns: list[str] | None, predicate: Any, n_rows: int | None, batch_size: int | None
    ) -> Iterator[Any]:
        pl = loaded("polars")
        dataset, names = self._dataset, with_columns
        if names is not None:
            dataset = dataset.select([name for name in names if name != self._row_ids])
        elif self._row_ids is not None:
            names = [self._row_ids, *dataset.column_names]
        for batch in _first(dataset, n_rows, batch_size):
            frame = pl.DataFrame(batch)
            if self._row_ids is not None and names is not None and self._row_ids in names:
                ids = pl.Series(self._row_ids, batch.row_ids, dtype=pl.UInt64)
                # A frame without columns has no rows, so the ids come first.
                frame = pl.DataFrame([ids, *frame.get_columns()])
            if names is not None:
                frame = frame.select(names)
            yield frame if predicate is None else frame.filter(predicate)


def _first(dataset: Dataset, rows: int | None, batch_size: int | None) -> Iterator[Batch]:
    """The batches of all rows, or of the first so many."""
    if rows is None or rows >= len(dataset):
        yield from _passes.batches(_passes.begin(dataset, batch_size or None), dataset)
        return
    step = min(batch_size or _passes.batch_rows(dataset), _passes.batch_rows(dataset))
    for start in range(0, rows, step):
        yield dataset.take(range(start, min(start + step, rows)))


__all__ = ["scan_polars"]
