"""Orders that are more than a name, and sets of rows."""

from __future__ import annotations

import collections
import gc
import glob
import os
import pathlib
import pickle
import tempfile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.order import (
    Balanced, Contiguous, Explicit, IdSet, Mixed, Paired, Resized, Rotated, Scored, Subset, Weighted,
)  # fmt: skip

from .conftest import ROWS, run_python


def served(dataset: Any, order: Any, epoch: int = 0, **options: Any) -> list[int]:
    sampler = rowdex.DistributedSampler(dataset, **{"num_replicas": 1, "rank": 0, "seed": 5, "order": order, **options})
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("kind", ["list", "numpy", "file"])
def test_a_list_of_rows_is_an_order(dataset: Any, tmp_path: pathlib.Path, kind: str) -> None:
    rows = [5, 1000, 5, 3]
    np.array(rows, "<u8").tofile(tmp_path / "order")
    order = (
        Explicit(file=tmp_path / "order") if kind == "file" else Explicit(np.array(rows) if kind == "numpy" else rows)
    )
    assert served(dataset, order) == rows
    found = [
        batch["id"].tolist()
        for batch in rowdex.Loader(dataset.select(["id"]), batch_size=3, order=order, output="numpy")
    ]
    assert found == [[5, 1000, 5], [3]]
    # Two ranks take turns in it.
    assert served(dataset, order, num_replicas=2, rank=1) == [1000, 3]


def test_a_list_that_cannot_be_right_is_refused(dataset: Any, tmp_path: pathlib.Path) -> None:
    with pytest.raises(rowdex.errors.OutOfRangeError, match="1003"):
        served(dataset, Explicit([0, ROWS]))
    with pytest.raises(ValueError, match="negative"):
        Explicit([-1])
    with pytest.raises(TypeError):
        Explicit(np.array([0.5]))
    with pytest.raises(ValueError, match="either"):
        Explicit()
    with pytest.raises(rowdex.errors.ArgumentError, match="1"):
        served(dataset, Explicit([*range(1, ROWS), 1], permutation=True))
    assert served(dataset, Explicit(range(ROWS), permutation=True)) == list(range(ROWS))
    (tmp_path / "order").write_bytes(b"123")
    with pytest.raises(rowdex.errors.ArgumentError, match="3 bytes"):
        served(dataset, Explicit(file=tmp_path / "order"))
    with pytest.raises(TypeError, match="rowdex.order"):
        served(dataset, 7)


def test_rows_are_drawn_by_weight(dataset: Any) -> None:
    weights = dataset.weights("label")
    assert weights.tolist() == [i % 5 for i in range(ROWS)]
    counts = collections.Counter(row % 5 for row in served(dataset, Weighted(weights, size=10_000)))
    assert 0 not in counts and 3500 < counts[4] < 4500 and 500 < counts[1] < 1500
    rows = served(dataset, Weighted(np.array(weights), replacement=False))
    assert sorted(rows) == [row for row in range(ROWS) if row % 5]
    assert served(dataset, Weighted(weights), epoch=1) != served(dataset, Weighted(weights))
    with pytest.raises(ValueError, match="3 weights for 1003 rows"):
        served(dataset, Weighted([1, 2, 3]))
    with pytest.raises(rowdex.errors.ArgumentError):
        dataset.weights("maybe")


def test_classes_come_as_often_as_they_should(dataset: Any) -> None:
    labels = dataset.labels("label")
    assert labels.classes == ["0", "1", "2", "3", "4"] and labels.codes.tolist() == [i % 5 for i in range(ROWS)]
    assert dataset.labels("name").codes.itemsize == 4
    assert collections.Counter(row % 5 for row in served(dataset, Balanced(labels, size=500))) == dict.fromkeys(
        range(5), 100
    )
    found = collections.Counter(row % 5 for row in served(dataset, Balanced(labels, 400, proportions={"1": 3, "4": 1})))
    assert found == {1: 300, 4: 100}
    assert served(dataset, Balanced(labels, 400, proportions=[0, 3, 0, 0, 1])) == served(
        dataset, Balanced(np.array(labels.codes), 400, proportions=[0, 3, 0, 0, 1])
    )
    with pytest.raises(ValueError, match="'7'.*0, 1"):
        Balanced(labels, proportions={"7": 1})
    with pytest.raises(rowdex.errors.SchemaError, match="x"):
        dataset.labels("x")


