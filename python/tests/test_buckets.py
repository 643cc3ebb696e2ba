"""Buckets compared with a sort of each window, written from docs/packs-format.md alone."""

from __future__ import annotations

import os
import pathlib
import random
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
CASES = 300 if os.environ.get("ROWDEX_LONG") == "1" else 12
IGNORED = -100


def buckets(**options: Any) -> rowdex.Pack:
    return rowdex.Pack("tokens", algorithm="buckets", **options)


def rows_of(draw: random.Random, count: int) -> list[list[int]]:
    lengths = [draw.choice([0, 1, draw.randint(1, 9), draw.randint(1, 60)]) for _ in range(count)]
    return [[1000 * row + at for at in range(length)] for row, length in enumerate(lengths)]


def built(folder: pathlib.Path, rows: list[list[int]], row_group_size: int = 37) -> rowdex.Dataset:
    lists = pa.array(rows, pa.list_(pa.int32()))
    table = pa.table({"tokens": lists, "id": pa.array(range(len(rows)), pa.int64())})
    pq.write_table(table, folder / "rows.parquet", row_group_size=row_group_size)
    rowdex.build(folder / "rows.parquet", folder / "train.rdx", lengths=["tokens"], progress=False, overwrite=True)
    return rowdex.Dataset(folder / "train.rdx")


