"""The samples of a batch, which are made when they are looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch.utils.data
from torch.utils.data._utils.collate import default_collate_fn_map

from ..batch import Batch
from ..loading.convert import Convert


class Row(dict[str, Any]):
    """A sample: a dict of tensors and Python values. PyTorch's collation leaves samples of a whole batch to the dataset
    that made them."""

    def __missing__(self, key: Any) -> Any:
        if key == 0:
            # PyTorch's collation looks at the first of the samples, and this is only one.
            raise RuntimeError(
                "a collate_fn was given one sample, and not a list of them: a framework has put another sampler "
                "in the place of a rowdex.torch.BatchSampler, which is sharded already. With Ray, write "
                "prepare_data_loader(loader, add_dist_sampler=False)"
            )
        raise KeyError(key)


class Rows(Sequence[Row]):
    """The samples of a batch, which are made when they are looked at.

    ``default_collate``, the default of a ``DataLoader``, looks at the first and gets the columns of the whole batch as
    tensors. Any other ``collate_fn`` sees a list of samples.
    """

    def __init__(self, batch: Batch, convert: Convert) -> None:
        self.batch = batch
        self._convert = convert
        self._rows: list[Row] | None = None

    def __len__(self) -> int:
        return self.batch.num_rows

    def __getitem__(self, row: Any) -> Any:
        if self._rows is None:
            self._rows = samples(self.batch)
        if not self._rows and row == 0:
            # In the last step a rank may have no row, and collation goes by the type of the first all the same.
            return Row()
        return self._rows[row]

    def __iter__(self) -> Iterator[Row]:
        return iter([self[row] for row in range(len(self))])

    def __reduce__(self) -> Any:
        # A worker sends what a collate_fn returned, which may be these samples or have them in it.
        return list, (list(self),)

    def columns(self) -> Any:
        """The columns as tensors."""
        return self._convert(self.batch)


class Columns(dict[str, Any]):
    """A batch of an :class:`IterableDataset`, of which a ``DataLoader`` makes no batch."""


def _collate(samples: Any, *, collate_fn_map: Any = None) -> Any:
    if isinstance(samples, Rows):
        return samples.columns()
    # Samples that somebody picked out or changed.
    return torch.utils.data.default_collate([dict(sample) for sample in samples])


def _collate_batches(batches: Any, *, collate_fn_map: Any = None) -> Any:
    raise RuntimeError(
        f"a DataLoader that makes batches of {len(batches)} of the batches of an IterableDataset of rowdex: write "
        "DataLoader(dataset, batch_size=None), and give the dataset the batch size; the Trainer of Hugging Face takes "
        "the rowdex.Dataset, with rowdex.transformers.TrainerMixin"
    )


# The way to teach `default_collate` about a type that its documentation gives.
default_collate_fn_map[Row] = _collate
default_collate_fn_map[Columns] = _collate_batches


def samples(batch: Batch) -> list[Row]:
    """Rows with lists of numbers as tensors, and Python values otherwise."""
    fields = batch.schema.fields
    array = batch._export().array
    columns: list[Any] = []
    for i, field in enumerate(fields):
        if field.format.startswith(("+w:", "+l", "+L", "+vl", "+vL")):
            columns.append(_lists(batch, field.name) or batch_values(batch, array, i))
        else:
            columns.append(batch_values(batch, array, i))
    names = batch.column_names
    return [Row(zip(names, row)) for row in zip(*columns)] if columns else [Row() for _ in range(len(batch))]


def columns_of(rows: Any) -> Any:
    """The samples of a step as one batch."""
    return rows.columns() if isinstance(rows, Rows) else torch.utils.data.default_collate(rows)


def batch_values(batch: Batch, array: Any, column: int) -> list[Any]:
    from ..native import values as _values

    return _values.values(batch.schema.fields[column], array.children[column].contents, array.offset, len(batch))


def _lists(batch: Batch, name: str) -> list[Any] | None:
    """The lists of a column as tensors; ``None`` if they are not of numbers, or there are nulls."""
    try:
        found = batch.to_torch([name])[name]
    except ValueError:
        return None
    if isinstance(found, torch.Tensor):
        return list(found)
    values, offsets = found.values, found.offsets
    if not isinstance(values, torch.Tensor):
        return None
    return list(torch.tensor_split(values, offsets[1:-1].to(torch.int64))) if len(offsets) > 1 else []
