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
from rowdex.order import Balanced, Contiguous, Explicit, IdSet, Resized, Subset, Weighted
from rowdex.transforms import random_resized_crop, seeded

from .conftest import ROWS

MASK = 2**64 - 1
# philox4x64 10 of Random123's kat_vectors: counter, key, words.
KNOWN = """
0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000
16554d9eca36314c db20fe9d672d0fdc d7e772cee186176b 7e68b68aec7ba23b
ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff ffffffffffffffff
87b092c3013fe90b 438c3c67be8d0224 9cc7d7c69cd777b6 a09caebf594f0ba0
243f6a8885a308d3 13198a2e03707344 a4093822299f31d0 082efa98ec4e6c89 452821e638d01377 be5466cf34e90c6c
a528f45403e61d95 38c72dbd566e9788 a5a1610e72fd18b5 57bd43b5e52b7fe6
"""


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x64-10, by the paper of 2011."""
    (a, b, c, d), (first, second) = counter, key
    for _ in range(10):
        left, right = a * 0xD2E7470EE14C6C93, c * 0xCA5A826395121157
        a, b, c, d = right >> 64 ^ b ^ first, right & MASK, left >> 64 ^ d ^ second, left & MASK
        first, second = first + 0x9E3779B97F4A7C15 & MASK, second + 0xBB67AE8584CAA73B & MASK
    return a, b, c, d


KEY = xxhash.xxh3_64_intdigest(b"rowdex augment1\0" + (3).to_bytes(8, "little"))


def test_philox_has_the_known_answers() -> None:
    numbers = [int(word, 16) for word in KNOWN.split()]
    for counter, key, words in [(at[:4], at[4:6], at[6:]) for at in (numbers[i : i + 10] for i in (0, 10, 20))]:
        # numpy counts before each block.
        before = (sum(word << 64 * place for place, word in enumerate(counter)) - 1) % 2**256
        bits = np.random.Philox(counter=before, key=key[1] << 64 | key[0])
        assert list(philox(counter, key)) == bits.random_raw(4).tolist() == words


def words(value: Any, rng: Any) -> Any:
    # Arrays of one dimension would become a Ragged.
    return rng.bit_generator.random_raw(4)[None]


def more(batch: Any, rngs: Any) -> Any:
    assert len(rngs) == len(batch["row"]) and rngs[-1] is rngs[len(rngs) - 1]
    batch.setdefault("drawn", []).append((np.stack([words(None, rng)[0] for rng in rngs[:]]), rngs.seeds))
    return batch


def loader_of(dataset: Any, **options: Any) -> rowdex.Loader:
    given = {"batch_size": 32, "seed": 3, "output": "numpy", "num_replicas": 1, "rank": 0, "row_ids": "row"}
    return rowdex.Loader(dataset.select(["id", "x"]), **{**given, **options})


@pytest.mark.parametrize("order", ["global", Explicit([5, 7, 5, 900, 7])])
def test_the_words_of_a_row_are_those_of_augment_v1(dataset: Any, order: Any) -> None:
    loader = loader_of(dataset, decode={"x": words, "id": words}, map=[more, more], order=order)
    loader.set_epoch(1)
    rows = {}
    for batch in loader:
        for place, row in enumerate(batch["row"].tolist()):
            at = (1, 0 if order == "global" else place, row, 1)
            # Both columns have the same numbers, so that a picture and its mask are cut alike.
            assert tuple(batch["x"][place][0]) == tuple(batch["id"][place][0]) == philox(at, (KEY, 0))
            for stream, (drawn, seeds) in zip((2, 4), batch["drawn"]):
                assert tuple(drawn[place]) == philox(at, (KEY, stream))
                assert seeds[place] == philox(at, (KEY, stream + 1))[0]
            rows[row] = int(batch["x"][place][0][0])
    assert order != "global" or (len(rows), rows[5]) == (ROWS, 2478240733981367190)
    alone = next(iter(loader_of(dataset, map=more, order=order)))
    at = (1, 0 if order == "global" else 3, int(alone["row"][3]), 0)
    assert tuple(alone["drawn"][0][0][3]) == philox(at, (KEY, 0))


def crop(value: Any, rng: Any) -> Any:
    return np.array([[*random_resized_crop((64, 48), rng), rng.random() < 0.5, value]])


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
ORDERS = {
    "global": "global", "weighted": Weighted([1.0, 3.0, 0.0] * (ROWS // 3) + [2.0], size=900),
    "balanced": Balanced([0] * 10 + [1] * (ROWS - 10)), "resized": Resized("global", 1500),
    "list": Explicit([*range(ROWS - 1), *range(50)]), "part": Subset("blocks(2)", IdSet(ROWS, range(0, ROWS, 2))),
}  # fmt: skip


@pytest.mark.parametrize("name", ORDERS)
def test_an_epoch_is_the_same_however_it_is_served(dataset: Any, name: str) -> None:
    def make(**options: Any) -> Any:
        return loader_of(dataset, decode={"x": crop}, map=mix, **{"order": ORDERS[name], **options})

    found = {epoch_of(lambda **of: make(threads=threads, **of), ranks) for threads in (0, 1, 8) for ranks in RANKS}
    found.add(epoch_of(lambda **of: make(batch_size=7, order=Contiguous(ORDERS[name], 4), **of), [1, 1, 2]))
    found.add(epoch_of(lambda **of: pickle.loads(pickle.dumps(make(**of))), [1]))
    found.add(epoch_of(lambda **of: make(share=rowdex.Share(ranks=1, name=name), **of), [1]))
    assert len(found) == 1


def test_without_rng_an_epoch_is_another_each_time(dataset: Any) -> None:
    decode, found = {"x": lambda value: np.array([[np.random.random(), value]])}, set()
    for ranks in RANKS:
        np.random.seed(0)
        found.add(epoch_of(lambda **of: loader_of(dataset, decode=decode, threads=0, **of), ranks))
    assert len(found) == len(RANKS)


def picky(value: Any, rng: Any) -> Any:
    return words(value // (2 * value % 5), rng)


def test_a_substitute_has_the_numbers_of_its_own_row(dataset: Any) -> None:
    loader = loader_of(dataset, decode={"x": picky}, map=more, on_error="substitute")
    served = [one for batch in loader for one in zip(batch["row"].tolist(), batch["x"], batch["drawn"][0][1])]
    assert len(loader.lost_rows) > 100 and all(row % 5 for row, _, _ in served)
    for row, own, seed in served:
        words = (philox((1, 0, row, 0), (KEY, stream)) for stream in (0, 3))
        assert (tuple(own[0]), seed) == (next(words), next(words)[0])


def test_what_cannot_have_random_numbers_is_refused(dataset: Any, folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for function, said in ((crop, "a function of a batch gets rngs"), (seeded(abs), "give it to decode=")):
        with pytest.raises(TypeError, match=said):
            loader_of(dataset, map=function)
    with pytest.raises(TypeError, match="a function of a value gets rng"):
        loader_of(dataset, decode={"x": mix})
    rowdex.build(folder, tmp_path / "packs.rdx", lengths=["tokens"])
    packed = rowdex.Dataset(tmp_path / "packs.rdx", columns=["tokens", "x"])
    options = {"pack": rowdex.Pack("tokens", capacity=16), "decode": {"x": crop}, "batch_size": 4, "output": "numpy"}
    assert len(next(iter(rowdex.Loader(packed, **options)))["x"])
    with pytest.raises(ValueError, match="may serve a row more than once"):
        rowdex.Loader(packed, order=Weighted([1.0] * ROWS), **options)
