"""Batches of packs, compared with rows that pyarrow reads and that are cut by hand."""

from __future__ import annotations

import pathlib
import pickle
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import rowdex

LENGTHS = [5, 0, 31, 7, 16, 2, 90, 11, 1, 16, 40, 3] * 20


def tokens(row: int) -> list[int]:
    return [row * 1000 + at for at in range(LENGTHS[row])]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("packs")
    table = pyarrow.table(
        {
            "tokens": pyarrow.array([tokens(row) for row in range(len(LENGTHS))], pyarrow.list_(pyarrow.int32())),
            "source": [f"row {row}" for row in range(len(LENGTHS))],
            "weight": np.arange(len(LENGTHS)) / 2,
        }
    )
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=30)
    rowdex.build([folder], folder / "rows.rdx", lengths=["tokens"])
    return folder / "rows.rdx"


@pytest.fixture
def dataset(index: pathlib.Path) -> rowdex.Dataset:
    return rowdex.Dataset(index)


def pieces(batch: dict[str, Any]) -> list[tuple[int, int, int]]:
    return list(zip(batch["row_ids"].tolist(), batch["offsets"].tolist(), batch["lengths"].tolist()))


@pytest.mark.parametrize("overflow", ["split", "truncate", "drop"])
@pytest.mark.parametrize("algorithm", ["bfd", "concat"])
def test_all_tokens_come_with_positions_segments_and_labels(
    dataset: rowdex.Dataset, overflow: Any, algorithm: Any
) -> None:
    pack = rowdex.Pack("tokens", capacity=32, overflow=overflow, algorithm=algorithm)
    served: dict[int, list[tuple[int, list[int]]]] = {}
    for rank in range(2):
        loader = rowdex.Loader(
            dataset, batch_size=2, pack=pack, output="numpy", seed=3, num_replicas=2, rank=rank, memory=4000
        )
        batches = list(loader)
        assert len(batches) == len(loader)
        for batch in batches:
            starts, packs = batch["cu_seqlens"], batch["pack_offsets"]
            assert starts.dtype == packs.dtype == np.int32 and len(packs) == 3
            assert packs[-1] == starts[-1] == len(batch["tokens"]) and (np.diff(packs) <= 32).all()
            assert batch["max_seqlen"] == np.diff(starts).max() and batch["tokens"].dtype == np.int32
            assert (np.diff(starts) == batch["lengths"]).all()
            assert batch["source"] == [f"row {row}" for row in batch["row_ids"]]
            assert (batch["weight"] == batch["row_ids"] / 2).all()
            for number, (row, offset, length) in enumerate(pieces(batch)):
                own = slice(starts[number], starts[number + 1])
                expected = tokens(row)[offset : offset + length]
                assert batch["tokens"][own].tolist() == expected
                assert batch["position_ids"][own].tolist() == list(range(length))
                whole = tokens(row)[:32] if overflow == "truncate" else tokens(row)
                follows = whole[offset + length : offset + length + 1]
                last = follows[0] if follows else -100
                assert batch["labels"][own].tolist() == [*expected[1:], last]
                pack_number = np.searchsorted(packs, starts[number], side="right") - 1
                first = np.searchsorted(starts, packs[pack_number])
                assert (batch["segment_ids"][own] == number - first + 1).all()
                served.setdefault(row, []).append((offset, expected))
    for row, length in enumerate(LENGTHS):
        kept = {"split": length, "truncate": min(length, 32), "drop": length if length <= 32 else 0}[overflow]
        joined = [token for _, part in sorted(served.get(row, [])) for token in part]
        assert joined == tokens(row)[:kept]


