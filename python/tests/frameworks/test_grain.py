"""Grain: sources, an order that Grain reads forward, and batches with Grain's state."""

from __future__ import annotations

import json
import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need
from .page import script

grain = need("grain")

from absl import flags  # noqa: E402
from rowdex import grain as rowdex_grain  # noqa: E402

if not flags.FLAGS.is_parsed():
    # What absl's app.run does: Grain reads its flags where it starts processes.
    flags.FLAGS.mark_as_parsed()


@pytest.fixture()
def rows(unequal: pathlib.Path) -> Any:
    with rowdex.Dataset(unequal / "train.rdx") as dataset:
        yield dataset


ALONE = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
"""Without threads of Grain's own, which take longer than everything else."""


def plain(rows: Any, epochs: int = 2, **sampling: Any) -> list[list[int]]:
    """The ids of the batches of a plain loader."""
    with rowdex.Loader(rows, output="numpy", **sampling) as loader:
        return [batch["id"].tolist() for _ in range(epochs) for batch in loader]


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def flat(batches: list[list[int]]) -> list[int]:
    return [row for batch in batches for row in batch]


def test_a_source_gives_rows_that_grain_batches_in_their_shape(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "x", "vector", "tokens", "name"])
    source = rowdex_grain.Source(dataset, pad={"tokens": 4})
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    batch = grain.MapDataset.source(source).shuffle(seed=1).batch(64)[0]
    order = batch["id"].tolist()
    assert len(set(order)) == 64 and order != sorted(order)
    assert batch["vector"].shape == (64, 3) and batch["tokens"].shape == (64, 4) and batch["x"].dtype == np.float32
    assert batch["vector"].tolist() == [[i, i + 1, i + 2] for i in order]
    assert batch["tokens"].tolist() == [[*range(i % 4), 0, 0, 0, 0][:4] for i in order]
    assert batch["name"].tolist() == [f"row {i}" for i in order]


def test_a_source_is_pickled_and_known_by_its_rows(unequal: pathlib.Path, tmp_path: pathlib.Path) -> None:
    source = rowdex_grain.Source(rowdex.Dataset(unequal / "train.rdx", columns=["id", "x"]))
    again = pickle.loads(pickle.dumps(source))
    assert repr(again) == repr(source) and "fingerprint=0x" in repr(source)
    assert again[10_006]["id"] == 10_006 and len(again) == 10_007
    assert [row["id"] for row in again._getitems([7, 3, 7])] == [7, 3, 7]
    with pytest.raises(IndexError):
        again[10_007]
    rowdex.build(unequal, tmp_path / "copy.rdx")
    assert repr(rowdex_grain.Source(rowdex.Dataset(tmp_path / "copy.rdx", columns=["id", "x"]))) == repr(source)
    rowdex.build(unequal / "part-0.parquet", tmp_path / "other.rdx")
    assert repr(rowdex_grain.Source(rowdex.Dataset(tmp_path / "other.rdx", columns=["id", "x"]))) != repr(source)


def test_lists_of_other_lengths_and_unknown_columns_are_refused_with_what_to_do(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "tokens"])
    with pytest.raises(ValueError, match="no column is called 'token'; there are id, tokens"):
        rowdex_grain.Source(dataset, pad={"token": 4})
    with pytest.raises(ValueError, match="choose a greater length"):
        rowdex_grain.Source(dataset, pad={"tokens": 2})[3]
    with pytest.raises(rowdex.SchemaError, match="no lists of different lengths"):
        rowdex_grain.Source(dataset, pad={"id": 2})[3]
    with pytest.raises(TypeError, match="give a length for each column of lists"):
        rowdex_grain.Source(dataset, pad="longest")
    with pytest.raises(TypeError, match="give it a rowdex.Dataset"):
        rowdex_grain.Source(index)


