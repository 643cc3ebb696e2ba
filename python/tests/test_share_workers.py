"""Workers of DataLoaders that share a reader and are killed, under a watchdog."""

from __future__ import annotations

import contextlib
import itertools
import json
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import rowdex

from .test_share import WATCHDOG, Job, addresses, await_nothing_but

pytest.importorskip("torch", reason="PyTorch is not installed")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only")

PROGRAM = pathlib.Path(__file__).with_name("share_killed_program.py")


@pytest.fixture()
def shared(index: str, tmp_path: pathlib.Path) -> Iterator[Job]:
    job = Job(index, tmp_path, 2, epochs=4, batch=10, pause=0.01)
    yield job
    job.kill()


def workers(job: Job, rank: int) -> list[int]:
    return [int(pid) for line in job.lines(rank, "workers") for pid in line.split()]


def await_(condition: Any, job: Job) -> None:
    deadline = time.monotonic() + WATCHDOG
    while not condition():
        assert time.monotonic() < deadline, [job.errors(rank) for rank in job.processes]
        time.sleep(0.01)


def lives(pid: int) -> bool:
    status = pathlib.Path(f"/proc/{pid}/status")
    try:
        return "\nState:\tZ" not in status.read_text()
    except OSError:
        return False


def test_a_worker_that_is_killed_is_an_error_in_training(shared: Job, index: str) -> None:
    before = addresses()
    # It kills once the other rank is there with both of its workers.
    shared.start(0, program=PROGRAM, kill=4, after=str(shared.note(1)))
    shared.start(1, program=PROGRAM)
    shared.wait()
    (killed,) = shared.lines(0, "killed")
    (error,) = shared.lines(0, "error")
    # PyTorch says that it was killed, unless it takes tensors from it just then.
    kind, _, words = error.partition(" ")
    assert kind != "RuntimeError" or (killed in words and "worker" in words), error
    assert "timed out" not in error
    assert shared.ended(1), shared.lines(1, "error")
    for rank in range(2):
        sampler = rowdex.DistributedSampler(rowdex.Dataset(index), num_replicas=2, batch_size=10, seed=7, rank=rank)
        expected = [f"{epoch} {json.dumps(b.row_ids)}" for epoch in range(4) for b in sampler.batches()]
        found = shared.lines(rank, "step")
        assert len(found) >= 4 * (1 - rank) and found == expected[: len(found)]
    left = [pid for rank in range(2) for pid in workers(shared, rank)]
    assert len(left) == 4
    await_(lambda: not any(lives(pid) for pid in left), shared)
    await_nothing_but(before)


def loaded(index: str, kind: str, batch: int = 100, **options: Any) -> Any:
    """A ``DataLoader`` with two workers over a thousand rows."""
    import rowdex.torch
    from torch.utils.data import DataLoader

    known = ("in_order", "num_workers", "generator", "persistent_workers")
    workers = {name: options.pop(name) for name in known if name in options}
    workers = {"num_workers": 2, "persistent_workers": True, **workers}
    dataset = options.pop("dataset", None) or rowdex.torch.Dataset(index, ["id"], memory="1MiB", **options)
    sampling = {"seed": 7, "num_replicas": 1, "rank": 0}
    if kind == "iterable":
        return DataLoader(rowdex.torch.IterableDataset(dataset, batch, **sampling), batch_size=None, **workers)
    return DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, batch, **sampling), **workers)


def meetings() -> set[int]:
    """The readers that children of this process have started: other tests run at the same time."""
    children, found = {child.pid for child in multiprocessing.active_children()}, set()
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        # Some end meanwhile.
        with contextlib.suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) in children and b"--socket" in (process / "cmdline").read_bytes():
                found.add(int(process.name))
    return found


def met_and_served(loader: Any) -> tuple[int, list[Any]]:
    """How many readers workers start while a loader serves two epochs, beside those before, and what it serves."""
    before, most, found = meetings(), 0, []
    for _ in range(2):
        for batch in loader:
            found.append(batch["id"].tolist())
            most = max(most, len(meetings() - before))
    return most, found


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_workers_of_a_loader_share_a_reader_unless_that_is_not_wanted_or_cannot_be(index: str, kind: str) -> None:
    _, alone = met_and_served(loaded(index, kind, num_workers=1, persistent_workers=False))
    assert met_and_served(loaded(index, kind)) == (1, alone)
    for refusal in ({"share": None}, {"worker_threads": 0}, {"num_workers": 1}):
        assert met_and_served(loaded(index, kind, **refusal)) == (0, alone), refusal
    # A step that the other worker will never ask for would be waited for.
    assert met_and_served(loaded(index, kind, batch=len(rowdex.Dataset(index))))[0] == 0


