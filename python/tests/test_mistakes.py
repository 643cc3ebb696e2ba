"""What people write by mistake: it is an error that says what to write instead, and never rows that nobody meant."""

from __future__ import annotations

import copy
import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import rowdex
import rowdex.transforms
from rowdex.loading import options as _options

torch = pytest.importorskip("torch")
import rowdex.torch  # noqa: E402


def test_a_list_of_booleans_is_a_mask_as_an_array_of_them_is(dataset: rowdex.Dataset) -> None:
    mask = [row % 7 == 3 for row in range(len(dataset))]
    wanted = [row for row, chosen in enumerate(mask) if chosen]
    assert dataset[mask].row_ids == dataset[tuple(mask)].row_ids == dataset[np.array(mask)].row_ids == wanted
    for wrong in ([True, False], [False], mask[1:]):
        with pytest.raises(IndexError, match=f"a mask of {len(wrong)} rows for a dataset of {len(dataset)}"):
            dataset[wrong]
    with pytest.raises(TypeError, match="row ids and booleans"):
        dataset[[*mask[1:], 5]]


def test_a_mask_is_never_taken_for_the_row_ids_0_and_1(dataset: rowdex.Dataset) -> None:
    mask = [row % 7 == 3 for row in range(len(dataset))]
    for wrong in (mask, tuple(mask), (chosen for chosen in mask), [0, 1, True], np.array(mask), list(np.array(mask))):
        with pytest.raises(TypeError, match="bool"):
            rowdex.order.IdSet(len(dataset), wrong)
    with pytest.raises(TypeError, match="numbers that are booleans: use integers"):
        rowdex.order.Explicit(mask)
    assert list(rowdex.order.IdSet(len(dataset), (row for row in (5, np.int64(3))))) == [3, 5]


@pytest.mark.parametrize("row", [True, False, None, ..., 1.0, "id", b"id"])
def test_what_is_no_row_id_is_refused(dataset: rowdex.Dataset, row: Any) -> None:
    with pytest.raises(TypeError, match="use a row id, a slice, or several row ids"):
        dataset[row]


def test_row_ids_that_are_no_integers_are_refused(dataset: rowdex.Dataset) -> None:
    for rows in (["a"], [1.5], [None]):
        with pytest.raises(TypeError, match="row ids are integers"):
            dataset[rows]


@pytest.mark.parametrize("rows", ["12", b"12", 5, None])
def test_rows_are_a_sequence_of_row_ids(dataset: rowdex.Dataset, rows: Any) -> None:
    with dataset.prefetch([1, 2]) as prefetched:
        for call in (dataset.take, dataset.prefetch, prefetched.take, prefetched.prefetch):
            with pytest.raises(TypeError, match="use a sequence of integers"):
                call(rows)


@pytest.mark.parametrize("columns", ["id", b"id", [0], [None], [b"id"], 5])
def test_columns_are_a_list_of_names(dataset: rowdex.Dataset, index: str, columns: Any) -> None:
    batch = dataset[:3]
    for call in (dataset.select, batch.to_numpy, batch.to_torch, batch.to_pydict):
        with pytest.raises(TypeError, match="give a list of names"):
            call(columns)
    with pytest.raises(TypeError, match="give a list of names"):
        rowdex.Dataset(index, columns=columns)


def test_a_part_of_a_batch_is_a_column_or_a_row(dataset: rowdex.Dataset) -> None:
    batch = dataset[10:20]
    assert batch[np.int64(3)]["id"] == batch[3]["id"] == batch[-7]["id"] == batch["id"][3] == 13
    for part in (slice(0, 2), None, 1.0, [0, 1], b"id"):
        with pytest.raises(TypeError, match="use the name of a column or the number of a row"):
            batch[part]  # type: ignore[index]