def test_sets_are_sets(dataset: Any, tmp_path: pathlib.Path) -> None:
    some = IdSet(10, [7, 3, 7])
    assert list(some) == [3, 7] and len(some) == 2 and some.rows == 10
    assert 3 in some and np.int64(7) in some and 4 not in some and -1 not in some
    assert list(~some) == [0, 1, 2, 4, 5, 6, 8, 9]
    assert list(~some & IdSet.ranges(10, [(5, 9), (0, 2)])) == [0, 1, 5, 6, 8]
    with pytest.raises(rowdex.errors.OutOfRangeError):
        IdSet(7, [7])
    with pytest.raises(rowdex.errors.ArgumentError, match="out of 10"):
        some & IdSet(11, [])
    (tmp_path / "skip.txt").write_text("17\n20\n21\n")
    skipped = IdSet.listed(dataset, tmp_path / "skip.txt")
    assert list(skipped) == [17, 20, 21]
    assert list(IdSet.listed(dataset.index, tmp_path / "skip.txt")) == list(skipped)
    sides = ("train", "validation")
    train, validation = (IdSet.split(dataset, side, validation_fraction=0.3, seed=1) for side in sides)
    assert sorted([*train, *validation]) == list(range(ROWS)) and 200 < len(validation) < 400
    by_label = IdSet.split(dataset, "train", validation_fraction=0.5, by="label", seed=3)
    assert len({row % 5 for row in by_label} & {row % 5 for row in ~by_label}) == 0
    assert list(IdSet.split(dataset, "train", validation_fraction=0.5, by="label", seed=3, of=validation)) == list(
        by_label & validation
    )
    assert list(IdSet.split(ROWS, "train", validation_fraction=0.3, seed=1, of=skipped)) == list(train & skipped)
    with pytest.raises(TypeError, match="column"):
        IdSet.split(ROWS, "train", by="label")


@pytest.mark.parametrize("order", ["global", "blocks(2)", "sequential"])
def test_a_subset_serves_the_rows_of_a_set(dataset: Any, order: str) -> None:
    train = IdSet.split(dataset, "train", validation_fraction=0.3, seed=1)
    rows = served(dataset, Subset(order, train))
    assert sorted(rows) == list(train) and (rows == list(train)) == (order == "sequential")
    # Over a length alone there are no row groups.
    if order != "blocks(2)":
        assert served(range(ROWS), Subset(order, train)) == rows