def test_rows_of_the_capacity_have_the_same_tokens_with_bos_eos_and_filling(dataset: rowdex.Dataset) -> None:
    torch = pytest.importorskip("torch")
    common: dict[str, Any] = {"capacity": 32, "extra": 2, "bos": 1, "eos": 2, "pad": 9, "multiple": 4}
    flat = rowdex.Loader(dataset, batch_size=3, pack=rowdex.Pack("tokens", **common), output="numpy")
    rows = rowdex.Loader(dataset, batch_size=3, pack=rowdex.Pack("tokens", layout="rows", **common), output="torch")
    for one, other in zip(flat, rows, strict=True):
        assert other["tokens"].shape == other["labels"].shape == other["segment_ids"].shape == (3, 32)
        assert "cu_seqlens" not in other and isinstance(other["tokens"], torch.Tensor)
        for number, (first, end) in enumerate(zip(one["pack_offsets"], one["pack_offsets"][1:])):
            for name, filling in [("tokens", 9), ("labels", -100), ("segment_ids", 0)]:
                row = other[name][number].numpy()
                assert (row[: end - first] == one[name][first:end]).all() and (row[end - first :] == filling).all()
        assert (one["cu_seqlens"] % 4 == 0).all()
        for start, (row, offset, length) in zip(one["cu_seqlens"], pieces(one)):
            begins, ends = offset == 0, one["tokens"][start + length - 1] == 2
            own = one["tokens"][start + begins : start + length - ends].tolist()
            assert own == tokens(row)[offset : offset + len(own)]
            assert begins == (one["tokens"][start] == 1) and ends == (offset + len(own) == LENGTHS[row])


def test_a_rank_without_packs_has_rows_of_the_capacity_and_none_of_them(dataset: rowdex.Dataset) -> None:
    pack = rowdex.Pack("tokens", capacity=32, layout="rows", pad=-1)
    shapes = set()
    for world in (2, 3):
        for rank in range(world):
            *_, last = rowdex.Loader(
                dataset, batch_size=1, pack=pack, tail="uneven", output="numpy", num_replicas=world, rank=rank
            )
            shapes |= {last[name].shape for name in ("tokens", "labels", "position_ids", "segment_ids")}
            assert (last["tokens"][last["segment_ids"] == 0] == -1).all()
    assert shapes == {(0, 32), (1, 32)}


def test_a_run_goes_on_with_other_ranks_and_in_another_process(dataset: rowdex.Dataset) -> None:
    pack = rowdex.Pack("tokens", capacity=32)
    loader = rowdex.Loader(dataset, batch_size=2, pack=pack, output="numpy", num_replicas=1, rank=0)
    batches = iter(loader)
    before = [piece for _ in range(4) for piece in pieces(next(batches))]
    after = [piece for batch in pickle.loads(pickle.dumps(loader)) for piece in pieces(batch)]
    state = loader.state_dict()
    assert [piece for batch in batches for piece in pieces(batch)] == after
    others = []
    for rank in range(3):
        other = rowdex.Loader(dataset, batch_size=1, pack=pack, output="numpy", num_replicas=3, rank=rank)
        other.load_state_dict(state)
        others += [piece for batch in other for piece in pieces(batch)]
    assert sorted(others) == sorted(after) and len({*before, *others}) == len(before) + len(others)


def test_what_packs_are_not_served_with_is_refused_by_name(dataset: rowdex.Dataset, index: pathlib.Path) -> None:
    pack = rowdex.Pack("tokens", capacity=32)
    with pytest.raises(rowdex.errors.ArgumentError, match="other lengths"):
        len(rowdex.Loader(dataset, batch_size=2, pack=pack, on_error="substitute"))
    for added in ({"row_ids": "labels"}, {"repeated": "lengths"}):
        with pytest.raises(ValueError, match=f"called '{next(iter(added.values()))}'"):
            rowdex.Loader(dataset, batch_size=2, pack=pack, output="numpy", **added)
    without = rowdex.Dataset(index, columns=["source"])
    with pytest.raises(rowdex.errors.ArgumentError, match="no tokens"):
        len(rowdex.Loader(without, batch_size=2, pack=pack))
    batch = next(iter(rowdex.Loader(dataset, batch_size=2, output="arrow")))
    with pytest.raises(rowdex.errors.ArgumentError, match="whole rows"):
        batch.sequences()


def test_arrow_batches_have_a_row_for_each_piece(dataset: rowdex.Dataset) -> None:
    pack = rowdex.Pack("tokens", capacity=32, labels=False)
    for batch in rowdex.Loader(dataset, batch_size=2, pack=pack, output="arrow"):
        made = batch.sequences(labels=False)
        assert "labels" not in made and batch.num_packs == 2
        lists = pyarrow.record_batch(batch).column("tokens")
        assert lists.flatten().to_numpy().tolist() == made["tokens"].tolist()
        assert batch.row_ids == made["row_ids"].tolist()
