"""Every iteration of a DataLoader is the next epoch, whoever its workers are."""

from __future__ import annotations

import copy
import gc
import itertools
import multiprocessing
import pickle
from typing import Any

import pytest
import rowdex

from .conftest import ready_to_fork

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rowdex.torch  # noqa: E402
from torch.utils.data import ChainDataset, DataLoader  # noqa: E402

ready_to_fork(torch)
multiprocessing.set_forkserver_preload(["rowdex.torch"])

BATCH, STEPS = 120, 5
SAMPLING: dict[str, Any] = {"seed": 8, "num_replicas": 2, "rank": 1}
WORKERS = [(0, False), (1, False), (2, False), (2, True)]


def expected(index: str, epochs: Any) -> list[list[list[int]]]:
    """The batches of each of these epochs."""
    sampler = rowdex.DistributedSampler(rowdex.Dataset(index), batch_size=BATCH, **SAMPLING)
    found = []
    for epoch in epochs:
        sampler.set_epoch(epoch)
        found.append([batch.row_ids for batch in sampler.batches()])
    assert all(len(batches) == STEPS for batches in found)
    return found


def iterable(index: str) -> Any:
    return rowdex.torch.IterableDataset(rowdex.torch.Dataset(index, ["id"]), BATCH, **SAMPLING)


def loader_of(dataset: Any, workers: int, persistent: bool, method: str | None = None) -> Any:
    options = {"persistent_workers": persistent, "multiprocessing_context": method, "timeout": 120} if workers else {}
    return DataLoader(dataset, batch_size=None, num_workers=workers, **options)


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


@pytest.mark.parametrize("workers, persistent", [*WORKERS, (7, False)])
@pytest.mark.parametrize("kind", ["iterable", "batches", "samples"])
def test_epochs_follow_each_other(index: str, kind: str, workers: int, persistent: bool) -> None:
    dataset = rowdex.torch.Dataset(index, ["id"])
    options: dict[str, Any] = {"persistent_workers": persistent} if workers else {}
    options["num_workers"] = workers
    wanted = expected(index, range(3))
    if kind == "iterable":
        loader: Any = loader_of(iterable(index), workers, persistent)
    elif kind == "batches":
        loader = DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, BATCH, **SAMPLING), **options)
    else:
        loader = DataLoader(
            dataset, batch_size=BATCH, sampler=rowdex.DistributedSampler(dataset, **SAMPLING), **options
        )
    assert [ids(loader) for _ in range(3)] == wanted


@pytest.mark.parametrize("method, persistent", [("spawn", False), ("forkserver", False), ("forkserver", True)])
def test_epochs_follow_each_other_in_workers_that_are_no_forks(index: str, method: str, persistent: bool) -> None:
    dataset = iterable(index)
    loader = loader_of(dataset, 1 if method == "spawn" else 2, persistent, method)
    assert [ids(loader) for _ in range(2)] == expected(index, range(2))
    dataset.set_epoch(5)
    assert ids(loader) == expected(index, [5])[0]


@pytest.mark.parametrize("workers, persistent", WORKERS)
def test_an_iteration_that_was_given_up_counts(index: str, workers: int, persistent: bool) -> None:
    loader = loader_of(iterable(index), workers, persistent)
    iter(loader)
    first = iter(loader)
    assert [next(first)["id"].tolist() for _ in range(2)] == expected(index, [1])[0][:2]
    del first
    gc.collect()
    assert [ids(loader) for _ in range(2)] == expected(index, [2, 3])


def test_two_iterations_at_once_are_two_epochs(index: str) -> None:
    dataset = iterable(index)
    loader, other = (loader_of(dataset, 0, False) for _ in range(2))
    first, second, third = iter(loader), iter(loader), iter(other)
    found: list[list[list[int]]] = [[], [], []]
    for batches in itertools.zip_longest(first, second, third):
        for batch, rows in zip(batches, found):
            rows.append(batch["id"].tolist())
    assert found == expected(index, range(3)) and ids(other) == expected(index, [3])[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_batches_are_refused(index: str, workers: int) -> None:
    batched = DataLoader(iterable(index), batch_size=3, num_workers=workers, persistent_workers=bool(workers))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="batches of 3 of the batches of an IterableDataset.*batch_size=None"):
            ids(batched)


def test_workers_whose_seeds_are_drawn_alike_serve_the_next_epoch(index: str) -> None:
    dataset, found = iterable(index), []
    for _ in range(3):
        torch.manual_seed(1)
        found.append(ids(loader_of(dataset, 2, False)))
    assert found == expected(index, range(3))


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_with_and_without_workers_share_the_epochs_of_a_dataset(index: str, workers: int) -> None:
    dataset = iterable(index)
    loaders = [loader_of(dataset, 2, True), loader_of(dataset, workers, False), loader_of(dataset, 1, True)]
    found = [ids(loader) for loader in [*loaders, *reversed(loaders)]]
    assert found == expected(index, range(6))
    assert [batch["id"].tolist() for batch in dataset] == expected(index, [6])[0]


@pytest.mark.parametrize("workers, persistent", WORKERS)
def test_set_epoch_reaches_the_workers(index: str, workers: int, persistent: bool) -> None:
    dataset = iterable(index)
    loader = loader_of(dataset, workers, persistent)
    dataset.set_epoch(3)
    assert [ids(loader) for _ in range(2)] == expected(index, [3, 4])
    dataset.set_epoch(1)
    begun = iter(loader)
    next(begun)
    # This is for the next iteration, not for the one that is on its way.
    dataset.set_epoch(7)
    assert [rows["id"].tolist() for rows in begun] == expected(index, [1])[0][1:]
    assert [ids(loader) for _ in range(2)] == expected(index, [7, 8])
    for _ in range(2):
        dataset.set_epoch(2)
        assert ids(loader) == expected(index, [2])[0]