@pytest.mark.parametrize("world", [1, 2])
def test_an_order_read_forward_is_that_of_the_plain_loader_in_every_epoch(rows: Any, world: int) -> None:
    order = rowdex_grain.Ordered(rows, seed=3, world_size=world, memory="64MiB")
    assert len(order) % world == 0
    for rank in range(world):
        reading = ALONE if rank == world - 1 else None
        found = [row["id"] for row in order[rank::world].repeat(2).to_iter_dataset(reading)]
        assert found == flat(plain(rows, batch_size=64, seed=3, num_replicas=world, rank=rank))
        epochs = found[: len(found) // 2], found[len(found) // 2 :]
        assert epochs[0] != epochs[1] and (world > 1 or sorted(epochs[0]) == list(range(10_007)))
    reader = order._reader.get()
    # Grain's sixteen threads read what a loader has read ahead, but for what tells the stride.
    assert reader.ahead > 50 * reader.alone


def test_reading_forward_decodes_each_row_group_about_once(rows: Any) -> None:
    order = rowdex_grain.Ordered(rows.select(["id"]), seed=5)
    before = order._dataset.counters.decodes
    assert sorted(row["id"] for row in order.to_iter_dataset(ALONE)) == list(range(10_007))
    assert order._dataset.counters.decodes - before <= 2 * rows.index.num_row_groups


@pytest.mark.parametrize("tail, lengths", [("drop", (5003, 5003)), ("uneven", (5004, 5003)), ("wrap", (5004, 5004))])
def test_slices_of_an_order_have_the_tail_that_was_asked_for(rows: Any, tail: Any, lengths: Any) -> None:
    order = rowdex_grain.Ordered(rows, seed=3, world_size=2, tail=tail)
    slices = [order[rank::2] for rank in range(2)]
    assert tuple(map(len, slices)) == lengths
    for rank, part in enumerate(slices):
        sampler = rowdex.DistributedSampler(rows, 2, rank, seed=3, tail=tail)
        assert [row["id"] for row in part.to_iter_dataset(ALONE)] == list(sampler)
    with pytest.raises(ValueError):
        rowdex_grain.Ordered(rows, world_size=2, tail="error")


def test_an_order_may_be_read_anywhere_and_in_any_way(rows: Any) -> None:
    order = rowdex_grain.Ordered(rows, seed=3, world_size=2, epochs=3)
    one = rowdex_grain.Ordered(rows, seed=3, world_size=2)
    assert len(order) == 3 * 10_008 and len(one) == 10_008
    want = [
        flat([list(sampler) for sampler in [rowdex.DistributedSampler(rows, 2, rank, seed=3)] for _ in range(3)])
        for rank in range(2)
    ]
    generator = np.random.default_rng(1)
    for position in generator.integers(0, len(order), 200).tolist():
        assert order[position]["id"] == one[position]["id"] == want[position % 2][position // 2]
    backwards = [order[position]["id"] for position in range(len(order) - 1, len(order) - 100, -1)]
    assert backwards == [want[position % 2][position // 2] for position in range(len(order) - 1, len(order) - 100, -1)]
    # Every second one of those of a rank, as worker processes read; then from elsewhere, as after set_state.
    assert [order[q]["id"] for q in range(1, 9000, 4)] == [want[1][q // 2] for q in range(1, 9000, 4)]
    assert [order[q]["id"] for q in range(100, 2000)] == [want[q % 2][q // 2] for q in range(100, 2000)]
    again = pickle.loads(pickle.dumps(order))
    assert repr(again) == repr(order) and again[12_345]["id"] == order[12_345]["id"]
    with pytest.raises(IndexError):
        order[-len(order) - 1]


def test_an_order_is_not_shuffled_again(rows: Any) -> None:
    with pytest.raises(TypeError, match=r"rowdex.grain.Ordered\(dataset, seed=7\).*rowdex.grain.Source"):
        rowdex_grain.Ordered(rows, seed=3).shuffle(seed=7)


def test_values_with_a_mask_are_batched_with_it(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "maybe"])
    for source in (rowdex_grain.Source(dataset, nulls="mask"), rowdex_grain.Ordered(dataset, nulls="mask")):
        batch = grain.MapDataset.source(source).batch(9)[0]
        ids, maybe = batch["id"]["values"], batch["maybe"]
        assert maybe["valid"].tolist() == [row % 3 > 0 for row in ids.tolist()]
        assert maybe["values"][maybe["valid"]].tolist() == [row for row in ids.tolist() if row % 3]


def test_lists_with_a_mask_are_padded_and_keep_it(tmp_path: pathlib.Path) -> None:
    lists = pa.array([[1], None, [2, 3], []], pa.list_(pa.int64()))
    pq.write_table(pa.table({"tokens": lists}), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "i.rdx")
    dataset = rowdex.Dataset(tmp_path / "i.rdx")
    given: dict[str, Any] = {"nulls": "mask", "pad": {"tokens": 2}, "fill": -1}
    of_source = grain.MapDataset.source(rowdex_grain.Source(dataset, **given)).batch(4)[0]["tokens"]
    of_batches = next(iter(rowdex_grain.IterDataset(dataset, 4, shuffle=False, **given)))["tokens"]
    for values, valid in ((of_source["values"], of_source["valid"]), (of_batches.values, of_batches.valid)):
        assert values.tolist() == [[1, -1], [-1, -1], [2, 3], [-1, -1]]
        assert valid.tolist() == [True, False, True, True]


def test_a_list_in_order_begins_elsewhere_each_epoch_where_the_sampler_says_so(rows: Any) -> None:
    order = rowdex_grain.Ordered(rows, shuffle=False, world_size=2)
    found = [row["id"] for row in order[1::2].repeat(2).to_iter_dataset(ALONE)]
    sampler = rowdex.DistributedSampler(rows, 2, 1, shuffle=False)
    assert found == [*sampler, *sampler]


def test_the_state_of_grain_goes_on_in_an_order_with_another_number_of_ranks(rows: Any) -> None:
    elastic = need("grain.experimental").ElasticIterator
    order = rowdex_grain.Ordered(rows, seed=3, world_size=4).repeat(2)[:12_000]
    sharding = [[grain.sharding.ShardOptions(rank, world) for rank in range(world)] for world in (1, 2, 4)]
    whole = ids(elastic(order, 64, sharding[0][0]).__iter__())
    two = [elastic(order, 64, shard).__iter__() for shard in sharding[1]]
    begun = [[next(rank)["id"].tolist() for rank in two] for _ in range(30)]
    states = [rank.get_state() for rank in two]
    assert states[0] == states[1]
    four = [elastic(order, 64, shard).__iter__() for shard in sharding[2]]
    for rank in four:
        rank.set_state(states[0])
    rest = list(zip(*[ids(rank) for rank in four], strict=True))
    found = [sorted(flat(list(step))) for step in [*begun, *rest]]
    assert found == [sorted(batch) for batch in whole]


def test_batches_are_those_of_the_plain_loader_and_each_rank_has_as_many(rows: Any) -> None:
    found = []
    for rank in range(2):
        sampling: dict[str, Any] = {"seed": 3, "num_replicas": 2, "rank": rank}
        batches = rowdex_grain.IterDataset(rows, 64, epochs=2, row_ids="row", pads="pad", **sampling)
        found.append(list(batches))
        assert ids(found[rank]) == plain(rows, batch_size=64, **sampling)
        assert all(batch["x"].shape == (len(batch["id"]), 3) for batch in found[rank])
        assert all((batch["row"] == batch["id"]).all() for batch in found[rank])
    assert [len(batches) for batches in found] == [158, 158]
    for epoch in range(2):
        own = [batch for rank in found for batch in rank[79 * epoch : 79 * (epoch + 1)]]
        assert sorted(row for batch in own for row in batch["id"][~batch["pad"]].tolist()) == list(range(10_007))
        assert sum(int(batch["pad"].sum()) for batch in own) == 1


@pytest.mark.parametrize("served", [0, 10, 79, 100])
def test_a_state_goes_on_exactly_and_with_another_number_of_ranks(rows: Any, served: int) -> None:
    sampling: dict[str, Any] = {"seed": 3, "epochs": 2}
    iterator = rowdex_grain.IterDataset(rows, 64, **sampling, num_replicas=2, rank=0).__iter__()
    for _ in range(served):
        next(iterator)
    state = json.loads(json.dumps(iterator.get_state()))
    rest = ids(iterator)
    assert len(rest) == 158 - served
    same = rowdex_grain.IterDataset(rows, 64, **sampling, num_replicas=2, rank=0).__iter__()
    next(same)
    same.set_state(state)
    assert same.get_state() == state
    assert ids(same) == rest
    one = rowdex_grain.IterDataset(rows, 128, **sampling, num_replicas=1, rank=0).__iter__()
    one.set_state(state)
    both = ids(one)
    assert len(both) == len(rest)
    assert all(batch[::2] == mine for batch, mine in zip(both[:-1], rest[:-1]))
    with pytest.raises(rowdex.StateError):
        rowdex_grain.IterDataset(rows, 64, seed=4).__iter__().set_state(state)


def test_grains_own_steps_come_after_the_batches_and_keep_their_state(rows: Any) -> None:
    batches = rowdex_grain.IterDataset(rows, 64, seed=3, epochs=1).map(lambda batch: batch["id"] * 2)
    iterator = batches.__iter__()
    begun = [next(iterator).tolist() for _ in range(5)]
    state = iterator.get_state()
    rest = [batch.tolist() for batch in iterator]
    assert [[row // 2 for row in batch] for batch in begun + rest] == plain(rows, 1, batch_size=64, seed=3)
    again = batches.__iter__()
    again.set_state(state)
    assert [batch.tolist() for batch in again] == rest


def test_worker_processes_share_the_batches_out_and_keep_their_order(rows: Any) -> None:
    sampling: dict[str, Any] = {"seed": 3, "num_replicas": 2, "rank": 1}
    want = plain(rows, batch_size=400, **sampling)
    # Thirteen steps an epoch: the second one begins with the other worker.
    assert len(want) == 26
    batches = rowdex_grain.IterDataset(rows, 400, epochs=2, **sampling)
    workers = batches.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    iterator = workers.__iter__()
    begun = [next(iterator)["id"].tolist() for _ in range(9)]
    state = iterator.get_state()
    iterator.close()
    again = workers.__iter__()
    again.set_state(state)
    assert begun + ids(again) == want
    again.close()
    with pytest.raises(ValueError, match="leave out one of them"):
        rowdex_grain.IterDataset(rows, 400, pads="pad").set_slice(slice(0, None, 2))


def test_the_program_of_the_page_runs(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(script("Grain"), names)
    assert (names["rest"], names["steps"]) == (69, 79)


def test_a_batch_that_cannot_be_padded_is_not_over(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["id", "tokens"])
    batches = iter(rowdex_grain.IterDataset(dataset, 3, shuffle=False, pad={"tokens": 2}))
    assert next(batches)["id"].tolist() == [0, 1, 2]
    state = batches.get_state()
    for _ in range(2):
        # It has the first list of three tokens.
        with pytest.raises(ValueError, match="tokens|2"):
            next(batches)
        assert batches.get_state() == state
