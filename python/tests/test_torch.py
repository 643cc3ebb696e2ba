"""PyTorch's DataLoader, with workers of every kind."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import os
import pathlib
import pickle
import re
import socket
import subprocess
import sys
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .conftest import REPOSITORY, ROWS, ready_to_fork, run_python
from .frameworks.page import programs_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rowdex.torch  # noqa: E402
from torch.utils.data import DataLoader, DistributedSampler  # noqa: E402

ready_to_fork(torch)
# So that workers of the forkserver import PyTorch once, not each.
multiprocessing.set_forkserver_preload(["rowdex.torch"])

# Workers that hang fail the test. How long each case took is shown by pytest --durations=0.
WATCHDOG = 120
COLUMNS = ["id", "x", "vector", "tokens", "name"]


@pytest.fixture()
def torch_dataset(index: str) -> Any:
    return rowdex.torch.Dataset(index, COLUMNS)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def expected(dataset: Any, **sampling: Any) -> list[list[int]]:
    return [batch.row_ids for batch in rowdex.DistributedSampler(dataset, **sampling).batches()]


@pytest.mark.parametrize("workers", [0, 1, 4])
@pytest.mark.parametrize("before", ["opened", "read"])
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_workers_of_every_kind_serve_the_right_rows(index: str, method: str, before: str, workers: int) -> None:
    start = time.perf_counter()
    dataset = rowdex.torch.Dataset(index, COLUMNS)
    if before == "read":
        # Several row groups, so that its threads run.
        assert len(dataset.take(range(0, ROWS, 50))) == 21
    sampling = {"batch_size": 64, "seed": 5, "num_replicas": 2, "rank": 1}
    options: dict[str, Any] = {"num_workers": workers, "timeout": WATCHDOG if workers else 0}
    if workers:
        options |= {"multiprocessing_context": method, "persistent_workers": True}
    batches = rowdex.torch.BatchSampler(dataset, **sampling)
    loader = DataLoader(dataset, batch_sampler=batches, **options)
    sampler = rowdex.DistributedSampler(dataset, **sampling)
    for _ in range(2):
        assert ids(loader) == [batch.row_ids for batch in sampler.batches()]
    # And the rows are whole.
    for batch in loader:
        assert (batch["x"] * 2 == batch["id"]).all() and (batch["vector"][:, 1] == batch["id"] + 1).all()
        assert batch["name"] == [f"row {row}" for row in batch["id"].tolist()]
    print(f"{method}, {before} before, {workers} workers: {time.perf_counter() - start:.1f} s")


def test_workers_plan_ahead_and_decode_seldom(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, ["id"], cache=1)
    ids(DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, 16, seed=1)))
    planned = dataset.counters.decodes
    other = rowdex.torch.Dataset(index, ["id"], cache=1)
    ids(DataLoader(other, batch_size=16, shuffle=True))
    # It may have begun with the next epoch.
    assert planned <= 2 * 12 and other.counters.decodes > 10 * planned


@pytest.mark.parametrize("workers", [0, 2])
def test_the_stock_sampler_works_as_it_is(torch_dataset: Any, workers: int) -> None:
    sampler = DistributedSampler(torch_dataset, num_replicas=3, rank=1, seed=3)
    loader = DataLoader(torch_dataset, batch_size=50, sampler=sampler, num_workers=workers)
    for epoch in (0, 4):
        sampler.set_epoch(epoch)
        assert [row for batch in ids(loader) for row in batch] == list(sampler)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("world", [1, 3, 8])
def test_order_torch_is_the_stock_sampler_number_for_number(
    dataset: Any, shuffle: bool, drop_last: bool, world: int
) -> None:
    for rank in range(world):
        stock: Any = DistributedSampler(
            dataset, num_replicas=world, rank=rank, seed=9, shuffle=shuffle, drop_last=drop_last
        )
        order = "torch" if shuffle else None
        ours = rowdex.DistributedSampler(dataset, world, rank, shuffle, 9, drop_last, order=order)
        assert len(stock) == len(ours)
        for epoch in (0, 3) if shuffle else (0,):
            stock.set_epoch(epoch)
            ours.set_epoch(epoch)
            assert list(stock) == list(ours)


def test_a_collate_function_of_ones_own_gets_samples(torch_dataset: Any) -> None:
    def collate(samples: Any) -> Any:
        assert len(samples) == 10 and all(isinstance(sample, dict) for sample in samples)
        return torch.stack([sample["vector"] for sample in samples]), [len(sample["tokens"]) for sample in samples]

    batches = rowdex.torch.BatchSampler(torch_dataset, 10, shuffle=False)
    vectors, lengths = next(iter(DataLoader(torch_dataset, batch_sampler=batches, collate_fn=collate)))
    assert vectors[:, 0].tolist() == list(range(10)) and lengths == [row % 4 for row in range(10)]


@pytest.mark.parametrize("within", [False, True])
def test_samples_that_a_collate_function_returns_come_from_workers(torch_dataset: Any, within: bool) -> None:
    def collate(samples: Any) -> Any:
        return {"samples": samples} if within else samples

    batches = rowdex.torch.BatchSampler(torch_dataset, 10, shuffle=False)
    loader = DataLoader(
        torch_dataset, batch_sampler=batches, collate_fn=collate, num_workers=1, timeout=WATCHDOG,
        multiprocessing_context="fork",
    )  # fmt: skip
    for step, batch in zip(range(2), loader):
        samples = batch["samples"] if within else batch
        assert [int(sample["id"]) for sample in samples] == list(range(10 * step, 10 * step + 10))


@pytest.mark.parametrize("of", [rowdex.Dataset, rowdex.torch.Dataset])
def test_a_dataset_of_ones_own_that_a_data_loader_would_pass_by_is_refused(index: str, of: Any) -> None:
    def one(self: Any, row: Any) -> Any:
        return {"row": row}

    with pytest.raises(TypeError, match="Mine overrides __getitem__ alone: .* by __getitems__"):
        type("Mine", (of,), {"__getitem__": one})
    both = type("Mine", (of,), {"__getitem__": one, "__getitems__": lambda self, rows: [self[row] for row in rows]})
    loader = DataLoader(both(index), batch_size=2, collate_fn=list)
    assert next(iter(loader)) == [{"row": 0}, {"row": 1}]


def test_samples_and_batches_have_tensors(torch_dataset: Any) -> None:
    sample = torch_dataset[6]
    assert sample["vector"].tolist() == [6, 7, 8] and sample["tokens"].tolist() == [0, 1] and sample["name"] == "row 6"
    assert sample["id"] == 6 and sample["x"] == 3.0
    batch = next(iter(DataLoader(torch_dataset, batch_size=4)))
    assert batch["id"].dtype == torch.int64 and batch["x"].dtype == torch.float32 and batch["vector"].shape == (4, 3)
    assert batch["tokens"].values.tolist() == [0, 0, 1, 0, 1, 2] and batch["tokens"].offsets.tolist() == [0, 0, 1, 3, 6]


def test_a_run_goes_on_from_a_state_with_other_workers_and_another_world(torch_dataset: Any) -> None:
    served: list[int] = []
    for rank in range(2):
        batches = rowdex.torch.BatchSampler(torch_dataset, 16, seed=2, num_replicas=2, rank=rank)
        loader = DataLoader(torch_dataset, batch_sampler=batches, num_workers=2)
        for step, batch in zip(range(9), loader):
            served += batch["id"].tolist()
        state = batches.state_after(0, 8)
    for rank, workers in enumerate([0, 1, 2]):
        batches = rowdex.torch.BatchSampler(torch_dataset, 10, seed=2, num_replicas=3, rank=rank, tail="uneven")
        batches.load_state_dict(state)
        loader = DataLoader(torch_dataset, batch_sampler=batches, num_workers=workers)
        assert len(loader) == len(batches)
        served += [row for batch in ids(loader) for row in batch]
        # The next epoch is whole again.
        assert sum(map(len, ids(loader))) in (ROWS // 3, ROWS // 3 + 1)
    assert sorted(served) == list(range(ROWS))


def test_ranks_without_rows_in_the_last_step_take_part_in_it(torch_dataset: Any) -> None:
    for rank in range(3):
        # Of 1003 rows, ranks 0, 1 and 2 have 335, 334 and 334.
        batches = rowdex.torch.BatchSampler(torch_dataset, 334, num_replicas=3, rank=rank, tail="uneven")
        found = ids(DataLoader(torch_dataset, batch_sampler=batches))
        assert [len(rows) for rows in found] == [334, 1 if rank == 0 else 0]


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_orders_of_lists_sets_and_files_reach_the_workers(torch_dataset: Any, method: str) -> None:
    kept = ~rowdex.order.IdSet.split(torch_dataset, "train", by="label", validation_fraction=0.5, seed=3)
    orders = [
        rowdex.order.Explicit(range(0, ROWS, 2)),
        rowdex.order.Resized(rowdex.order.Subset("blocks(2)", kept), 150),
        rowdex.order.Weighted(torch_dataset.weights("label"), 300),
    ]
    for order in orders:
        sampling: dict[str, Any] = {"seed": 5, "order": order, "num_replicas": 2, "rank": 1}
        batches = rowdex.torch.BatchSampler(torch_dataset, 40, **sampling)
        assert len(pickle.dumps(next(iter(batches)))) < 1000
        batches.set_epoch(0)
        loader = DataLoader(
            torch_dataset, batch_sampler=batches, num_workers=2, multiprocessing_context=method, timeout=WATCHDOG
        )
        assert ids(loader) == expected(torch_dataset, batch_size=40, **sampling)


class Doubled(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """A loader in a dataset of somebody's own; ``make`` makes it in the worker."""

    def __init__(self, loader: Any = None, make: Any = None) -> None:
        self.loader, self.make = loader, make

    def __iter__(self) -> Any:
        for batch in self.loader if self.make is None else self.make():
            yield batch["id"] * 2


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_loader_that_each_of_several_workers_would_serve_whole_is_refused(index: str, method: str) -> None:
    def batches(dataset: Any, workers: int, **options: Any) -> Any:
        return DataLoader(
            dataset, batch_size=None, num_workers=workers, timeout=WATCHDOG, multiprocessing_context=method, **options
        )

    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=64, seed=1)
    with pytest.raises(RuntimeError, match="one of the 2 workers.*rowdex.torch.IterableDataset"):
        next(iter(batches(Doubled(loader), 2)))
    # One worker serves them all, and goes on with the next epoch if it persists.
    persists = batches(Doubled(loader), 1, persistent_workers=True)
    assert [[(ids // 2).tolist() for ids in persists] for _ in range(2)] == [ids(loader) for _ in range(2)]


def test_loaders_that_workers_make_for_shards_of_their_own_serve_every_row_once(index: str) -> None:
    def make(**sharding: int) -> Any:
        return rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=64, tail="uneven", **sharding)

    def shard() -> Any:
        worker = torch.utils.data.get_worker_info()
        return make(num_replicas=worker.num_workers, rank=worker.id)

    options: dict[str, Any] = {"batch_size": None, "num_workers": 2, "timeout": WATCHDOG}
    served = DataLoader(Doubled(make=shard), multiprocessing_context="fork", **options)
    assert sorted(row for rows in served for row in rows.tolist()) == list(range(0, 2 * ROWS, 2))
    with pytest.raises(RuntimeError, match="one of the 2 workers"):
        next(iter(DataLoader(Doubled(make=make), multiprocessing_context="fork", **options)))


def test_a_loader_in_a_worker_that_begins_every_epoch_anew_says_so(index: str) -> None:
    program = """
import sys, rowdex, torch
from torch.utils.data import DataLoader, IterableDataset
class Own(IterableDataset):
    def __init__(self, loader):
        self.loader = loader
    def __iter__(self):
        return iter(self.loader)
loader = rowdex.Loader(rowdex.Dataset(sys.argv[1], ["id"]), batch_size=500, seed=1)
if sys.argv[2] == "told":
    loader.set_epoch(1)
for batch in DataLoader(Own(loader), batch_size=None, num_workers=1, multiprocessing_context="fork", timeout=60):
    pass
"""
    assert "persistent_workers=True" in run_python(program, index, "not told", timeout=WATCHDOG).stderr
    told = run_python(program, index, "told", timeout=WATCHDOG)
    assert told.returncode == 0 and "persistent_workers=True" not in told.stderr


def test_threads_that_iterate_over_one_dataset_at_once_get_their_own_batches(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, ["id"])

    def epoch(number: int) -> list[list[int]]:
        sampler = rowdex.torch.BatchSampler(dataset, 9, seed=1)
        sampler.set_epoch(number)
        return ids(DataLoader(dataset, batch_sampler=sampler))

    alone = [epoch(number) for number in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with concurrent.futures.ThreadPoolExecutor(2) as threads:
            for _ in range(3):
                assert list(threads.map(epoch, range(2), timeout=WATCHDOG)) == alone
    finally:
        sys.setswitchinterval(interval)


def test_errors_of_workers_are_of_their_own_kind(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, ["maybe"])
    loader = DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, 10), num_workers=1)
    with pytest.raises(rowdex.errors.SchemaError, match="nulls='mask'"):
        next(iter(loader))
    filled = rowdex.torch.Dataset(index, ["maybe"], nulls="mask")
    batch = next(iter(DataLoader(filled, batch_size=4)))["maybe"]
    assert batch.valid.tolist() == [False, True, True, False] and batch.values.tolist() == [0, 1, 2, 0]


def test_a_pickled_dataset_and_a_step_are_small(torch_dataset: Any) -> None:
    assert len(pickle.dumps(torch_dataset)) < 1000
    step = next(iter(rowdex.torch.BatchSampler(torch_dataset, 4096)))
    assert len(pickle.dumps(step)) < 500


def test_the_training_loops_of_the_manual_run_as_they_are_written(as_a_newcomer: pathlib.Path) -> None:
    programs = programs_of("python.md")
    assert programs
    environment = {
        **os.environ,
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "GLOO_SOCKET_IFNAME": "lo",
    }
    for program in programs:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = str(free.getsockname()[1])
        command = [sys.executable, "-c", program]
        done = subprocess.run(
            command,
            cwd=as_a_newcomer,
            capture_output=True,
            text=True,
            timeout=WATCHDOG,
            env={**environment, "MASTER_PORT": port},
        )
        assert done.returncode == 0, f"{program}\n{done.stderr}"


def test_three_ranks_validate_every_row_once_as_the_manual_shows(as_a_newcomer: pathlib.Path) -> None:
    text = (REPOSITORY / "docs/python.md").read_text().partition("## Validation")[2]
    program = re.search(r"```python\n(.*?)```", text, re.S)
    assert program is not None
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "MASTER_ADDR": "localhost", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    # Batches of which the last is short.
    command = [sys.executable, "-c", program[1].replace("256", "64")]
    ranks = [
        subprocess.Popen(
            command, cwd=as_a_newcomer, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**environment, "WORLD_SIZE": "3", "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(3)
    ]  # fmt: skip
    try:
        outputs = [rank.communicate(timeout=WATCHDOG) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for output, errors in outputs:
        assert output.split() == [str(ROWS)] * 3, errors


def test_a_loaders_tensors_are_its_arrays(dataset: Any) -> None:
    options: dict[str, Any] = {"batch_size": 30, "seed": 2, "nulls": "mask", "strings": "offsets"}
    outputs: list[Any] = ["torch", "numpy"]
    loaders = [rowdex.Loader(dataset, output=output, **options) for output in outputs]
    for tensors, arrays in zip(*loaders, strict=True):
        assert (tensors["vector"].values.numpy() == arrays["vector"].values).all()
        for column in ("tokens", "name"):
            ours, theirs = tensors[column].values, arrays[column].values
            assert ours.offsets.dtype == torch.from_numpy(theirs.offsets).dtype
            assert ours.values.tolist() == theirs.values.tolist() and ours.offsets.tolist() == theirs.offsets.tolist()


def test_samplers_and_datasets_say_which_rows_they_serve(index: str) -> None:
    dataset = rowdex.torch.Dataset(index)
    for made in (
        rowdex.torch.BatchSampler(dataset, 64, seed=7),
        rowdex.torch.GlobalBatchSampler(dataset, 64, seed=7),
        rowdex.torch.IterableDataset(dataset, 64, seed=7),
        rowdex.Loader(dataset, batch_size=64, seed=7).batch_sampler,
    ):
        shown = repr(made)
        assert shown.startswith(f"{type(made).__name__}(") and "seed=7" in shown and "batch_size=64" in shown


def test_steps_are_not_for_a_dataset_without_tensors(index: str) -> None:
    dataset = rowdex.Dataset(index)
    batches = rowdex.torch.BatchSampler(dataset, 10)
    with pytest.raises(TypeError, match="give the DataLoader a rowdex.torch.Dataset"):
        next(iter(DataLoader(dataset, batch_sampler=batches)))  # type: ignore[arg-type]


def test_a_loader_is_no_dataset_of_a_data_loader(torch_dataset: Any) -> None:
    loader: Any = rowdex.Loader(torch_dataset, batch_size=8)
    with pytest.raises(TypeError, match="a Loader is no dataset: .*rowdex.torch.BatchSampler.*TrainerMixin"):
        next(iter(DataLoader(loader, batch_size=8)))


def test_misuse_is_refused(torch_dataset: Any) -> None:
    with pytest.raises(ValueError, match="batch size"):
        rowdex.torch.BatchSampler(torch_dataset)
    with pytest.raises(TypeError):
        rowdex.torch.BatchSampler(rowdex.DistributedSampler(torch_dataset, batch_size=3), 4)
    other = rowdex.torch.BatchSampler(range(7), 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="7 rows"):
        next(iter(DataLoader(torch_dataset, batch_sampler=other)))
    for joined in (torch_dataset + torch_dataset, torch.utils.data.Subset(torch_dataset, range(5))):
        with pytest.raises(TypeError, match="hands out steps, and no row ids"):
            next(iter(DataLoader(joined, batch_sampler=rowdex.torch.BatchSampler(torch_dataset, 10))))


def test_rowdexs_sampler_is_one_of_pytorchs_and_a_sampler_of_it_is_refused(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, ["id"])
    stock: Any = DistributedSampler(dataset, num_replicas=3, rank=1, seed=4, drop_last=True)
    ours: Any = rowdex.DistributedSampler(dataset, 3, 1, True, 4, True, order="torch")
    assert isinstance(ours, DistributedSampler) and isinstance(ours, rowdex.DistributedSampler)
    for name in ("num_replicas", "rank", "epoch", "seed", "shuffle", "drop_last", "num_samples", "total_size"):
        assert getattr(ours, name) == getattr(stock, name), name
    again = pickle.loads(pickle.dumps(ours))
    assert isinstance(again, DistributedSampler) and list(again) == list(stock) == list(ours)
    for sampler in (stock, ours, torch.utils.data.SequentialSampler(dataset)):
        with pytest.raises(TypeError, match="shard its rows again"):
            rowdex.DistributedSampler(sampler)
        if sampler is not ours:
            with pytest.raises(TypeError, match="shard its rows again"):
                rowdex.torch.BatchSampler(sampler, 10)


def test_the_epoch_of_a_loader_is_that_of_its_sampler(index: str) -> None:
    def loader() -> Any:
        return rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=100, seed=2)

    epochs = loader()
    whole = [ids(epochs) for _ in range(6)]
    told = loader()
    told.sampler.set_epoch(2)
    assert ids(told) == whole[2]
    # Frameworks begin an iteration, and say then which epoch it is.
    begun = iter(told)
    told.sampler.set_epoch(1)
    assert ids(begun) == whole[1] and ids(told) == whole[2]
    begun = iter(told)
    told.set_epoch(3)
    assert [next(begun)["id"].tolist()] + ids(begun) == whole[3]
    # Of two iterations that were begun, the one that is read goes on, and the other one is at an end.
    first, second = iter(told), iter(told)
    assert next(first)["id"].tolist() == whole[4][0]
    with pytest.raises(rowdex.errors.ClosedError):
        next(second)
    other = loader()
    other.load_state_dict(epochs_state(loader(), 2, 3))
    with pytest.raises(ValueError, match=r"call set_epoch\(2\)"):
        other.set_epoch(1)
    other.set_epoch(2)
    begun = iter(other)
    other.sampler.set_epoch(2)
    assert ids(begun) == whole[2][3:] and ids(other) == whole[3]
    other.set_epoch(0)
    assert ids(other) == whole[0]


def epochs_state(loader: Any, epoch: int, step: int) -> Any:
    """The state after so many steps of an epoch."""
    loader.set_epoch(epoch)
    for _, _ in zip(range(step), loader):
        pass
    return loader.state_dict()


def test_a_sampler_is_one_of_pytorchs_once_that_is_imported(index: str) -> None:
    program = (
        "import copy, pickle, sys, rowdex\n"
        "early = rowdex.DistributedSampler(rowdex.Dataset(sys.argv[1]), 2, 1, seed=3)\n"
        "assert 'torch' not in sys.modules and type(early) is rowdex.DistributedSampler\n"
        "import rowdex.torch, torch.utils.data as data\n"
        "late = rowdex.DistributedSampler(rowdex.Dataset(sys.argv[1]), 2, 1, seed=3)\n"
        "assert rowdex.torch.DistributedSampler is rowdex.DistributedSampler\n"
        "for sampler in (early, late, pickle.loads(pickle.dumps(late)), copy.deepcopy(late)):\n"
        "    assert isinstance(sampler, rowdex.DistributedSampler)\n"
        "    assert isinstance(sampler, data.DistributedSampler) == (sampler is not early)\n"
        "    assert list(sampler) == list(rowdex.DistributedSampler(range(1003), 2, 1, seed=3))\n"
        "    assert (sampler.shuffle, sampler.drop_last, sampler.num_samples) == (True, False, 502)\n"
    )
    done = run_python(program, index)
    assert done.returncode == 0, done.stderr


def test_a_batch_that_cannot_be_converted_is_not_over(tmp_path: pathlib.Path) -> None:
    pq.write_table(pa.table({"id": [None if row == 45 else row for row in range(100)]}), tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx", progress=False)
    batches = rowdex.torch.IterableDataset(rowdex.torch.Dataset(tmp_path / "a.rdx"), 10, shuffle=False)
    served = []
    with pytest.raises(rowdex.errors.SchemaError, match="id"):
        for batch in DataLoader(batches, batch_size=None):
            served.append(batch["id"].tolist())
    # The step of the null is not one of those that torchdata goes on after.
    assert len(served) == 4 and batches._at == (0, 4, False)
