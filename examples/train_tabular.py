"""Training on a table with numbers, categories and missing values, with PyTorch's DataLoader and worker processes.

    python examples/train_tabular.py [train.rdx]

The index's columns must be those of `example` below. Without one it makes a small dataset in a temporary folder, which
needs pyarrow."""

from __future__ import annotations

import math
import pathlib
import sys
import tempfile
from typing import Any

import rowdex
import rowdex.torch
import torch
from torch import nn
from torch.utils.data import DataLoader

EPOCHS = 3
BATCH_SIZE = 256
SHOPS = [f"shop {number}" for number in range(10)]


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shop = nn.Embedding(len(SHOPS), 4)
        self.layers = nn.Sequential(nn.Linear(4 + 3, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        age = batch["age"]  # Values, NaN where there is none, and whether there is one.
        shops = torch.tensor([SHOPS.index(name) for name in batch["shop"].values])
        numbers = torch.stack([batch["price"].values, age.values.nan_to_num(), age.valid.float()], dim=1)
        found: torch.Tensor = self.layers(torch.cat([self.shop(shops), numbers], dim=1)).squeeze(1)
        return found


def main(index: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    dataset = rowdex.torch.Dataset(index, columns=["price", "age", "shop", "bought"], nulls="mask", memory=64 << 20)
    batches = rowdex.torch.BatchSampler(dataset, BATCH_SIZE, seed=1)
    loader = DataLoader(dataset, batch_sampler=batches, num_workers=2, persistent_workers=True)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for epoch in range(batches.sampler.epoch, EPOCHS):
        total = 0.0
        for batch in loader:
            loss = nn.functional.binary_cross_entropy_with_logits(model(batch), batch["bought"].values.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        if not math.isfinite(total):
            raise ArithmeticError("the loss is not a number any more")
        print(f"epoch {epoch}: {len(loader)} batches, mean loss {total / len(loader):.3f}")


def example(folder: pathlib.Path) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = torch.Generator().manual_seed(1)
    rows = 5_000
    for number in range(2):
        price, age = torch.rand(rows, generator=generator), torch.randn(rows, generator=generator)
        unknown = torch.rand(rows, generator=generator) < 0.2
        shop = torch.randint(len(SHOPS), (rows,), generator=generator)
        columns = {
            "price": price.numpy(),
            "age": pa.array(age.numpy(), mask=unknown.numpy()),
            "shop": [SHOPS[i] for i in shop.tolist()],
            "bought": (price + age * ~unknown + shop / len(SHOPS) > 1).numpy(),
        }
        pq.write_table(pa.table(columns), folder / f"part-{number}.parquet", row_group_size=1_000)
    rowdex.build(folder, folder / "train.rdx")
    return str(folder / "train.rdx")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as name:
            main(example(pathlib.Path(name)))