def test_files_to_index_are_paths(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for wrong in (None, 5, [None], [folder, 5]):
        with pytest.raises(rowdex.errors.ArgumentError, match=r"`files\[.\]`: .*, expected a path"):
            rowdex.build(wrong, tmp_path / "no.rdx")  # type: ignore[arg-type]
    built = rowdex.build(str(folder).encode(), tmp_path / "built.rdx")
    assert built.rows == len(rowdex.Index(folder / "train.rdx"))


def test_choices_of_a_view_that_are_no_lists_are_refused(index: str, tmp_path: pathlib.Path) -> None:
    for name in ("rows", "skip"):
        for wrong in ([1, 2], np.array([1, 2]), 5):
            with pytest.raises(TypeError, match=f"{name} is a .*: give a table, .* rowdex.order.IdSet"):
                rowdex.select(index, tmp_path / "no.rdx", **{name: wrong})
    with pytest.raises(rowdex.errors.ArgumentError, match="`sample.fraction`: invalid type: string"):
        rowdex.select(index, tmp_path / "no.rdx", sample="10%")  # type: ignore[arg-type]


def test_what_is_no_set_of_rows_is_never_taken_for_one(dataset: rowdex.Dataset, index: str) -> None:
    rows = rowdex.order.IdSet(len(dataset), [1, 2, 3])
    for wrong in (dataset, dataset.index, [1, 2], rowdex.Loader(dataset, batch_size=8), 5):
        calls: list[Any] = [
            lambda: dataset.labels("label", of=wrong), lambda: dataset.counts("label", of=wrong),
            lambda: dataset.weights("label", of=wrong), lambda: rowdex.order.IdSet.where(dataset, "id > 3", of=wrong),
            lambda: rowdex.order.IdSet.split(dataset, "train", by="id", of=wrong),
            lambda: rowdex.order.Subset("global", wrong), lambda: rows & wrong, lambda: rows | wrong,
        ]  # fmt: skip
        for call in calls:
            with pytest.raises(TypeError, match="IdSet"):
                call()
    assert list(rowdex.order.IdSet.view(dataset, index) & rows) == [1, 2, 3]
    for other in (rows, dataset):
        with pytest.raises(TypeError, match="expected str, bytes or os.PathLike"):
            rowdex.order.IdSet.view(dataset, other)  # type: ignore[arg-type]


def test_no_sampler_disk_cache_or_store_is_refused_by_name(dataset: rowdex.Dataset, index: str) -> None:
    class Rows(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return len(dataset)

    stock = torch.utils.data.DistributedSampler(Rows(), 1, 0)
    for sampler in (32, stock, rowdex.torch.BatchSampler(dataset, 8)):
        with pytest.raises(TypeError, match="give a rowdex.DistributedSampler, or batch_size="):
            rowdex.Loader(dataset, sampler)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"give a rowdex.DiskCache\(folder, bytes\)"):
        rowdex.Dataset(index, disk_cache="/nvme")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="store is a dict: give rowdex.StoreOptions") as raised:
        rowdex.Dataset(index, store={"key": "secret"})  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)
    with pytest.raises(TypeError, match="give its index"):
        rowdex.count(dataset)  # type: ignore[call-overload]


@pytest.mark.parametrize("epoch", ["1", None, 1.5, [1]])
def test_an_epoch_is_a_whole_number(dataset: rowdex.Dataset, epoch: Any) -> None:
    for served in (rowdex.Loader(dataset, batch_size=8), rowdex.DistributedSampler(dataset)):
        with pytest.raises(TypeError, match="^epoch is .*: use a whole number"):
            served.set_epoch(epoch)
        for beyond in (-1, 2**64):
            with pytest.raises(ValueError, match="epochs count from 0 to"):
                served.set_epoch(beyond)
        served.set_epoch(np.int64(3))  # type: ignore[arg-type]
        assert served.epoch == 3


def test_lists_are_filled_with_no_other_number_than_was_asked_for() -> None:
    for dtype, fills, refused in (
        ("uint8", [0, 255, np.int64(7), 3.0], [-1, 256, 1.5, float("nan"), "a", None]),
        ("int64", [-100, 2**63 - 1, True], [2**63, 0.5, float("inf"), 2**70]),
        ("bool", [False, 1], [2, -1]),
        ("float32", [float("nan"), -1, 0.1], []),
    ):
        numpy = rowdex.Ragged(np.array([1, 0, 1], dtype), np.array([0, 2, 3]))
        tensors = rowdex.Ragged(torch.from_numpy(numpy.values), torch.from_numpy(numpy.offsets))
        for lists in (numpy, tensors):
            for fill in fills:
                found = lists.padded(fill, 3)
                assert found.tolist()[0][:2] == [1, 0]
                assert np.isclose(float(found[1, 2]), float(fill), rtol=1e-6, equal_nan=True)
                assert rowdex.transforms.Pad(np.int64(3), fill=fill)(lists)[0].shape == (2, 3)  # type: ignore[arg-type]
            for fill in refused:
                for pad in (lists.padded, lambda fill, length: rowdex.transforms.Pad(length, fill=fill)(lists)):
                    with pytest.raises(ValueError, match="is no value of"):
                        pad(fill, 3)