def test_orders_are_made_of_orders(dataset: Any) -> None:
    train = IdSet.split(dataset, "train", validation_fraction=0.3, seed=1)
    order = Resized(Subset("global", train), 100)
    passes = served(dataset, Subset("global", train)) + served(dataset, Subset("global", train), epoch=1)
    assert [row for epoch in range(8) for row in served(dataset, order, epoch)] == passes[:800]
    weights = dataset.weights("label", of=train)
    assert len(weights) == len(train)
    drawn = served(dataset, Subset(Weighted(weights), train))
    assert set(drawn) <= set(train) and all(row % 5 for row in drawn)
    with pytest.raises(ValueError, match="weights for 1003 rows"):
        served(dataset, Weighted(weights))
    scores = -np.asarray(dataset.weights("label"))
    swept = [row for fold in range(3) for row in np.argsort(scores, kind="stable")[fold::3]]
    assert served(dataset, Scored(scores, 3, block=1)) == swept
    paired = [served(dataset, Paired(order), epoch) for epoch in range(4)]
    assert paired == [served(dataset, order, epoch // 2)[:: 1 - epoch % 2 * 2] for epoch in range(4)]
    assert served(dataset, Rotated("sequential"), epoch=1)[0] != 0
    assert served(range(10), Contiguous("sequential", 2)) == [0, 5, 1, 6, 2, 7, 3, 8, 4, 9]
    with pytest.raises(ValueError, match="a set out of 10 rows"):
        served(dataset, Subset("global", IdSet(10, [3])))


def test_a_contiguous_partition_deals_pieces(dataset: Any) -> None:
    pieces = [
        served(range(10), "sequential,contiguous", num_replicas=3, rank=rank, tail="uneven")
        for rank in range(3)
    ]
    assert pieces == [[0, 1, 2, 3], [4, 5, 6], [7, 8, 9]]
    options: dict[str, Any] = {"batch_size": 40, "seed": 5, "order": "blocks(2),contiguous"}
    for rank in range(2):
        loader = rowdex.Loader(dataset.select(["id"]), output="numpy", num_replicas=2, rank=rank, **options)
        rows = [row for batch in loader for row in batch["id"].tolist()]
        assert rows == served(
            dataset, num_replicas=2, rank=rank, **{key: value for key, value in options.items() if key != "batch_size"}
        )


@pytest.mark.parametrize(
    ("order", "shuffle", "ranks", "rotates"),
    [("sequential", True, 3, True), ("sequential", True, 2, False), ("sequential", False, 3, True),
     ("torch", False, 3, False), (Explicit(range(10)), True, 3, True), (Explicit(range(10)), False, 3, False)],
)  # fmt: skip
def test_what_never_changes_begins_elsewhere_as_told(order: Any, shuffle: bool, ranks: int, rotates: bool) -> None:
    rows = served(range(10), order, epoch=1, num_replicas=ranks, drop_last=True, shuffle=shuffle)
    assert (rows[0] != 0) == rotates


def test_a_mixed_dataset_is_several(index: str) -> None:
    one, other = rowdex.Dataset(index, ["id", "name"]), rowdex.Dataset(index, ["id", "name"])
    mixed = rowdex.MixedDataset([one, other])
    assert (
        len(mixed) == 2 * ROWS
        and mixed[ROWS + 7] == {"id": 7, "name": "row 7"}
        and mixed[[3, ROWS]]["id"].tolist() == [3, 0]
    )
    assert mixed.locate(ROWS + 7) == (1, 7) and mixed.locate(-1) == (1, ROWS - 1)
    assert mixed.column_names == ["id", "name"]
    assert mixed.counters.decodes >= 2 and mixed.select(["id"]).column_names == ["id"]
    assert pickle.loads(pickle.dumps(mixed))[ROWS + 1]["id"] == 1
    order = Mixed([3, 1], 800, orders=["global", "sequential"])
    loader = rowdex.Loader(mixed, batch_size=100, order=order, output="numpy", row_ids="row", seed=1)
    rows = [row for batch in loader for row in batch["row"].tolist()]
    assert sum(row >= ROWS for row in rows) == 200 and len(rows) == 800
    # The first ones of that dataset, each once.
    assert sorted(row for row in rows if row >= ROWS) == list(range(ROWS, ROWS + 200))
    # All rows in blocks of their own row groups, of both.
    assert sorted(served(mixed, "blocks(3)")) == list(range(2 * ROWS))
    for wrong in (lambda: mixed.index, lambda: mixed.prefetch([1]), lambda: rowdex.MixedDataset([mixed])):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(rowdex.errors.SchemaError, match="columns"):
        rowdex.MixedDataset([one, one.select(["id"])])
    with pytest.raises(ValueError, match="2 datasets"):
        served(mixed, Mixed([1, 2, 3]))
    with pytest.raises(IndexError):
        mixed.locate(2 * ROWS)
    with pytest.raises(TypeError):
        mixed.locate(1.5)  # type: ignore[arg-type]


def test_stages_change_weights_and_other_ranks_resume_into_others(dataset: Any) -> None:
    mixed, names = rowdex.MixedDataset([dataset.select(["id", "name"])] * 2), ["web", "code"]
    stages: Any = [(0, {"web": 3, "code": 1}), (400, {"code": 1.0}), (600, {"web": 1.0, "code": 1.0})]
    order = Mixed(names, 400, stages=stages, on_exhausted="renormalise")
    assert order == pickle.loads(pickle.dumps(order)) != Mixed(names, 400, stages=stages[:2]) and hash(order)
    rows = np.array(served(mixed, order) + served(mixed, order, 1))
    for position in range(1, 800):
        due = np.interp(position, [0, 400, 600, 800], [0, 300, 300, 400])
        assert abs((rows[:position] < ROWS).sum() - due) <= 1, position
    options: Any = {"order": order, "output": "numpy", "row_ids": "row", "seed": 5}
    loader = rowdex.Loader(mixed, batch_size=50, **options)
    assert loader.estimate().ends == {"web": 2005, "code": 2006}
    batches = zip(range(10), (batch for _ in range(2) for batch in loader))
    before, state = [batch["row"] for _, batch in batches], loader.state_dict()
    after = []
    for rank in range(3):
        other = rowdex.Loader(mixed, batch_size=20, num_replicas=3, rank=rank, tail="uneven", **options)
        with pytest.raises(rowdex.errors.StateError, match="stages those that begin before it"):
            other.load_state_dict(state, stages=[(0, {"web": 1, "code": 1})])
        other.load_state_dict(state, stages=[*order.stages[:2], (550, {"web": 1, "code": 3})])
        after += [batch["row"] for _ in range(2) for batch in other]
    # What was served stays, and nothing comes again.
    assert np.concatenate(before).tolist() == rows[:500].tolist()
    found = np.concatenate(before + after)
    assert len(found) == len(set(found.tolist())) == 1200 and abs((found < ROWS).sum() - 300 - 650 / 4) <= 1


def test_stages_by_tokens_have_their_shares_of_tokens(tmp_path: pathlib.Path) -> None:
    datasets, names = [], ["web", "code"]
    for number, name in enumerate(names):
        lists = [[number] * (1 + row * 7 % (20 * (number + 1))) for row in range(3000)]
        pq.write_table(pa.table({"tokens": lists}), tmp_path / f"{name}.parquet")
        rowdex.build(tmp_path / f"{name}.parquet", tmp_path / f"{name}.rdx", lengths=["tokens"])
        datasets.append(rowdex.Dataset(tmp_path / f"{name}.rdx"))
    stages: Any = [(0, {"web": 0.25, "code": 0.75}), ("20k tokens", {"web": 1, "code": 1})]
    order = Mixed(names, 4000, stages=stages, unit="tokens")
    rows = rowdex.MixedDataset(datasets)[served(rowdex.MixedDataset(datasets), order)]["tokens"]
    for part, share in ((rows[:1000], 0.25), (rows[1500:], 0.5)):
        tokens = np.concatenate([part[row] for row in range(len(part))])
        assert abs((tokens == 0).mean() - share) < 0.02
    with pytest.raises(ValueError, match="index of 'web' has no lengths by this name"):
        served(rowdex.MixedDataset(datasets), Mixed(names, stages=stages, unit="words"))


def test_stages_that_cannot_be_are_refused_by_name(dataset: Any) -> None:
    mixed, names = rowdex.MixedDataset([dataset, dataset]), ["web", "code"]
    stages: Any = [(0, {"web": 3, "code": 1}), (400, {"code": 1.0})]
    for wrong, words in [
        ({"stages": stages[::-1]}, "stage 0 begins at position 400"),
        ({"stages": [(0, {"cod": 1})]}, "the sources are web, code"),
        ({"stages": [(0, {"web": np.nan})]}, "stage 0 gives 'web' the number nan"),
        ({"stages": stages, "on_exhausted": "stop"}, "beyond position 1"),
        ({"stages": stages, "ramp": "cubic"}, "cubic"),
        ({"stages": [(0, {"web": 1}), ("2B", {"code": 1})], "unit": "id"}, "no lengths"),
        ({"stages": [(0, {"web": 1}), ("2B tokens", {"code": 1})]}, "give unit='tokens'"),
        ({"ramp": "linear"}, "with stages"),
    ]:
        with pytest.raises(ValueError, match=words):
            served(mixed, Mixed(names, 8000, **wrong))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="stages= for a loader without"):
        loader = rowdex.Loader(mixed, batch_size=5, order=Mixed([1, 2]), output="numpy")
        loader.load_state_dict(loader.state_dict(), stages=stages)


def orders_of(dataset: Any, folder: pathlib.Path) -> list[Any]:
    (folder / "skip.txt").write_text("17\n")
    np.arange(0, ROWS, 2, dtype="<u8").tofile(folder / "order")
    train = IdSet.split(dataset, "train", validation_fraction=0.3, seed=1)
    return [
        Explicit(range(0, ROWS, 3)),
        Explicit([4, 5]),
        Explicit(file=folder / "order"),
        Weighted(dataset.weights("label"), 300),
        Scored(dataset.weights("label"), 3, block=8),
        Balanced(dataset.labels("label"), 300, proportions={"2": 1, "3": 2}),
        Paired(Explicit([4, 5])),
        Resized(Subset("blocks(2)", ~IdSet.listed(dataset, folder / "skip.txt")), 250),
        Subset(
            Weighted(dataset.weights("label", of=train)),
            train & IdSet.split(dataset, "train", by="label", seed=9, validation_fraction=0),
        ),
    ]


def test_orders_are_equal_by_what_they_serve_and_travel_in_small_pickles(dataset: Any, tmp_path: pathlib.Path) -> None:
    for order, again in zip(orders_of(dataset, tmp_path), orders_of(dataset, tmp_path)):
        assert order == again and hash(order) == hash(again) and order != "global"
        pickled = pickle.dumps(order)
        assert len(pickled) < 1000
        assert pickle.loads(pickled) == order and served(dataset, pickle.loads(pickled)) == served(dataset, order)
    assert Explicit([4, 5]) != Explicit([5, 4]) and Weighted([1.0, 2.0]) != Explicit([1, 2])


def test_long_lists_travel_in_a_file_that_goes_with_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder that no other test has.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pattern = str(tmp_path / "rowdex-*.numbers")
    gc.collect()
    before = set(glob.glob(pattern))
    order = Explicit(range(1000))
    first, second = pickle.dumps(order), pickle.dumps(order)
    assert first == second
    (path,) = set(glob.glob(pattern)) - before
    other = pickle.loads(first)
    assert served(range(1000), other) == list(range(1000))
    del order
    gc.collect()
    assert not os.path.exists(path)
    with pytest.raises(rowdex.errors.NotFoundError):
        served(range(1000), pickle.loads(second))
    # What another process made is gone with that process.
    done = run_python("import rowdex, pickle; print(pickle.dumps(rowdex.order.Weighted([1.0] * 999)).hex())")
    assert done.returncode == 0, done.stderr
    with pytest.raises(rowdex.errors.NotFoundError):
        served(range(999), pickle.loads(bytes.fromhex(done.stdout)))
    assert set(glob.glob(pattern)) <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_files_of_long_lists_go_with_processes_that_multiprocessing_started(tmp_path: pathlib.Path) -> None:
    program = """
import glob, multiprocessing, os, pickle, rowdex, sys
kept = []
def work(pipe):
    # As a global of the process is kept to its end.
    kept.append(rowdex.order.Explicit(range(1000)))
    pickle.dumps(kept[0])
    pipe.send(len(glob.glob(os.path.join(os.environ["TMPDIR"], "rowdex-*.numbers"))))
context = multiprocessing.get_context("fork")
ours, theirs = context.Pipe()
process = context.Process(target=work, args=(theirs,))
process.start()
assert ours.poll(30) and ours.recv() == 1
process.join(30)
assert process.exitcode == 0
"""
    done = run_python(program, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == []


def test_the_launcher_says_which_rank_this_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
    ]:  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="no launcher has set a rank"):
        rowdex.Launch.from_env()
    monkeypatch.setenv("SLURM_PROCID", "2")
    monkeypatch.setenv("SLURM_NTASKS", "4")
    monkeypatch.setenv("SLURM_LOCALID", "0")
    assert rowdex.Launch.from_env() == (2, 4, 0, None, "Slurm")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(rowdex.errors.ArgumentError, match="RANK.*SLURM_PROCID"):
        rowdex.Launch.from_env()


def test_proportions_of_no_class_are_refused() -> None:
    with pytest.raises(ValueError, match="proportions"):
        Balanced([0, 1, 1], proportions=[])


def test_a_set_by_a_condition_is_the_same_however_often_it_is_sent(dataset: Any) -> None:
    # Workers look up what they have opened by the order that each step has.
    made = Subset("global", IdSet.where(dataset, "label = 3"))
    sent = [pickle.loads(pickle.dumps(made)) for _ in range(2)]
    assert sent[0] == sent[1] == made and len({made, *sent}) == 1
    assert served(dataset, sent[0]) == served(dataset, made)
    assert sorted(served(dataset, sent[0])) == list(range(3, ROWS, 5))