@pytest.mark.parametrize("workers, persistent", WORKERS)
def test_a_run_that_goes_on_in_mid_epoch_has_whole_epochs_after_it(index: str, workers: int, persistent: bool) -> None:
    state = iterable(index).state_after(2, 1)
    dataset = iterable(index)
    dataset.load_run_state(state)
    loader = loader_of(dataset, workers, persistent)
    rest, after, last = expected(index, [2, 3, 4])
    assert [ids(loader) for _ in range(3)] == [rest[2:], after, last]
    dataset.set_epoch(2)
    # Asked for anew, the epoch is whole.
    assert ids(loader) == rest
    dataset.load_run_state(state)
    if persistent:
        with pytest.raises(RuntimeError, match="another DataLoader"):
            ids(loader)
        loader = loader_of(dataset, workers, persistent)
    assert ids(loader) == rest[2:]


@pytest.mark.parametrize("workers, persistent", WORKERS)
@pytest.mark.parametrize("kind", ["iterable", "batches", "samples"])
def test_a_stateful_loader_goes_on_from_every_step_and_into_the_next_epochs(
    index: str, kind: str, workers: int, persistent: bool
) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")

    def make() -> Any:
        options: dict[str, Any] = {"num_workers": workers} | ({"persistent_workers": persistent} if workers else {})
        if kind == "iterable":
            return stateful.StatefulDataLoader(iterable(index), batch_size=None, **options)
        dataset = rowdex.torch.Dataset(index, ["id"])
        if kind == "samples":
            sampler = rowdex.DistributedSampler(dataset, **SAMPLING)
            return stateful.StatefulDataLoader(dataset, batch_size=BATCH, sampler=sampler, **options)
        batches = rowdex.torch.BatchSampler(dataset, BATCH, **SAMPLING)
        return stateful.StatefulDataLoader(dataset, batch_sampler=batches, **options)

    first, second, third = expected(index, [1, 2, 3])
    loader = make()
    list(loader)
    states = [(copy.deepcopy(loader.state_dict()), [first, second])]
    begun = iter(loader)
    for step in range(1, STEPS + 1):
        next(begun)
        # After its last batch and before its end, an epoch has nothing left.
        states.append((pickle.loads(pickle.dumps(loader.state_dict())), [first[step:], second]))
    assert list(begun) == []
    states.append((loader.state_dict(), [second, third]))
    for number, (state, after) in enumerate(states):
        again = make()
        again.load_state_dict(state)
        assert [ids(again) for _ in after] == after, number
    assert ids(loader) == second


def test_datasets_within_others_have_their_epochs(index: str) -> None:
    class Wrapper(torch.utils.data.IterableDataset):  # type: ignore[misc,name-defined]
        def __init__(self, dataset: Any) -> None:
            self.get = lambda: dataset

        def __iter__(self) -> Any:
            return iter(self.get())

    for around in (ChainDataset([iterable(index)]), Wrapper(iterable(index))):
        loader = DataLoader(around, batch_size=None, num_workers=1, multiprocessing_context="fork")
        assert [ids(loader) for _ in range(2)] == expected(index, range(2))


def test_a_copy_has_epochs_of_its_own(index: str) -> None:
    dataset = iterable(index)
    loader = loader_of(dataset, 1, True)
    ids(loader)
    other = pickle.loads(pickle.dumps(dataset))
    assert [ids(loader_of(other, workers, False)) for workers in (1, 0, 1)] == expected(index, [1, 2, 3])
    assert ids(loader) == expected(index, [1])[0]


@pytest.mark.parametrize(
    "rows, options",
    [(5004, {"batch_size": 48}), (5, {"tail": "uneven"}), (1, {"tail": "uneven"}), (7, {"batch_size": 2})],
)
def test_a_sampler_whose_rows_are_all_out_stands_at_the_next_epoch(rows: int, options: dict[str, Any]) -> None:
    def ranks() -> list[rowdex.DistributedSampler]:
        return [rowdex.DistributedSampler(range(rows), 2, rank, seed=3, **options) for rank in range(2)]

    before, epochs = ranks(), []
    for sampler in before:
        epochs.append([list(sampler), list(sampler)][1])
    again = ranks()
    for sampler in again:
        list(sampler)
    states = [sampler.state_dict() for sampler in again]
    assert states[0] == states[1]
    for sampler, epoch in zip(ranks(), epochs):
        sampler.load_state_dict(states[0])
        assert list(sampler) == epoch


def test_ranks_of_uneven_tails_stand_at_the_same_step_after_the_same_step() -> None:
    ranks = [rowdex.DistributedSampler(range(5), 2, rank, tail="uneven", seed=3) for rank in range(2)]
    rows = [iter(rank) for rank in ranks]
    for _ in range(2):
        for each in rows:
            next(each)
        assert ranks[0].state_dict() == ranks[1].state_dict()
    saved = [(rank.state_dict(), each.state_dict()) for rank, each in zip(ranks, rows)]
    assert next(rows[0], None) is not None and next(rows[1], None) is None
    assert ranks[0].state_dict() == ranks[1].state_dict()
    # As torchdata goes on, with the state of the sampler and that of the iterator.
    for rank, (state, of_rows) in enumerate(saved):
        again = rowdex.DistributedSampler(range(5), 2, rank, tail="uneven", seed=3)
        again.load_state_dict(state)
        rest = iter(again)
        rest.load_state_dict(of_rows)
        assert len(list(rest)) == 1 - rank
        assert list(again) == list(ranks[rank])
