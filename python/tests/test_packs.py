"""Packs as samplers describe and deal them."""

import pathlib
import pickle
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.order import Explicit, Subset, Weighted

ROWS = 700


@pytest.fixture
def dataset(tmp_path: pathlib.Path) -> rowdex.Dataset:
    tokens = [[row] * (row * row % 90) for row in range(ROWS)]
    table = pa.table({"tokens": tokens, "images": [row * 7 % 5 for row in range(ROWS)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "train.rdx", lengths=["tokens", "images"], progress=False)
    return rowdex.Dataset(tmp_path / "train.rdx", columns=["tokens"])


def lengths_of(dataset: rowdex.Dataset) -> list[int]:
    """As pyarrow counts them."""
    table = pq.read_table(pathlib.Path(dataset.index.path).parent / "a.parquet")
    return [len(row) for row in table["tokens"].to_pylist()]


Piece = tuple[int, int, int]


def packs_of(batch: rowdex.reports.SampledBatch) -> list[list[Piece]]:
    assert batch.offsets is not None and batch.lengths is not None and batch.packs is not None
    pieces = list(zip(batch.row_ids, batch.offsets, batch.lengths))
    ends = [0, *batch.packs]
    assert ends[-1] == len(pieces)
    return [pieces[first:end] for first, end in zip(ends, ends[1:])]


def check_tokens(pieces: list[Piece], expected: dict[int, int]) -> None:
    """That these are all tokens of all rows, once."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for row, offset, length in pieces:
        rows.setdefault(row, []).append((offset, length))
    for row, parts in rows.items():
        end = 0
        for offset, length in sorted(parts):
            assert offset == end, row
            end += length
        assert end == expected[row], row
    assert rows.keys() == {row for row, length in expected.items() if length > 0}


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("algorithm", ["bfd", "concat"])
def test_ranks_take_equal_steps_with_every_token_once(dataset: rowdex.Dataset, world: int, algorithm: str) -> None:
    pack = rowdex.Pack("tokens", capacity=64, algorithm=algorithm, extra=2, block=128)  # type: ignore[arg-type]
    pieces: list[Piece] = []
    steps = set()
    for rank in range(world):
        sampler = rowdex.DistributedSampler(dataset, world, rank, seed=3, batch_size=4, pack=pack)
        batches = list(sampler.batches())
        assert len(batches) > 0
        steps.add((len(batches), tuple(len(batch.packs or ()) for batch in batches)))
        for batch in batches:
            for pack_pieces in packs_of(batch):
                assert sum(length + 2 for _, _, length in pack_pieces) <= 64
                pieces += pack_pieces
    assert len(steps) == 1
    check_tokens(pieces, dict(enumerate(lengths_of(dataset))))


def test_steps_are_known_before_the_first_batch_and_for_a_whole_run(dataset: rowdex.Dataset) -> None:
    sampler = rowdex.DistributedSampler(dataset, 2, 1, batch_size=3, pack=rowdex.Pack("tokens", 64, block=128))
    total = sampler.total_steps(3)
    known = []
    for epoch in range(3):
        assert sampler.epoch == epoch
        known.append(sampler.steps)
        assert len(list(sampler.batches())) == known[-1]
    assert (total, sampler.total_steps(0)) == (sum(known), 0)
    rows = rowdex.DistributedSampler(dataset, 2, 1, batch_size=3)
    assert rows.total_steps(4) == 4 * rows.steps


@pytest.mark.parametrize("lengths", ["tokens", {"tokens": 90, "images": 6}])
def test_any_world_goes_on_where_another_one_stopped(dataset: rowdex.Dataset, lengths: Any) -> None:
    choose = random.Random(7)
    two = lengths != "tokens"
    pack = rowdex.Pack(lengths, None if two else 64, block=128, cost=(24576, 1))
    expected = dict(enumerate(lengths_of(dataset)))

    def sampler(size: int, rank: int) -> rowdex.DistributedSampler:
        return rowdex.DistributedSampler(dataset, size, rank, seed=1, batch_size=2, pack=pack)

    for world, other in [(1, 9), (3, 2), (4, 4), (9, 1), (2, 7)]:
        ranks = [sampler(world, rank) for rank in range(world)]
        stop = choose.randrange(1, ranks[0].steps)
        before = [rank.batch(0, step) for rank in ranks for step in range(stop)]
        state = ranks[0].state_after(0, stop - 1)
        assert all(rank.state_after(0, stop - 1) == state for rank in ranks)
        after = []
        for number in range(other):
            resumed = sampler(other, number)
            resumed.load_state_dict(state)
            batches = list(pickle.loads(pickle.dumps(resumed)).batches())
            assert len(batches) == resumed.steps_left
            if world == other:
                assert batches == [ranks[number].batch(0, step) for step in range(stop, ranks[number].steps)]
            after += batches
        packs = [pack_pieces for batch in [*before, *after] for pack_pieces in packs_of(batch)]
        assert not two or all(sum(row * 7 % 5 for row, _, _ in pack_pieces) <= 6 for pack_pieces in packs)
        check_tokens([piece for pack_pieces in packs for piece in pack_pieces], expected)
    with rowdex.Loader(dataset, batch_size=2, pack=pack, output="numpy") as loader:
        tokens = sorted(token for batch in loader for token in batch["tokens"].tolist())
        assert tokens == [row for row, length in expected.items() for _ in range(length)]
    with pytest.raises(TypeError, match="two with their limits"):
        rowdex.Pack({"tokens": 64})


def test_packs_are_of_any_order(dataset: rowdex.Dataset) -> None:
    lengths = lengths_of(dataset)
    pack = rowdex.Pack("tokens", 100, block=64)
    listed = [5, 9, 9, 200, 31]
    weights = [float(row % 3) for row in range(ROWS)]
    for order in [Explicit(listed), Weighted(weights, size=300), Subset("global", rowdex.order.IdSet(ROWS, listed))]:
        sampler = rowdex.DistributedSampler(dataset, 1, 0, order=order, batch_size=1, pack=pack)
        served = sum(sum(batch.lengths or ()) for batch in sampler.batches())
        rows = rowdex.DistributedSampler(dataset, 1, 0, order=order, batch_size=1)
        assert served == sum(lengths[row] for row in rows)


def test_a_mixture_needs_the_lengths_of_all_its_parts(dataset: rowdex.Dataset, tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({"tokens": [[1, 2, 3]] * 50}), tmp_path / "b.parquet")
    rowdex.build(tmp_path / "b.parquet", tmp_path / "b.rdx", progress=False)

    def sampler() -> rowdex.DistributedSampler:
        mixed = rowdex.MixedDataset([dataset, rowdex.Dataset(tmp_path / "b.rdx")])
        return rowdex.DistributedSampler(mixed, 2, 0, batch_size=1, pack=rowdex.Pack("tokens", 90))

    with pytest.raises(rowdex.errors.ArgumentError, match=r"tokens"):
        sampler()
    rowdex.Index(tmp_path / "b.rdx").note_lengths("tokens", progress=False)
    mixed = sampler()
    lengths = [*lengths_of(dataset), *[3] * 50]
    for batch in mixed.batches():
        for row, offset, length in sum(packs_of(batch), []):
            assert offset + length <= lengths[row]


def test_budgets_are_batches_of_whole_rows(dataset: rowdex.Dataset) -> None:
    lengths = lengths_of(dataset)
    budgets: list[Any] = ["budget", "padded"]
    for algorithm in budgets:
        budget = rowdex.Pack("tokens", 400, algorithm=algorithm, block=128)
        rows = []
        for rank in range(3):
            sampler = rowdex.DistributedSampler(dataset, 3, rank, batch_size=1, pack=budget)
            for batch in sampler.batches():
                own = [lengths[row] for row in batch.row_ids]
                assert own == list(batch.lengths or ()) and not any(batch.offsets or ())
                assert (len(own) * max(own) if algorithm == "padded" else sum(own)) <= 400
                rows += batch.row_ids
        assert sorted(rows) == [row for row, length in enumerate(lengths) if length > 0]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"capacity": 0}, ValueError, "capacity of 0"),
        ({"capacity": -1}, ValueError, "capacity=-1"),
        ({"capacity": 8, "extra": 8}, ValueError, "leave no place"),
        ({"capacity": 8, "bos": 1}, ValueError, "extra=1"),
        ({"capacity": 8, "overflow": "spill"}, ValueError, "spill"),
        ({"capacity": 8, "algorithm": "worst"}, ValueError, "worst"),
        ({"capacity": 8, "algorithm": "padded", "overflow": "split"}, ValueError, "split"),
        ({"capacity": 8, "algorithm": "padded", "layout": "rows"}, ValueError, "layout"),
        ({"lengths": 7, "capacity": 8}, TypeError, "lengths=7"),
        ({"capacity": 8, "empty": "maybe"}, ValueError, "maybe"),
        ({"capacity": 8, "layout": "heap"}, ValueError, "layout"),
        ({"capacity": 8, "multiple": 9}, ValueError, "multiple"),
        ({"capacity": 8, "block": 0}, ValueError, "blocks of 0"),
        ({"capacity": 8, "max_pieces": 0}, ValueError, "0 pieces"),
        ({"capacity": 8, "cost": 3}, TypeError, "cost"),
        ({"capacity": 8, "overflow": "error"}, ValueError, "overflow"),
        ({"lengths": "words", "capacity": 8}, ValueError, "words"),
    ],
)
def test_what_packs_cannot_be_is_refused(
    dataset: rowdex.Dataset, options: dict[str, object], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        pack = rowdex.Pack(**{"lengths": "tokens", **options})  # type: ignore[arg-type]
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=1, pack=pack)


def test_packs_are_refused_where_rows_are_served(dataset: rowdex.Dataset) -> None:
    pack = rowdex.Pack("tokens", 64)
    with pytest.raises(TypeError, match="lengths"):
        rowdex.DistributedSampler(range(10), 1, 0, batch_size=1, pack=pack)
    with pytest.raises(TypeError, match=r"rowdex\.Pack"):
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=1, pack="tokens")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="whole rows"):
        iter(rowdex.DistributedSampler(dataset, 1, 0, batch_size=1, pack=pack))
    with pytest.raises(ValueError, match="contiguous"):
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=1, pack=pack, order="global,contiguous")
    with pytest.raises(ValueError, match="even"):
        rowdex.DistributedSampler(dataset, 2, 0, batch_size=1, tail="even")
    state = rowdex.DistributedSampler(dataset, 1, 0, batch_size=1).state_dict()
    with pytest.raises(rowdex.errors.StateError, match="packs"):
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=1, pack=pack).load_state_dict(state)
