"""Random numbers of rows, *augment v1*: the same wherever a row is served."""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import rowdex
import xxhash
from rowdex.order import Balanced, Explicit, Resized, Subset, Weighted
from rowdex.transforms import random_resized_crop, seeded

from .conftest import ROWS

MASK = 2**64 - 1
# philox4x64 10 of Random123's kat_vectors: counter, key, words.
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B)),
    ((MASK,) * 4, (MASK,) * 2, (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0)),
    (
        (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        (0x452821E638D01377, 0xBE5466CF34E90C6C),
        (0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6),
    ),
]  # fmt: skip
FROZEN = 2478240733981367190
"""The first word of row 5 in epoch 1 with seed 3."""


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x64-10, by the paper of 2011."""
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        left, right = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = right >> 64 ^ b ^ first, right & MASK, left >> 64 ^ d ^ second, left & MASK
        first, second = first + 0x9E3779B97F4A7C15 & MASK, second + 0xBB67AE8584CAA73B & MASK
    return a, b, c, d


def key_of(seed: int) -> int:
    return int(xxhash.xxh3_64_intdigest(b"rowdex augment1\0" + seed.to_bytes(8, "little")))


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN)
def test_philox_has_the_known_answers(counter: Any, key: Any, words: Any) -> None:
    assert philox(counter, key) == words
    # numpy counts before each block.
    before = (sum(word << 64 * place for place, word in enumerate(counter)) - 1) % 2**256
    bits = np.random.Philox(counter=before, key=sum(word << 64 * place for place, word in enumerate(key)))
    assert tuple(bits.random_raw(4).tolist()) == words


def words(value: Any, rng: Any) -> Any:
    # Arrays of one dimension become a Ragged.
    return rng.bit_generator.random_raw(4)[None]


def more(batch: Any, rngs: Any) -> Any:
    assert len(rngs) == len(batch["row"]) and rngs[0] is rngs[0] and rngs[-1] is rngs[len(rngs) - 1]
    batch.setdefault("drawn", []).append(np.stack([words(None, rng) for rng in rngs[:]]))
    batch.setdefault("seeds", []).append(rngs.seeds)
    return batch


def loader_of(dataset: Any, **options: Any) -> rowdex.Loader:
    given = {"batch_size": 32, "seed": 3, "output": "numpy", "num_replicas": 1, "rank": 0, "row_ids": "row"}
    return rowdex.Loader(dataset.select(["id", "x"]), **{**given, **options})


@pytest.mark.parametrize("order", ["global", Explicit([5, 7, 5, 900, 7])])
def test_the_words_of_a_row_are_those_of_augment_v1(dataset: Any, order: Any) -> None:
    loader = loader_of(dataset, decode={"x": words, "id": words}, map=[more, more], order=order)
    loader.set_epoch(1)
    position, key, found = 0, key_of(3), {}
    for batch in loader:
        for place, row in enumerate(batch["row"].tolist()):
            at = (1, 0 if order == "global" else position, row, 1)
            # Both columns have the same numbers, so that a picture and its mask are cut alike.
            assert tuple(batch["x"][place][0]) == tuple(batch["id"][place][0]) == philox(at, (key, 0))
            for number in range(2):
                assert tuple(batch["drawn"][number][place][0]) == philox(at, (key, 2 + 2 * number))
                assert batch["seeds"][number][place] == philox(at, (key, 3 + 2 * number))[0]
            found[row] = int(batch["x"][place][0][0])
            position += 1
    assert order != "global" or (len(found), found[5]) == (ROWS, FROZEN)


def crop(value: Any, rng: Any) -> Any:
    return np.array([[*random_resized_crop((64, 48), rng), rng.random() < 0.5, value]])


def from_everywhere(value: Any) -> Any:
    return np.array([[np.random.random(), value]])


def mix(batch: Any, rngs: Any) -> Any:
    batch["x"] = np.array([[*row, rng.normal()] for (row,), rng in zip(batch["x"], rngs)])
    return batch


def rows_of(loader: Any, steps: int | None) -> Iterator[tuple[int, bytes]]:
    for batch in itertools.islice(loader, steps):
        yield from ((row, values.tobytes()) for row, values in zip(batch["row"].tolist(), batch["x"]))


def epoch_of(make: Callable[..., Any], ranks: list[int]) -> str:
    """One hash of all rows of epoch 1, which these numbers of ranks serve in turn: two steps each, and the rest."""
    served: set[tuple[int, bytes]] = set()
    state = None
    for turn, world in enumerate(ranks, 1):
        loaders = [make(num_replicas=world, rank=rank) for rank in range(world)]
        for loader in loaders:
            loader.set_epoch(1) if state is None else loader.load_state_dict(state)
            served.update(rows_of(iter(loader), 2 if turn < len(ranks) else None))
        state = loaders[0].state_dict()
    return hashlib.sha256(repr(sorted(served)).encode()).hexdigest()


RANKS = [[1], [2], [3], [2, 3, 1, 2]]
PART = rowdex.order.IdSet(ROWS, range(0, ROWS, 2))
ORDERS = {
    "global": "global", "weighted": Weighted([1.0, 3.0, 0.0] * (ROWS // 3) + [2.0], size=900),
    "balanced": Balanced([0] * 10 + [1] * (ROWS - 10)), "resized": Resized("global", 2500),
    "list": Explicit([*range(ROWS - 1), *range(50)]), "part": Subset("blocks(2)", PART),
}  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_an_epoch_is_the_same_however_it_is_served(dataset: Any, order: str) -> None:
    def make(**options: Any) -> Any:
        return loader_of(dataset, decode={"x": crop}, map=mix, order=ORDERS[order], **options)

    found = {epoch_of(lambda **of: make(threads=threads, **of), ranks) for threads in (0, 1, 8) for ranks in RANKS}
    found.add(epoch_of(lambda **of: make(batch_size=7, **of), [1, 1, 2]))
    found.add(epoch_of(lambda **of: pickle.loads(pickle.dumps(make(**of))), [1]))
    found.add(epoch_of(lambda **of: make(share=rowdex.Share(ranks=1, name=order), **of), [1]))
    assert len(found) == 1


def test_without_rng_an_epoch_is_another_each_time(dataset: Any) -> None:
    def make(**options: Any) -> Any:
        return loader_of(dataset, decode={"x": from_everywhere}, threads=0, **options)

    found = set()
    for ranks in RANKS:
        np.random.seed(0)
        found.add(epoch_of(make, ranks))
    assert len(found) == len(RANKS)


def test_copies_of_a_row_differ_and_pads_do_not(dataset: Any) -> None:
    both = [dict(order=Explicit([4] * 10)), dict(order=Explicit([4] * 10), num_replicas=3, rank=2, tail="wrap")]
    copies, padded = (list(rows_of(loader_of(dataset, decode={"x": words}, **options), None)) for options in both)
    assert len(set(copies)) == 10 and set(padded) <= set(copies) and len(padded) == 4


def picky(value: Any, rng: Any) -> Any:
    if int(2 * value) % 5 == 0:
        raise ValueError("not this one")
    return words(value, rng)


def drawn(batch: Any, rngs: Any) -> Any:
    return {**batch, "drawn": rngs.seeds}


def test_a_substitute_has_the_numbers_of_its_own_row(dataset: Any) -> None:
    loader = loader_of(dataset, decode={"x": picky}, map=drawn, on_error="substitute")
    loader.set_epoch(1)
    served = [one for batch in loader for one in zip(batch["row"].tolist(), batch["x"], batch["drawn"])]
    assert len(loader.lost_rows) > 100 and all(row % 5 for row, _, _ in served)
    for row, own, seed in served:
        assert tuple(own[0]) == philox((1, 0, row, 1), (key_of(3), 0))
        assert seed == philox((1, 0, row, 1), (key_of(3), 3))[0]


def test_what_cannot_have_random_numbers_is_refused(dataset: Any, folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for options, said in [
        ({"map": crop}, "map has a parameter rng: a function of a batch gets rngs"),
        ({"decode": {"x": mix}}, "a function of a value gets rng"),
        ({"map": seeded(abs)}, "give it to decode="),
    ]:
        with pytest.raises(TypeError, match=said):
            loader_of(dataset, **options)
    rowdex.build(folder, tmp_path / "packs.rdx", lengths=["tokens"])
    packed = rowdex.Dataset(tmp_path / "packs.rdx", columns=["tokens", "x"])
    pack = {"pack": rowdex.Pack("tokens", capacity=16), "decode": {"x": crop}, "batch_size": 4, "output": "numpy"}
    with pytest.raises(ValueError, match="may serve a row more than once"):
        rowdex.Loader(packed, order=Weighted([1.0] * ROWS), **pack)
    assert len(next(iter(rowdex.Loader(packed, **pack)))["x"])
    # No signature, and one with a default.
    loader = loader_of(dataset, decode={"x": int, "id": lambda value, rng=None: rng is not None}, map=[dict])
    assert next(iter(loader))["id"].all()