def test_an_index_never_takes_the_place_of_data(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    copy = tmp_path / "copy.parquet"
    copy.write_bytes((folder / "part-0.parquet").read_bytes())
    for write in (
        lambda: rowdex.build(copy, copy, overwrite=True),
        lambda: rowdex.select(folder / "train.rdx", copy, sample=0.5, overwrite=True),
    ):
        with pytest.raises(rowdex.errors.ArgumentError, match="would replace a Parquet file"):
            write()
    assert copy.read_bytes() == (folder / "part-0.parquet").read_bytes()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda dataset: dataset.labels(5), "column name"),
        (lambda dataset: dataset.weights(None), "column name"),
        (lambda dataset: dataset.verify(1), "level"),
        (lambda dataset: rowdex.DistributedSampler(dataset, tail=3), "tail"),
        (lambda dataset: rowdex.Dataset(dataset.index, check=1), "check"),
    ],
)
def test_what_is_no_text_is_refused_by_name(dataset: rowdex.Dataset, call: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} is .*: use a text"):
        call(dataset)


def test_a_path_may_be_bytes(index: str) -> None:
    assert len(rowdex.Dataset(index.encode())) == len(rowdex.Dataset(index))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "make",
    [
        lambda path: rowdex.DistributedSampler(path),
        lambda path: rowdex.torch.BatchSampler(path, 8),
        lambda path: rowdex.torch.GlobalBatchSampler(path, 8),
        lambda path: rowdex.torch.IterableDataset(path, 8),
    ],
)
def test_a_path_in_the_place_of_a_dataset_is_no_dataset_of_its_letters(index: str, make: Any) -> None:
    for path in (index, pathlib.Path(index)):
        with pytest.raises(TypeError, match=r"give it a (rowdex\.torch\.D|d)ataset"):
            make(path)


OF_A_LOADER = {"map", "memory", "threads"}
OF_A_SAMPLER = {"pack"}
"""Of which makers of batches of rows say themselves that they serve none."""


@pytest.mark.parametrize("name", sorted(set(_options._ELSEWHERE) - OF_A_SAMPLER))
def test_an_option_of_another_loader_is_told_what_it_is_here(dataset: rowdex.Dataset, name: str) -> None:
    for make, maker in ((rowdex.Loader, "Loader"), (rowdex.torch.BatchSampler, "BatchSampler")):
        if make is rowdex.Loader and name in OF_A_LOADER:
            continue
        with pytest.raises(TypeError, match=f"^{name}: {maker} has no such option; ."):
            make(dataset, batch_size=8, **{name: 1})


def test_an_unknown_option_is_told_what_there_is(dataset: rowdex.Dataset) -> None:
    with pytest.raises(TypeError, match="memry: Loader has no such option; did you mean memory"):
        rowdex.Loader(dataset, batch_size=8, memry=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="zzz: IterableDataset|zzz: BatchSampler has no such option; there are batch_s"):
        rowdex.torch.BatchSampler(dataset, batch_size=8, zzz=1)