@pytest.mark.parametrize("missing", ["the file", "the function"])
def test_workers_read_for_themselves_where_the_system_has_no_memory_files(
    index: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rowdex.loading import share

    class Library:
        def __init__(self, *_: Any, **__: Any) -> None:
            if missing == "the file":
                self.memfd_create = lambda *_: -1

    share.can_share.cache_clear()
    monkeypatch.setattr("rowdex.loading.share.ctypes.CDLL", Library)
    try:
        met, found = met_and_served(loaded(index, "map"))
    finally:
        share.can_share.cache_clear()
    assert met == 0 and len(found) == 2 * -(-len(rowdex.Dataset(index)) // 100)


def test_loaders_over_one_dataset_have_a_reader_each_though_they_draw_the_same_seed(index: str) -> None:
    import rowdex.torch
    import torch

    dataset = rowdex.torch.Dataset(index, ["id"], memory="1MiB")
    before = meetings()
    loaders = [loaded(index, "map", dataset=dataset, generator=torch.Generator().manual_seed(0)) for _ in range(2)]
    both = list(zip(*map(iter, loaders), strict=True))
    assert len(meetings() - before) == 2
    assert all((one["id"] == other["id"]).all() for one, other in both)
    assert sorted(row for one, _ in both for row in one["id"].tolist()) == list(range(len(dataset)))


def test_steps_that_come_to_any_worker_are_served(index: str) -> None:
    _, found = met_and_served(loaded(index, "map", in_order=False))
    assert len(found) == 2 * len({str(batch) for batch in found[: len(found) // 2]})


def test_a_worker_that_goes_on_elsewhere_than_in_its_turn_reads_for_itself(index: str) -> None:
    """A framework that leaves out the first batches gives each worker the steps of another one."""
    import rowdex.torch
    from torch.utils.data import DataLoader

    dataset = rowdex.torch.Dataset(index, ["id"], memory="1MiB")
    sampler = rowdex.torch.BatchSampler(dataset, 100, seed=7, num_replicas=1, rank=0)
    steps = list(sampler)
    loader = DataLoader(dataset, batch_sampler=steps[1:], num_workers=2)
    found = [batch["id"].tolist() for batch in loader]
    assert found == [dataset.__getitems__(step).batch.to_pydict()["id"] for step in steps[1:]]


@pytest.mark.parametrize("kind", ["map", "iterable"])
def test_a_dataset_around_one_may_leave_out_what_it_likes_and_nobody_waits_for_it(index: str, kind: str) -> None:
    import torch.utils.data

    inner = loaded(index, kind, batch=2)

    class Some(torch.utils.data.IterableDataset[Any]):
        def __init__(self) -> None:
            self.dataset = inner.dataset

        def __iter__(self) -> Iterator[Any]:
            info = torch.utils.data.get_worker_info()
            return itertools.islice(iter(self.dataset), 2 if info is not None and info.id == 0 else None)

    class Kept(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.dataset = inner.dataset

        def __getitems__(self, step: Any) -> Any:
            is_kept = step.step % 2 == 0 and step.step > 2
            return {"id": torch.zeros(2)} if is_kept else self.dataset.__getitems__(step).columns()

    steps = len(inner)
    if kind == "iterable":
        loader: Any = torch.utils.data.DataLoader(Some(), batch_size=None, num_workers=2)
    else:
        sampler = inner.batch_sampler
        loader = torch.utils.data.DataLoader(Kept(), batch_sampler=sampler, num_workers=2, collate_fn=lambda it: it)
    before = meetings()
    served = [(len(batch["id"]), len(meetings() - before)) for batch in loader]
    assert steps > 200 and {met for _, met in served} == {0}
    assert len(served) == (steps if kind == "map" else 2 + steps // 2)


def test_nobody_waits_for_a_worker_that_gets_row_ids_in_the_place_of_steps(index: str) -> None:
    import rowdex.torch
    from torch.utils.data import DataLoader

    dataset = rowdex.torch.Dataset(index, ["id"], memory="1MiB")
    steps = list(rowdex.torch.BatchSampler(dataset, 2, seed=7, num_replicas=1, rank=0))
    given = [step if number % 2 == 0 or number < 4 else [number, 0] for number, step in enumerate(steps)]
    found = [batch["id"].tolist() for batch in DataLoader(dataset, batch_sampler=given, num_workers=2)]
    taken = [dataset.take(step).to_pydict()["id"] for step in given if isinstance(step, list)]
    assert len(found) == len(steps) > 200
    assert found[5::2] == taken and len({tuple(ids) for ids in found}) == len(steps)


@pytest.mark.parametrize("kind", ["fewer", "part"])
def test_nobody_waits_for_workers_that_a_sampler_of_somebody_else_or_a_dataset_made_of_one_leaves_out(
    index: str, kind: str
) -> None:
    """An epoch of all steps is followed by one of a single one, which takes no pause."""
    import rowdex.torch
    from torch.utils.data import DataLoader

    dataset = rowdex.torch.Dataset(index, ["id"], memory="1MiB")
    sampling = {"seed": 7, "num_replicas": 1, "rank": 0}

    class Fewer(rowdex.torch.BatchSampler):
        most = 1 << 30

        def __iter__(self) -> Iterator[Any]:
            return itertools.islice(super().__iter__(), self.most)

    class Part(rowdex.torch.IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return itertools.islice(super().__iter__(), 1)

    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
    sampler, before = Fewer(dataset, 2, **sampling), meetings()
    if kind == "part":
        loader: Any = DataLoader(Part(dataset, 2, **sampling), batch_size=None, **options)
        steps = 2
    else:
        loader, steps = DataLoader(dataset, batch_sampler=sampler, **options), len(sampler)
    assert len(list(loader)) == steps
    sampler.most = 1
    assert len(list(loader)) == (2 if kind == "part" else 1)
    sampler.most = 1 << 30
    assert len(list(loader)) == steps and not meetings() - before


@pytest.mark.parametrize("kind", ["workers", "machine"])
def test_workers_go_on_without_one_that_failed(tmp_path: pathlib.Path, kind: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq
    import rowdex.torch
    from torch.utils.data import DataLoader

    rows = 2000
    pq.write_table(pa.table({"id": [None if row == 5 else row for row in range(rows)]}), tmp_path / "a.parquet")
    rowdex.build(tmp_path, tmp_path / "train.rdx", progress=False)
    share: Any = "workers" if kind == "workers" else rowdex.Share(job=str(tmp_path), name="train", ranks=1)
    dataset = rowdex.torch.Dataset(tmp_path / "train.rdx", memory="1MiB", share=share)
    asks = rowdex.torch.IterableDataset(dataset, 2, shuffle=False, num_replicas=1, rank=0)
    steps = iter(DataLoader(asks, batch_size=None, num_workers=2, persistent_workers=True))
    found, errors = [], 0
    while True:
        try:
            found.append(next(steps)["id"].tolist())
        except StopIteration:
            break
        except rowdex.errors.SchemaError as error:
            errors += 1
            assert "null" in str(error)
    # Row 5 is in step 2, of worker 0: after it come the steps of the other one alone.
    assert errors == 1 and found[:2] == [[0, 1], [2, 3]]
    assert found[2:] == [[row, row + 1] for row in range(6, rows, 4)]


def test_a_dataset_within_something_that_is_not_seen_through_is_not_shared_as_in_a_loader_before(index: str) -> None:
    import rowdex.torch
    from torch.utils.data import DataLoader

    before = meetings()
    own = loaded(index, "map")
    assert len(list(own)) == len(own) and len(meetings() - before) == 1

    class View:
        def __getitems__(self, step: Any) -> Any:
            return own.dataset.__getitems__(step).columns()

    sampler = rowdex.torch.BatchSampler(own.dataset, 100, seed=7, num_replicas=1, rank=0)
    options: dict[str, Any] = {"num_workers": 2, "collate_fn": lambda it: it, "multiprocessing_context": "fork"}
    there, served = meetings(), []
    for batch in DataLoader(View(), batch_sampler=sampler, **options):  # type: ignore[arg-type]
        served.append(batch["id"].tolist())
        assert meetings() == there
    assert sorted(row for ids in served for row in ids) == list(range(len(own.dataset)))


def test_nobody_waits_for_a_worker_of_a_dataset_that_answers_for_itself(index: str) -> None:
    import rowdex.torch
    import torch

    class Cached(rowdex.torch.Dataset):
        def __getitems__(self, step: Any) -> Any:
            is_known = step.step % 2 == 0 and step.step > 2
            return [{"id": torch.zeros(())}] * 2 if is_known else super().__getitems__(step)

    before = meetings()
    loader = loaded(index, "map", batch=2, dataset=Cached(index, ["id"], memory="1MiB"))
    assert len(list(loader)) == len(loader) > 200 and not meetings() - before
