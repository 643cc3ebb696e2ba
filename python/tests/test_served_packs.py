"""Served packs compared with a model of them that reads docs/sequences.md and pyarrow alone."""

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

from .conftest import REPOSITORY
from .packs_model import Packing, Piece, check_covered, check_flat, check_packs, packs_of, same, sequence

LONG = os.environ.get("ROWDEX_LONG") == "1"
CASES = 300 if LONG else 12


class Case:
    """Random rows, packed in a random way."""

    def __init__(self, seed: int, folder: pathlib.Path) -> None:
        draw = self.draw = random.Random(seed)
        rows = draw.choice([1, 2, 7, 40, 150, 400])
        self.lengths = [self._length() for _ in range(rows)]
        values = np.random.default_rng(seed).integers(1, 2**31, sum(self.lengths), np.int32)
        self.tokens = np.split(values, np.cumsum(self.lengths)[:-1])
        self.packing = self._packing()
        self.seed, self.shuffle = draw.randrange(1000), draw.random() < 0.8
        files = draw.randint(1, min(3, rows))
        for number in range(files):
            part = self.tokens[number * rows // files : (number + 1) * rows // files]
            ids = range(number * rows // files, (number + 1) * rows // files)
            lists = pa.array([row.tolist() for row in part], pa.list_(pa.int32()))
            table = pa.table({"tokens": lists, "id": pa.array(ids, pa.int64())})
            pq.write_table(table, folder / f"{number}.parquet", row_group_size=draw.randint(1, 200))
        rowdex.build(folder, folder / "train.rdx", lengths=["tokens"], progress=False)
        self.dataset = rowdex.Dataset(folder / "train.rdx")
        assert self.dataset.index.lengths("tokens").tolist() == self.lengths

    def _length(self) -> int:
        kind = self.draw.random()
        if kind < 0.08:
            return 0
        return self.draw.randint(1, 12) if kind < 0.6 else min(300, int(self.draw.lognormvariate(3, 1.2)) + 1)

    def _packing(self) -> Packing:
        draw = self.draw
        multiple, extra = draw.choice([1, 1, 1, 2, 8]), draw.choice([0, 0, 0, 1, 3])
        algorithm = draw.choice(["bfd", "bfd", "concat"])
        return Packing(
            capacity=draw.choice([16, 33, 64, 200, 500]), algorithm=algorithm, multiple=multiple,
            overflow="split" if algorithm == "concat" else draw.choice(["split", "split", "truncate", "drop"]),
            extra=extra, bos=draw.choice([None, 7]) if extra else None,
            eos=draw.choice([None, 9]) if extra > 1 else None, max_pieces=draw.choice([None, None, 1, 2, 5]),
            block=draw.choice([2**17, 20, 7]),
            empty=draw.choice(["skip", "keep"]),
        )  # fmt: skip

    def loaders(self, world: int, batch: int, **options: Any) -> list[Any]:
        given = {name: value for name, value in vars(self.packing).items() if value is not None}
        pack = rowdex.Pack("tokens", **given)
        return [
            rowdex.Loader(
                self.dataset, batch_size=batch, pack=pack, num_replicas=world, rank=rank, seed=self.seed,
                shuffle=self.shuffle, output="numpy", threads=rank % 2, **options,
            )
            for rank in range(world)
        ]  # fmt: skip

    def served(self, world: int, batch: int, **options: Any) -> list[list[dict[str, Any]]]:
        return [list(loader) for loader in self.loaders(world, batch, **options)]

    def sequence(self, ranks: list[list[dict[str, Any]]]) -> list[Piece]:
        return sequence(ranks, self.packing, self.tokens)

    def packs(self, batch: dict[str, Any]) -> list[list[Piece]]:
        return packs_of(batch, self.packing, self.tokens)

    def order(self) -> list[int]:
        """The rows of the first epoch in their order, of which the plain sampler knows."""
        return list(rowdex.DistributedSampler(self.dataset, 1, 0, seed=self.seed, shuffle=self.shuffle))

    def model(self) -> list[frozenset[Any]]:
        """The packs of the first epoch."""
        blocks = self.packing.blocks(self.order())
        return [pack for block in blocks for pack in self.packing.packs(block, self.lengths)]


@pytest.fixture(params=range(CASES))
def case(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Any:
    found = Case(request.param, tmp_path)
    yield found
    found.dataset.close()


def test_the_model_gives_the_packs_that_the_page_has_as_an_example() -> None:
    text = (REPOSITORY / "docs/sequences.md").read_text()
    example = re.search(r"An example: 14 rows.*?```text\n(.*?)```", text, re.DOTALL)
    assert example is not None
    written = [
        frozenset(tuple(map(int, re.split("[:+]", piece))) for piece in pack.split())
        for pack in example[1].replace("\n", " ").split("|")
    ]
    sampler = rowdex.DistributedSampler(range(14), 1, 0, seed=42)
    sampler.set_epoch(1)
    packing, lengths = Packing(16, block=6), [7 * row * row % 23 for row in range(14)]
    blocks = packing.blocks(list(sampler))
    assert [len(block) for block in blocks] == [6, 8]
    assert same(written, [pack for block in blocks for pack in packing.packs(block, lengths)])


def test_one_rank_has_just_the_packs_that_pieces_one_by_one_would_give(case: Case) -> None:
    expected = case.model()
    if not expected:
        # Nothing is left to serve.
        with pytest.raises(rowdex.Error, match="has a piece"):
            case.served(1, 1, tail="uneven")
        return
    (batches,) = case.served(1, 1, tail="uneven")
    assert len(batches) == len(expected)
    if case.packing.empty == "skip":
        assert same((frozenset(pack) for batch in batches for pack in case.packs(batch)), expected)
    check_covered(case.sequence([batches]), case.lengths, case.packing)
    for batch in batches:
        check_flat(batch, case.tokens, case.packing)


def can_be_even(case: Case, whole: list[Piece], world: int) -> bool:
    """Whether there are pieces enough for as many packs on each rank."""
    packs = len(case.model())
    return bool(packs) and -(-packs // world) * world <= len(whole)


def test_ranks_take_equal_steps_and_every_token_once(case: Case) -> None:
    world, batch = case.draw.randint(1, 9), case.draw.randint(1, 3)
    whole = case.sequence(case.served(1, 1, tail="uneven")) if case.model() else []
    if not can_be_even(case, whole, world):
        with pytest.raises(rowdex.Error, match="can not be opened|has a piece"):
            case.served(world, batch)
        return
    loaders = case.loaders(world, batch)
    steps = len(loaders[0])
    ranks = [list(loader) for loader in loaders]
    assert {len(batches) for batches in ranks} == {steps}
    # No piece moves: packs are opened between two of them.
    assert case.sequence(ranks) == whole
    for batches in ranks:
        check_packs(batches, case.packing, case.tokens)
        for found in batches:
            check_flat(found, case.tokens, case.packing)
            assert found["id"].tolist() == found["row_ids"].tolist()
            assert len(case.packs(found)) <= batch


def test_a_run_goes_on_with_any_number_of_ranks(case: Case) -> None:
    world, batch = case.draw.randint(1, 9), case.draw.randint(1, 3)
    whole = case.sequence(case.served(1, 1, tail="uneven")) if case.model() else []
    if not can_be_even(case, whole, world):
        return
    loaders = case.loaders(world, batch)
    steps = [iter(loader) for loader in loaders]
    # Once they were served, the loaders are at the next epoch, which may have other steps.
    most = len(loaders[0])
    taken = case.draw.randint(0, most)
    before = [[next(step) for _ in range(taken)] for step in steps]
    (state,) = {loader.state_dict()["state"] for loader in loaders}
    rest = [list(step) for step in steps]
    done = len(case.sequence(before))
    for other in range(1, 10) if LONG else sorted({1, world, case.draw.randint(1, 9)}):
        size = batch if other == world else case.draw.randint(1, 3)
        if not can_be_even(case, whole, other):
            continue
        resumed = case.loaders(other, size)
        try:
            for loader in resumed:
                loader.load_state_dict({"state": state})
        except rowdex.Error as refused:
            # Of what is left of this epoch, or of the next one, there are not as many packs for each rank.
            found = re.search("^([0-9]+) packs of ([0-9]+) pieces can not be opened", str(refused))
            assert found is not None, refused
            packs, pieces = map(int, found.groups())
            assert -(-packs // other) * other > pieces, refused
            assert taken == most or (other != world and pieces == len(whole) - done), refused
            continue
        if taken == most:
            assert {loader.epoch for loader in resumed} == {1}
            continue
        served = [list(loader) for loader in resumed]
        assert {len(batches) for batches in served} == {len(served[0])}
        assert case.sequence(served) == whole[done:], (world, batch, taken, other, size)
        for batches in served:
            check_packs(batches, case.packing, case.tokens)
        if other == world:
            assert [case.sequence([batches]) for batches in served] == [case.sequence([batches]) for batches in rest]
