"""What is told of packs before training, compared with what all ranks are served, and with what the command tells."""

from __future__ import annotations

import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex


ROWS, WORLD, BATCH = 700, 3, 4
LENGTHS = [row * row % 90 for row in range(ROWS)]


@pytest.fixture
def dataset(tmp_path: pathlib.Path) -> Any:
    table = pa.table({"tokens": [[row] * length for row, length in enumerate(LENGTHS)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "train.rdx", lengths=["tokens"], progress=False)
    with rowdex.Dataset(tmp_path / "train.rdx") as dataset:
        yield dataset


CASES = {
    "even": ({"extra": 2}, "tokens:64,extra=2,block=128"),
    "wrap": ({"overflow": "truncate", "cost": (500, 1)}, "tokens:64,overflow=truncate,cost=500-1,block=128"),
    "drop": ({"overflow": "drop", "max_pieces": 3}, "tokens:64,overflow=drop,max_pieces=3,block=128"),
    "uneven": (
        {"algorithm": "concat", "empty": "keep", "multiple": 8},
        "tokens:64,algorithm=concat,empty=keep,multiple=8,block=128",
    ),
}


def loaders_of(dataset: Any, tail: Any) -> list[rowdex.Loader]:
    pack = rowdex.Pack("tokens", capacity=64, block=128, **CASES[tail][0])
    samplers = [
        rowdex.DistributedSampler(dataset, WORLD, rank, seed=3, batch_size=BATCH, pack=pack, tail=tail)
        for rank in range(WORLD)
    ]
    return [rowdex.Loader(dataset, sampler, output="numpy") for sampler in samplers]


@pytest.mark.parametrize("tail", CASES)
def test_what_is_told_of_packs_is_what_all_ranks_are_served(dataset: Any, tail: Any) -> None:
    loaders = loaders_of(dataset, tail)
    for loader in loaders:
        loader.set_epoch(1)
    told = loaders[1].estimate().packs
    assert told is not None
    ranks = [list(loader) for loader in loaders]
    assert {len(batches) for batches in ranks} == {told.steps}
    served = [batch for batches in ranks for batch in batches]
    pieces = [
        (int(row), int(offset), int(length))
        for batch in served
        for row, offset, length in zip(batch["row_ids"], batch["offsets"], batch["lengths"])
    ]
    tokens, distinct = sum(length for *_, length in pieces), set(pieces)
    assert sum(len(batch["pack_offsets"]) - 1 for batch in served) == told.packs
    assert (tokens, tokens - sum(length for *_, length in distinct)) == (told.tokens, told.tokens_repeated)
    lost = told.tokens_truncated + told.tokens_dropped + told.tokens_left_out
    assert tokens == sum(LENGTHS) - lost + told.tokens_repeated
    long, empty = [length for length in LENGTHS if length > 64], LENGTHS.count(0)
    assert told.tokens_truncated == (sum(long) - 64 * len(long) if tail == "wrap" else 0)
    assert told.tokens_dropped == (sum(long) if tail == "drop" else 0)
    assert (told.rows_truncated, told.rows_dropped) == (len(long) * (tail == "wrap"), len(long) * (tail == "drop"))
    assert told.rows_empty == empty
    if tail != "drop":
        assert len(distinct) == told.pieces
        rows = [row for row, *_ in distinct]
        assert told.rows_split == sum(rows.count(row) > 1 for row in set(rows))
    if tail in ("even", "wrap"):
        extra = 2 if tail == "even" else 0
        assert told.fill == pytest.approx((tokens + extra * len(pieces)) / (64 * told.packs))
    assert (told.opened > 0) == (tail == "even") and told.cost_imbalance >= 1
    assert told.pieces_a_pack > 1 and told.steps_looked_at == told.steps and told.seconds_to_plan >= 0


def test_a_loader_of_rows_tells_of_no_packs_and_one_of_buckets_of_its_padding(dataset: Any) -> None:
    assert rowdex.Loader(dataset, batch_size=5).estimate().packs is None
    buckets = rowdex.Pack("tokens", algorithm="buckets", block=100)
    loader = rowdex.Loader(dataset, batch_size=5, pack=buckets, output="numpy")
    prediction = loader.estimate()
    told = prediction.packs
    assert told is not None
    assert (told.steps, told.packs, told.rows_empty) == (ROWS // 5, ROWS, LENGTHS.count(0))
    # Rows of like lengths are padded by little.
    assert told.tokens == sum(LENGTHS) and 0.8 < told.fill < 1