class Case:
    """Random rows in random buckets."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        self.draw = random.Random(seed)
        self.rows = rows_of(self.draw, self.draw.choice([1, 5, 40, 150, 400]))
        self.dataset = built(folder, self.rows)
        self.seed, self.shuffle = self.draw.randrange(1000), self.draw.random() < 0.8
        self.within = self.draw.choice([1, 7, 50, 2**14])
        self.pack = buckets(block=self.within)

    def samplers(self, world: int, batch: int, tail: str = "uneven") -> list[rowdex.DistributedSampler]:
        return [
            rowdex.DistributedSampler(
                self.dataset, world, rank, seed=self.seed, shuffle=self.shuffle, batch_size=batch, pack=self.pack,
                tail=tail,
            )
            for rank in range(world)
        ]  # fmt: skip

    def order(self) -> list[int]:
        return list(rowdex.DistributedSampler(self.dataset, 1, 0, seed=self.seed, shuffle=self.shuffle))

    def windows(self, step: int) -> tuple[list[list[int]], list[int]]:
        """The rows that are sorted together, in their order, and those that make no whole step."""
        order = self.order()
        window = max(1, int(self.within / step + 0.5)) * step
        ends = [number * window for number in range(max(1, len(order) // window))] + [len(order)]
        blocks = [order[a:b] for a, b in zip(ends, ends[1:])]
        rest = len(order) % step
        if rest:
            blocks[-1], rest_rows = blocks[-1][:-rest], blocks[-1][-rest:]
            return blocks, rest_rows
        return blocks, []

    def length(self, row: int) -> int:
        return len(self.rows[row])


@pytest.fixture(params=range(CASES))
def case(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    found = Case(request.param, tmp_path)
    yield found
    found.dataset.close()


def steps_of(samplers: list[rowdex.DistributedSampler]) -> list[list[list[int]]]:
    ranks = [[batch.row_ids for batch in sampler.batches()] for sampler in samplers]
    assert len({len(batches) for batches in ranks}) == 1, "ranks have different numbers of steps"
    return [list(step) for step in zip(*ranks)]


def flat(steps: list[list[list[int]]]) -> list[int]:
    return [row for step in steps for batch in step for row in batch]


def test_steps_are_the_cuts_of_sorted_windows_and_their_batches_are_neighbours(case: Case) -> None:
    world, batch = case.draw.randint(1, 9), case.draw.randint(1, 6)
    step = world * batch
    steps = steps_of(case.samplers(world, batch))
    windows, rest = case.windows(step)
    for window in windows:
        ordered = sorted(window, key=case.length)
        cuts = [ordered[at : at + step] for at in range(0, len(ordered), step)]
        expected = [[cut[rank * batch : (rank + 1) * batch] for rank in range(world)] for cut in cuts]
        assert sorted(steps[: len(cuts)]) == sorted(expected)
        steps = steps[len(cuts) :]
    assert flat(steps) == sorted(rest, key=case.length) and len(steps) == bool(rest)


def test_the_page_has_the_steps_of_its_example(tmp_path: pathlib.Path) -> None:
    text = (REPOSITORY / "docs/packs-format.md").read_text()
    example = re.search(r"An example: 22 rows.*?```text\n(.*?)```.*?```text\n(.*?)```", text, re.DOTALL)
    assert example is not None
    order = [int(row) for row in example[1].split()]
    written = [
        [[int(row.split(":")[0]) for row in batch.split()] for batch in step.split(",")]
        for step in example[2].replace("\n", " ").split("|")
    ]
    lengths = [7 * row * row % 23 for row in range(22)]
    assert re.findall(r"(\d+):(\d+)", example[2]) == [(str(row), str(lengths[row])) for row in flat(written)]
    dataset = built(tmp_path, [[row] * length for row, length in enumerate(lengths)])
    samplers = [
        rowdex.DistributedSampler(dataset, 2, rank, seed=42, batch_size=2, pack=buckets(block=8))
        for rank in range(2)
    ]
    plain = rowdex.DistributedSampler(dataset, 1, 0, seed=42)
    for sampler in (*samplers, plain):
        sampler.set_epoch(1)
    assert (list(plain), steps_of(samplers)) == (order, written)
    dataset.close()


def test_any_number_of_ranks_goes_on_where_others_stopped(case: Case) -> None:
    world, batch = case.draw.randint(1, 9), case.draw.randint(1, 6)
    first = case.samplers(world, batch)
    whole = flat(steps_of(case.samplers(world, batch)))
    assert sorted(whole) == list(range(len(case.rows)))
    steps = first[0].steps
    if steps < 2:
        return
    done = case.draw.randint(1, steps - 1)
    (state,) = {sampler.state_after(0, done - 1)["state"] for sampler in first}
    at = done * world * batch
    for other in range(1, 10):
        size = case.draw.randint(1, 6)
        resumed = case.samplers(other, size)
        for sampler in resumed:
            sampler.load_state_dict({"state": state})
        left = steps_of(resumed)
        assert flat(left) == whole[at:], (world, batch, done, other, size)
        # The next epoch is cut for those who serve it.
        fresh = case.samplers(other, size)
        for sampler in fresh:
            sampler.set_epoch(1)
        assert steps_of(resumed) == steps_of(fresh)


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_a_loader_fills_rows_up_to_the_longest_of_a_batch(output: str, tmp_path: pathlib.Path) -> None:
    if output == "torch":
        pytest.importorskip("torch")
    rows = rows_of(random.Random(7), 300)
    dataset = built(tmp_path, rows)
    pack = buckets(block=64, extra=2, bos=9_000_001, eos=9_000_002, multiple=4, layout="rows", pad=5)
    seen: list[int] = []
    shapes = set()
    for rank in range(3):
        loader = rowdex.Loader(dataset, batch_size=8, pack=pack, num_replicas=3, rank=rank, seed=3, tail="uneven",
                               output=output)  # fmt: skip
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            tokens, labels = np.asarray(batch["tokens"]), np.asarray(batch["labels"])
            ids = np.asarray(batch["row_ids"]).tolist()
            assert np.asarray(batch["id"]).tolist() == ids
            served = [[9_000_001, *rows[row], 9_000_002] for row in ids]
            width = max(-(-len(row) // 4) * 4 for row in served)
            assert tokens.tolist() == [row + [5] * (width - len(row)) for row in served]
            expected = [row[1:] + [IGNORED] * (width - len(row) + 1) for row in served]
            assert labels.tolist() == expected
            seen += ids
            shapes.add(tokens.shape)
    assert sorted(seen) == list(range(300)) and len(shapes) > 3
    dataset.close()


def test_columns_come_as_they_are_unless_a_layout_is_asked_for(tmp_path: pathlib.Path) -> None:
    rows = rows_of(random.Random(8), 100)
    dataset = built(tmp_path, rows)
    loader = rowdex.Loader(dataset, batch_size=8, pack=buckets(), seed=3, output="arrow")
    tables = [pa.record_batch(batch) for batch in loader]
    lists = [row for table in tables for row in zip(table["id"].to_pylist(), table["tokens"].to_pylist())]
    assert dict(lists) == dict(enumerate(rows))
    # The tail is that of rows: the first ones come again.
    assert len(lists) >= 100
    dataset.close()


def test_long_rows_are_cut_or_refused(tmp_path: pathlib.Path) -> None:
    rows = [list(range(length)) for length in (3, 30, 7, 12)]
    dataset = built(tmp_path, rows)
    cut = buckets(capacity=10, overflow="truncate", layout="flat", labels=False)
    (batch,) = rowdex.Loader(dataset, batch_size=4, pack=cut, shuffle=False, output="numpy")
    assert sorted(batch["lengths"].tolist()) == [3, 7, 10, 10]
    with pytest.raises(rowdex.Error, match="12 tokens|30 tokens"):
        list(rowdex.Loader(dataset, batch_size=4, pack=buckets(capacity=10), output="numpy"))
    dataset.close()


def test_what_buckets_cannot_be_is_refused(tmp_path: pathlib.Path) -> None:
    dataset = built(tmp_path, rows_of(random.Random(9), 50))
    wrong: dict[str, Any]
    for wrong, word in (({"overflow": "drop"}, "drop"), ({"overflow": "split"}, "split"), ({"block": 0}, "blocks of 0"),
                        ({"layout": "columns"}, "layout"), ({"bos": 1}, "extra=1"), ({"bos": 1, "extra": 1}, "layout"),
                        ({"cost": (1, 1)}, "cost"), ({"empty": "skip"}, "without")):  # fmt: skip
        with pytest.raises(ValueError, match=word):
            rowdex.DistributedSampler(dataset, 1, 0, batch_size=4, pack=buckets(**wrong))
    pack = buckets()
    for options, word in (({"tail": "even"}, "even"), ({"order": "global,contiguous"}, "contiguous"),
                          ({"batch_size": 2**20, "num_replicas": 2, "rank": 0}, "1048576")):  # fmt: skip
        options = {"batch_size": 4, "num_replicas": 1, "rank": 0} | options
        with pytest.raises(rowdex.Error, match=word):
            rowdex.DistributedSampler(dataset, pack=pack, **options).steps  # noqa: B018
    with pytest.raises(rowdex.Error, match="words"):
        rowdex.Loader(dataset, batch_size=4, pack=rowdex.Pack("words", algorithm="buckets"))
    state = rowdex.DistributedSampler(dataset, 1, 0, batch_size=4, pack=pack).state_after(0, 3)
    with pytest.raises(rowdex.errors.StateError, match="buckets"):
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=4).load_state_dict(state)
    with pytest.raises(rowdex.errors.StateError, match="fingerprint"):
        rowdex.DistributedSampler(dataset, 1, 0, batch_size=4, pack=buckets(block=7)).load_state_dict(state)
    dataset.close()
