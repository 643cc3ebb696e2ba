"""Columns side by side under PyTorch and JAX, compared with PyTorch's StackDataset."""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow as pa
import pytest
import rowdex

from ..test_zipped import ROWS, Case, opened, side, tables
from .need import need

torch = need("torch")

import rowdex.torch  # noqa: E402
from torch.utils.data import DataLoader, StackDataset  # noqa: E402
from torch.utils.data.distributed import DistributedSampler  # noqa: E402

COLUMNS = ["x", "label", "vector"]
__all__ = ["side"]


def values(batches: Any) -> list[Any]:
    return [[batch[name].tolist() for name in COLUMNS] for batch in batches]


@pytest.mark.parametrize("rank, workers", [(0, 0), (1, 2)])
def test_every_sampler_serves_what_a_stack_dataset_serves(side: Case, rank: int, workers: int) -> None:
    def rows(samples: Any) -> Any:
        return [[{**row["a"], **row["b"]}[name] for row in samples] for name in COLUMNS]

    dataset = rowdex.torch.Zipped(side[:2], COLUMNS, on="id", memory="1MiB")
    stack = StackDataset(a=side.first.select(["x", "label"]), b=side.other.select(["vector"]))
    stock = DistributedSampler(stack, num_replicas=2, rank=rank, seed=6)
    stock.set_epoch(1)
    expected = list(DataLoader(stack, 16, sampler=stock, collate_fn=rows))
    options = {"num_replicas": 2, "rank": rank, "seed": 6, "order": "torch"}
    steps = rowdex.torch.BatchSampler(dataset, 16, **options)
    batches = rowdex.torch.IterableDataset(dataset, 16, **options)
    steps.set_epoch(1)
    batches.set_epoch(1)
    assert values(DataLoader(dataset, 16, sampler=stock, num_workers=workers)) == expected
    assert values(DataLoader(dataset, batch_sampler=steps, num_workers=workers)) == expected
    assert values(DataLoader(batches, batch_size=None, num_workers=workers)) == expected
    # A state of the first dataset alone.
    alone = rowdex.torch.BatchSampler(rowdex.torch.Dataset(side.first.index), 16, **options)
    steps.load_state_dict(alone.state_after(1, 3))
    assert values(DataLoader(dataset, batch_sampler=steps, num_workers=workers)) == expected[4:]


def test_errors_come_from_workers_and_batches_to_jax(side: Case, tmp_path: pathlib.Path) -> None:
    table = tables(ROWS)[1]
    ids = pa.array([*table["id"].to_pylist()[:-1], "another"])
    other = opened(tmp_path, "other", table.set_column(1, "id", ids), 50)
    steps = rowdex.torch.BatchSampler(rowdex.torch.Zipped([side.first, other], on="id"), 64, shuffle=False)
    with pytest.raises(rowdex.errors.ZipError, match="row id 502 has id 'key 502' in .* and 'another'"):
        list(DataLoader(steps.sampler.dataset, batch_sampler=steps, num_workers=2))
    jax = need("jax")
    from rowdex.jax import Loader

    batches = list(Loader(side.zipped(columns=COLUMNS), batch_size=50))
    assert {batch["vector"].shape for batch in batches} == {(50, 2)} and isinstance(batches[0]["x"], jax.Array)
    assert all((batch["x"] == batch["vector"][:, 0]).all() for batch in batches)
