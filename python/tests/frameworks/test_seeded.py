"""Random numbers of rows under PyTorch, torchvision, albumentations, JAX and Lightning."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import rowdex
from rowdex.order import Weighted
from rowdex.transforms import random_resized_crop, seeded

from ..test_random_numbers import KEY, RANKS, crop, epoch_of, loader_of, mix, philox, rows_of
from .need import need

torch = need("torch", "torchvision")
v2 = need("torchvision.transforms.v2")


def cropped(row: Any, rng: Any) -> Any:
    return {"row": row["id"], "x": crop(row["x"], rng)}


class Steps:
    """A ``DataLoader`` with the methods of a loader that ``epoch_of`` calls."""

    def __init__(self, index: Any, workers: int, **sampling: Any) -> None:
        dataset = need("rowdex.torch").Dataset(index, ["id", "x"], transform=cropped)
        self.batches = need("rowdex.torch").BatchSampler(dataset, 32, seed=3, **sampling)
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


@pytest.mark.parametrize("order", ["global", Weighted([1.0, 2.0] * 501 + [0.0])])
def test_worker_processes_draw_what_threads_draw(dataset: Any, index: str, order: Any) -> None:
    found = {epoch_of(lambda **of: loader_of(dataset, decode={"x": crop}, order=order, **of), [1])}
    for workers, ranks in itertools.product((0, 2), RANKS):
        found.add(epoch_of(lambda **of: Steps(index, workers, order=order, **of), ranks))
    assert len(found) == 1


def test_an_iterable_dataset_draws_the_same(dataset: Any, index: str) -> None:
    rows = need("rowdex.torch").Dataset(index, ["id", "x"], transform=cropped)
    iterable = need("rowdex.torch").IterableDataset(rows, 32, seed=3, num_replicas=1, rank=0)
    batches = torch.utils.data.DataLoader(iterable, batch_size=None, num_workers=2)
    served = [(int(row), x.numpy().tobytes()) for batch in batches for row, x in zip(batch["row"], batch["x"])]
    assert served == list(rows_of(loader_of(dataset, decode={"x": crop}), None))
    for wrong in (lambda: rows[3], lambda: rows.__getitems__([3, 4])):
        with pytest.raises(TypeError, match="a row id says no epoch"):
            wrong()
    with pytest.raises(rowdex.errors.TransformError, match="row group 0, row 3: transform failed for row id 3: Zero"):
        need("rowdex.torch").Dataset(index, ["id"], transform=lambda row: 1 // 0)[3]


def cut(function: Any, value: Any) -> Any:
    """Calls a function of a picture, which depends on the value."""
    return function((torch.arange(3 * 20 * 24).view(3, 20, 24) * 7 % 256 + int(value)).to(torch.uint8))


TRANSFORMS = {
    "crop": v2.Compose([v2.RandomResizedCrop(12), v2.RandomHorizontalFlip()]), "rand": v2.RandAugment(),
    "jitter": v2.Compose([v2.ColorJitter(0.4, 0.4, 0.4, 0.1), v2.ToDtype(torch.float32), v2.GaussianNoise()]),
    "mix": v2.AugMix(), "order": v2.RandomOrder([v2.RandomRotation(20), v2.RandomErasing(1.0), v2.RandomCrop(8)]),
    "beta": lambda pixels: torch.empty(5, 1).uniform_() + torch.rand(1) + torch.distributions.Beta(2.0, 1.0).sample(),
    "init": lambda pixels: torch.nn.init.uniform_(torch.ones(2, 2)) + torch.rand_like(torch.ones(2)),
}  # fmt: skip


def drawn(dataset: Any, function: Any, threads: int = 0) -> list[tuple[int, bytes]]:
    loader = loader_of(dataset, batch_size=16, decode={"x": function}, threads=threads)
    loader.set_epoch(1)
    return list(rows_of(iter(loader), 6))


@pytest.mark.parametrize("name", TRANSFORMS)
def test_torchvision_draws_as_after_manual_seed(dataset: Any, name: str) -> None:
    function, before = seeded(TRANSFORMS[name], call=cut), torch.get_rng_state()
    found = [drawn(dataset, function, threads) for threads in (0, 2, 8)]
    assert found[0] == found[1] == found[2] and torch.equal(before, torch.get_rng_state())
    for row, pixels in found[0]:
        torch.manual_seed(philox((1, 0, row, 1), (KEY, 1))[0])
        assert cut(TRANSFORMS[name], row / 2).numpy().tobytes() == pixels
    # Without it, threads take what comes from one stream.
    assert drawn(dataset, lambda value: cut(TRANSFORMS[name], value)) != found[0]


def test_albumentations_draws_the_same_in_threads(dataset: Any) -> None:
    album = need("albumentations")
    for transform in (album.Compose([album.RandomCrop(9, 9), album.GaussNoise(p=1)]), album.ColorJitter(p=1)):
        function = seeded(transform, call=lambda f, v: cut(lambda x: f(image=x.numpy().transpose(1, 2, 0))["image"], v))
        found = [drawn(dataset, function, threads) for threads in (0, 1, 8)]
        assert found[0] == found[1] == found[2] and len({pixels for _, pixels in found[0]}) > 90


def test_seeded_refuses_what_it_cannot_seed(dataset: Any) -> None:
    functional = torch.nn.functional
    for draw in (functional.dropout, torch.nn.Dropout(), functional.gumbel_softmax, torch.rrelu):
        function = seeded(draw, call=lambda function, value: function(torch.ones(9)))
        with pytest.raises(rowdex.errors.TransformError, match="cannot be given a generator here"):
            drawn(dataset, function)
    with pytest.raises(TypeError, match="give it to decode="):
        function(3)
    function = seeded(v2.RandomCrop(8), call=cut)
    assert drawn(dataset, function) == drawn(dataset, pickle.loads(pickle.dumps(function))) and seeded(crop) is crop


@pytest.mark.parametrize("size", [(64, 48), (30, 90), (400, 10), (10, 400)])
def test_random_resized_crop_has_the_law_of_torchvision(size: tuple[int, int]) -> None:
    count, rng, transform = 3000, np.random.default_rng(1), v2.RandomResizedCrop(8)
    torch.manual_seed(1)
    told = [transform.make_params([torch.zeros(1, size[1], size[0])]) for _ in range(count)]
    others = np.array([(p["left"], p["top"], p["left"] + p["width"], p["top"] + p["height"]) for p in told])
    own = np.array([random_resized_crop(size, rng) for _ in range(count)])
    for pair in [*zip(own.T, others.T), (own[:, 2] - own[:, 0], others[:, 2] - others[:, 0])]:
        shares = [np.searchsorted(np.sort(each), np.arange(max(size) + 1), "right") / count for each in pair]
        # Kolmogorov and Smirnov, at one in a thousand.
        assert np.abs(shares[0] - shares[1]).max() < 1.95 * (2 / count) ** 0.5


def test_jax_and_lightning_give_functions_their_numbers(dataset: Any) -> None:
    need("jax", "lightning")
    options = {"batch_size": 32, "seed": 3, "decode": {"x": crop}, "map": mix}
    rows, expected = dataset.select(["id", "x"]), next(iter(loader_of(dataset, **options)))["x"]
    module = need("rowdex.lightning").DataModule(rows, output="numpy", **options)
    for loader in (need("rowdex.jax").Loader(rows, **options), module.train_dataloader()):
        assert np.allclose(next(iter(loader))["x"], expected)