@pytest.mark.parametrize(
    "options",
    [{"batch_size": "8"}, {"batch_size": 1.5}, {"seed": None}, {"seed": "a"}, {"memory": 1.5}, {"threads": "2"},
     {"num_replicas": "2"}, {"rank": 0.5, "num_replicas": 2}],
)  # fmt: skip
def test_what_is_no_whole_number_is_refused_by_name(dataset: rowdex.Dataset, options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises((TypeError, ValueError), match=f"^{name} is "):
        rowdex.Loader(dataset, **{"batch_size": 8, **options})


@pytest.mark.parametrize("seed", [np.int64(-3), np.uint8(3), 3.0])
def test_a_seed_of_numpy_is_the_number_that_it_is(dataset: rowdex.Dataset, tmp_path: pathlib.Path, seed: Any) -> None:
    def rows_of(seed: Any) -> list[Any]:
        out, index = tmp_path / "out", dataset.index
        rowdex.select(index, out, sample=0.5, seed=seed, split="train", split_seed=seed, overwrite=True)
        split = rowdex.order.IdSet.split
        with rowdex.Dataset(out) as view:
            found: list[Any] = [view.index.view["choices"], pa.record_batch(view[:]).column("id").to_pylist()]
        found.append(list(split(dataset, "train", seed=seed, validation_fraction=0.5)))
        found.append(list(split(dataset, "train", seed=seed, validation_fraction=0.5, by="label")))
        found.append(rowdex.digest.same_rows(dataset, dataset, order="global", seed=seed).difference is None)
        found.append(rowdex.rewrite(dataset, tmp_path / "shuffled", seed=seed, overwrite=True).rows)
        return [*found, next(iter((tmp_path / "shuffled").glob("*.parquet"))).read_bytes()]

    assert rows_of(seed) == rows_of(int(seed))
    wrong: Any = 0.5
    for name, make in {
        "seed": lambda: rowdex.order.IdSet.split(dataset, "train", seed=wrong),
        "split_seed": lambda: rowdex.select(dataset.index, tmp_path / "no", split="train", split_seed=wrong),
    }.items():
        with pytest.raises(TypeError, match=f"^{name} is .*: use a whole number"):
            make()
    with pytest.raises(ValueError, match="epoch -1: epochs count from 0"):
        rowdex.digest.same_rows(dataset, dataset, order="global", epoch=-1)


def test_a_set_is_of_as_many_rows_as_there_can_be() -> None:
    sets = rowdex.order.IdSet
    for rows in (-1, 2**63, 2**64, np.int64(-1)):
        for make in (
            lambda: sets(rows, []), lambda: sets.ranges(rows, []), lambda: sets.split(rows, "train"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=f"rows is {rows}: use a number from 0 to below 2\\^63"):
                make()
    with pytest.raises(TypeError, match="rows is 'ten': use a whole number"):
        sets("ten", [])  # type: ignore[arg-type]
    assert sets(np.int64(5), [3]).rows == sets.split(np.int64(5), "train").rows == 5  # type: ignore[arg-type]


def test_lists_of_rows_that_only_this_machine_can_have_are_no_urls(dataset: rowdex.Dataset) -> None:
    for url in ("s3://bucket/rows.csv", "hf://datasets/owner/name/rows.parquet"):
        for call in (lambda: rowdex.order.IdSet.listed(dataset, url), lambda: rowdex.order.Explicit(file=url)):
            told = f"{url}: a list of rows is a local file: copy it"
            with pytest.raises(rowdex.errors.ArgumentError, match=told) as raised:
                call()
            assert raised.value.file == url


def test_names_of_added_columns_are_texts_and_differ(dataset: rowdex.Dataset) -> None:
    for names in ({"row_ids": "r", "repeated": "r"}, {"row_ids": "id"}):
        with pytest.raises(ValueError, match="there is a column called"):
            rowdex.Loader(dataset, batch_size=8, **names)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="names of columns to add"):
        rowdex.Loader(dataset, batch_size=8, row_ids=True)  # type: ignore[arg-type]


def test_drop_last_of_what_makes_batches_is_that_of_a_dataloader(dataset: rowdex.Dataset) -> None:
    class Rows(torch.utils.data.Dataset[int]):
        def __len__(self) -> int:
            return len(dataset)

        def __getitem__(self, row: int) -> int:
            return row

    for world, size in [(1, 64), (2, 100), (3, 335), (3, 334), (7, 2000)]:
        for last in (False, True):
            stock = torch.utils.data.DistributedSampler(Rows(), world, 0, shuffle=False)
            wanted = [len(batch) for batch in torch.utils.data.DataLoader(Rows(), size, sampler=stock, drop_last=last)]
            given: Any = {"batch_size": size, "num_replicas": world, "rank": 0, "drop_last": last}
            loader = rowdex.Loader(dataset.select(["id"]), row_ids="row", **given)
            batches = rowdex.torch.BatchSampler(dataset, **given)
            assert [len(batch["row"]) for batch in loader] == wanted, (world, size, last)
            assert len(loader) == len(batches) == len(wanted)


def test_steps_that_are_taken_for_row_ids_say_where_they_belong(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, columns=["id"])
    batches = rowdex.torch.BatchSampler(dataset, batch_size=8)
    part: Any = torch.utils.data.Subset(dataset, range(100))
    for loader in (
        torch.utils.data.DataLoader(dataset, sampler=batches),
        torch.utils.data.DataLoader(dataset, sampler=batches, batch_size=None),
        torch.utils.data.DataLoader(part, batch_sampler=batches),
    ):
        with pytest.raises(TypeError, match="hands out steps, and no row ids: write DataLoader"):
            next(iter(loader))


def test_batches_of_batches_are_refused(index: str) -> None:
    dataset = rowdex.torch.Dataset(index, columns=["id"])
    batches = rowdex.torch.IterableDataset(dataset, batch_size=8)
    for size in (1, 8):
        for workers in (0, 1):
            loader = torch.utils.data.DataLoader(batches, batch_size=size, num_workers=workers)
            with pytest.raises(RuntimeError, match=r"write DataLoader\(dataset, batch_size=None\)"):
                next(iter(loader))
    # Who collates by a function of his own knows what comes.
    own = torch.utils.data.DataLoader(batches, batch_size=1, collate_fn=lambda found: found[0])
    assert next(iter(own))["id"].shape == (8,)


def test_an_iterable_dataset_of_a_dataset_that_makes_no_batches_is_refused(dataset: rowdex.Dataset) -> None:
    with pytest.raises(TypeError, match="give it a rowdex.torch.Dataset"):
        rowdex.torch.IterableDataset(dataset, batch_size=8)  # type: ignore[arg-type]


def test_hints_name_the_arguments_of_python_and_not_options_of_the_command(
    folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    index = tmp_path / "again.rdx"
    rowdex.build(folder, index)
    for again in (lambda: rowdex.build(folder, index), lambda: rowdex.select(index, index, sample=0.5)):
        with pytest.raises(rowdex.Error) as raised:
            again()
        assert "`--" not in str(raised.value) and "`--" not in str(raised.value.hint)
    with pytest.raises(rowdex.errors.AlreadyExistsError, match="`overwrite`.*`update`"):
        rowdex.build(folder, index)


@pytest.mark.parametrize("copied", [lambda value: pickle.loads(pickle.dumps(value)), copy.deepcopy, copy.copy])
@pytest.mark.parametrize("options", [{}, {"map": len}, {"threads": 0, "strings": "views"}])
@pytest.mark.parametrize("served", [0, 3, 16, 20])
def test_a_copied_loader_goes_on_where_the_other_one_is(
    dataset: rowdex.Dataset, copied: Any, options: Any, served: int
) -> None:
    def made() -> Any:
        return rowdex.Loader(dataset.select(["id"]), batch_size=64, seed=5, output="numpy", row_ids="row", **options)

    def rows(batch: Any) -> Any:
        return batch if isinstance(batch, int) else batch["row"].tolist()

    def going(loader: Any) -> Any:
        while True:
            yield from loader

    whole = going(made())
    wanted = [rows(next(whole)) for _ in range(60)]
    loader = made()
    first = going(loader)
    assert [rows(next(first)) for _ in range(served)] == wanted[:served]
    other = copied(loader)
    assert other.state_dict() == loader.state_dict()
    after = going(other)
    assert [rows(next(after)) for _ in range(35)] == wanted[served : served + 35]
    # And the one that was copied goes on as if it had not been.
    assert [rows(next(first)) for _ in range(35)] == wanted[served : served + 35]


def test_a_schema_is_pickled(dataset: rowdex.Dataset) -> None:
    for schema in (dataset.schema, dataset.index.schema, rowdex.Loader(dataset, batch_size=8, strings="views").schema):
        again = pickle.loads(pickle.dumps(schema))
        assert again.fields == schema.fields
        assert pa.schema(again).equals(pa.schema(schema), check_metadata=True)
        assert pickle.loads(pickle.dumps(again)).fields == schema.fields


def test_what_a_rewrite_packs_and_a_sampler_cannot_take_is_refused_at_once(
    dataset: rowdex.Dataset, tmp_path: pathlib.Path
) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"order": [1, 2]}, TypeError, r"Explicit\(rows\)"),
        ({"tasks": 2}, ValueError, "`task` says nothing"),
        ({"step": "spill", "task": -1, "tasks": 2}, ValueError, r"`task\[0\]`: .* `-1`"),
        ({"step": "spill", "task": 2, "tasks": 2}, ValueError, "task 2 of 2"),
        ({"task": "0"}, ValueError, r"`task\[0\]`: invalid type: string"),
    ]
    for options, error, said in cases:
        with pytest.raises(error, match=said):
            rowdex.rewrite(dataset, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    with pytest.raises(TypeError, match="capacity=None: use a whole number"):
        rowdex.Pack("tokens", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="replication is '2': use a whole number"):
        rowdex.DistributedSampler(dataset, num_replicas=4, rank=1, replication="2")  # type: ignore[arg-type]
    two: Any = 2.0
    assert list(rowdex.DistributedSampler(dataset, num_replicas=4, rank=1, replication=two)) == list(
        rowdex.DistributedSampler(dataset, num_replicas=4, rank=0, replication=2)
    )


class _Parts(torch.utils.data.Dataset[Any]):
    """What a user writes who wants ten rows at a time."""

    def __init__(self, dataset: rowdex.Dataset) -> None:
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset) // 10

    def __getitem__(self, part: int) -> Any:
        return self.dataset[part * 10 : part * 10 + 10]


