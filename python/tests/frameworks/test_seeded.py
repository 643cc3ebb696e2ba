"""Random numbers of rows under PyTorch, torchvision, albumentations, JAX and Lightning."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rowdex
from rowdex.order import Weighted
from rowdex.transforms import random_resized_crop, seeded

from ..conftest import ROWS
from ..test_random_numbers import RANKS, crop, epoch_of, key_of, loader_of, philox, rows_of
from .need import need

torch = need("torch", "torchvision")
v2 = need("torchvision.transforms.v2")
import rowdex.torch  # noqa: E402


def cropped(row: Any, rng: Any) -> Any:
    return {"row": row["id"], "x": crop(row["x"], rng)}


class Steps:
    """A ``DataLoader`` with the methods of a loader that ``epoch_of`` calls."""

    def __init__(self, index: Any, workers: int, **sampling: Any) -> None:
        dataset = rowdex.torch.Dataset(index, ["id", "x"], transform=cropped)
        self.batches = rowdex.torch.BatchSampler(dataset, 32, seed=3, **sampling)
        self.loader = torch.utils.data.DataLoader(dataset, batch_sampler=self.batches, num_workers=workers)
        self.set_epoch, self.load_state_dict = self.batches.set_epoch, self.batches.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        sampler = self.batches.sampler
        epoch, first = sampler.epoch, sampler.steps - sampler.steps_left
        for step, batch in enumerate(self.loader, first):
            self.state = sampler.state_after(epoch, step)
            yield {"row": batch["row"], "x": batch["x"].numpy()}

    def state_dict(self) -> Any:
        return self.state


@pytest.mark.parametrize("order", ["global", "weighted"])
def test_worker_processes_draw_what_threads_draw(dataset: Any, index: str, order: Any) -> None:
    order = "global" if order == "global" else Weighted([1.0, 2.0] * 501 + [0.0])
    found = {epoch_of(lambda **of: loader_of(dataset, decode={"x": crop}, order=order, **of), [1])}
    for workers, ranks in [(0, ranks) for ranks in RANKS] + [(2, RANKS[-1])]:
        found.add(epoch_of(lambda **of: Steps(index, workers, order=order, **of), ranks))
    assert len(found) == 1


def test_an_iterable_dataset_draws_the_same(dataset: Any, index: str) -> None:
    of_one = {"num_replicas": 1, "rank": 0}
    rows = rowdex.torch.Dataset(index, ["id", "x"], transform=cropped)
    iterable = rowdex.torch.IterableDataset(rows, 32, seed=3, **of_one)
    batches = torch.utils.data.DataLoader(iterable, batch_size=None, num_workers=2)
    served = [(int(row), x.numpy().tobytes()) for batch in batches for row, x in zip(batch["row"], batch["x"])]
    assert served == list(rows_of(loader_of(dataset, decode={"x": crop}, **of_one), None))
    for wrong in (lambda: rows[3], lambda: rows.__getitems__([3, 4])):
        with pytest.raises(TypeError, match="a row id says no epoch"):
            wrong()
    with pytest.raises(rowdex.errors.TransformError, match="row group 0, row 3: transform failed for row id 3: Zero"):
        rowdex.torch.Dataset(index, ["id"], transform=lambda row: 1 // 0)[3]


def image(value: Any) -> Any:
    return (torch.arange(3 * 20 * 24).view(3, 20, 24) * 7 % 256 + int(value)).to(torch.uint8)


class Pixels:
    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __call__(self, value: Any) -> Any:
        return self.transform(image(value))


TRANSFORMS = {
    "crop": v2.Compose([v2.RandomResizedCrop(12), v2.RandomHorizontalFlip()]), "rand": v2.RandAugment(),
    "jitter": v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ToDtype(torch.float32), v2.GaussianNoise()]),
    "mix": v2.AugMix(), "erase": v2.RandomErasing(1.0), "order": v2.RandomOrder([v2.RandomRotation(20), v2.RandomCrop(8)]),
    "beta": lambda pixels: torch.empty(5, 1).uniform_() + torch.rand(1) + torch.distributions.Beta(2.0, 1.0).sample(),
    "init": lambda pixels: torch.nn.init.uniform_(torch.ones(2, 2)) + torch.rand_like(torch.ones(2)),
}  # fmt: skip


def drawn(dataset: Any, **options: Any) -> list[tuple[int, bytes]]:
    loader = loader_of(dataset, batch_size=16, **options)
    loader.set_epoch(1)
    return list(rows_of(iter(loader), 6))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_torchvision_draws_as_after_manual_seed(dataset: Any, name: str) -> None:
    transform, before = Pixels(TRANSFORMS[name]), torch.get_rng_state()
    found = [drawn(dataset, decode={"x": seeded(transform)}, threads=threads) for threads in (0, 2, 8)]
    assert found[0] == found[1] == found[2] and torch.equal(before, torch.get_rng_state())
    for row, pixels in found[0]:
        torch.manual_seed(philox((1, 0, row, 1), (key_of(3), 1))[0])
        assert transform(row / 2).numpy().tobytes() == pixels
    # Without it, threads take what comes from one stream.
    assert drawn(dataset, decode={"x": transform}, threads=0) != found[0]


def test_albumentations_draws_the_same_in_threads(dataset: Any) -> None:
    album = need("albumentations")
    parts = [album.RandomResizedCrop((12, 12)), album.HorizontalFlip(), album.GaussNoise(p=1)]
    for transform in (album.Compose(parts), album.ColorJitter(p=1)):
        function = seeded(transform, call=lambda f, v: f(image=image(v).permute(1, 2, 0).numpy())["image"])
        found = [drawn(dataset, decode={"x": function}, threads=threads) for threads in (0, 1, 8)]
        assert found[0] == found[1] == found[2] and len({pixels for _, pixels in found[0]}) > 90


@pytest.mark.parametrize(
    "draw",
    [
        lambda value: torch.nn.functional.dropout(torch.ones(9), 0.5),
        lambda value: torch.nn.Dropout()(torch.ones(9)),
        lambda value: torch.nn.functional.gumbel_softmax(torch.ones(9)),
    ],
)
def test_draws_that_take_no_generator_are_refused(dataset: Any, draw: Any) -> None:
    with pytest.raises(rowdex.errors.TransformError, match="cannot be given a generator here"):
        drawn(dataset, decode={"x": seeded(draw)})


def test_seeded_is_pickled_and_leaves_rng_to_its_function(dataset: Any) -> None:
    function = seeded(Pixels(v2.RandomCrop(8)))
    copied = pickle.loads(pickle.dumps(function))
    assert drawn(dataset, decode={"x": function}) == drawn(dataset, decode={"x": copied})
    assert seeded(crop) is crop and seeded(torch.relu) is not torch.relu
    with pytest.raises(TypeError, match="give it to decode="):
        function(3)


@pytest.mark.parametrize("size", [(64, 48), (30, 90), (400, 10), (10, 400)])
def test_random_resized_crop_has_the_law_of_torchvision(size: tuple[int, int]) -> None:
    count, rng, transform = 3000, np.random.default_rng(1), v2.RandomResizedCrop(8)
    torch.manual_seed(1)
    own = np.array([random_resized_crop(size, rng) for _ in range(count)])
    pixels = torch.zeros(1, size[1], size[0])
    told = [transform.make_params([pixels]) for _ in range(count)]
    others = np.array([(p["left"], p["top"], p["left"] + p["width"], p["top"] + p["height"]) for p in told])
    for ours, theirs in [*zip(own.T, others.T), (own[:, 2] - own[:, 0], others[:, 2] - others[:, 0])]:
        values = np.arange(max(size) + 1)
        shares = [np.searchsorted(np.sort(each), values, "right") / count for each in (ours, theirs)]
        # Kolmogorov and Smirnov, at one in a thousand.
        assert np.abs(shares[0] - shares[1]).max() < 1.95 * (2 / count) ** 0.5


@pytest.mark.parametrize("name", ["jax", "lightning"])
def test_every_loader_gives_functions_their_numbers(dataset: Any, name: str) -> None:
    def both(batch: Any, rngs: Any) -> Any:
        return {**batch, "drawn": np.array([rng.random(dtype="f4") for rng in rngs])}

    options = {"batch_size": 32, "seed": 3, "decode": {"x": crop}, "map": both}
    rows = dataset.select(["id", "x"])
    expected = next(iter(rowdex.Loader(rows, num_replicas=1, rank=0, output="numpy", **options)))
    need(name)
    module = __import__(f"rowdex.{name}").__dict__[name]
    loader = module.Loader(rows, **options) if name == "jax" else module.DataModule(rows, **options).train_dataloader()
    found = next(iter(loader))
    for key in ("id", "x", "drawn"):
        assert np.allclose(np.asarray(found[key]), expected[key]), key
    assert ROWS == len(rows)