def test_a_batch_that_a_worker_cannot_send_is_an_error_and_nobody_waits(index: str) -> None:
    sampler = torch.utils.data.BatchSampler(range(100), 10, False)
    options: dict[str, Any] = {"batch_size": None, "num_workers": 1, "timeout": 60}
    rows = rowdex.torch.Dataset(index, columns=["id"])
    for loader in (
        torch.utils.data.DataLoader(rows, sampler=sampler, **options),
        torch.utils.data.DataLoader(_Parts(rowdex.Dataset(index)), **options),
    ):
        with pytest.raises(TypeError, match="a Batch is not pickled.*rowdex.torch.BatchSampler"):
            next(iter(loader))
    with pytest.raises(TypeError, match="a Batch is not pickled"):
        pickle.dumps(rows[[1, 2]])


def test_epochs_and_steps_that_cannot_be_are_refused_and_do_not_wrap(dataset: rowdex.Dataset) -> None:
    sampler = rowdex.DistributedSampler(dataset, 1, 0, batch_size=2)
    for epoch in (-1, 2**64, 2**64 + 3):
        for asked in (sampler.batch, sampler.state_after):
            with pytest.raises(ValueError, match="epochs count from 0"):
                asked(epoch, 0)
    for step in (-1, 2**64, 2**64 + 1):
        with pytest.raises(ValueError, match="steps of an epoch count from 0"):
            sampler.batch(0, step)
    with pytest.raises(ValueError, match="steps of an epoch count from 0"):
        sampler.state_after(0, 2**64)
    assert sampler.state_after(0, -1) == sampler.state_dict()


def test_tokens_that_no_column_could_have_are_refused_and_do_not_wrap(dataset: rowdex.Dataset) -> None:
    for token in (2**63, 2**64 + 7, -(2**64) + 7):
        for name in ("bos", "eos", "pad"):
            with pytest.raises(ValueError, match=f"{name} is {token}: a token is a number of 64 bits"):
                rowdex.Pack("tokens", capacity=8, extra=1, **{name: token})
            with pytest.raises(ValueError, match=f"{name} is {token}: a token is a number of 64 bits"):
                dataset[[0]].sequences(**{name: token})
    floats: Any = {"capacity": 8.0, "extra": 1.0, "bos": 5.0}
    assert rowdex.Pack("tokens", **floats) == rowdex.Pack("tokens", 8, extra=1, bos=5)
