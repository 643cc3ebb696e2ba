"""Datasets for Lightning.

A :class:`rowdex.Loader` works as ``train_dataloader`` as it is, if it is made when the process group is there.
:class:`DataModule` makes it then, with those of validation, test and prediction.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch.utils.data

try:
    from lightning.pytorch import LightningDataModule
except ModuleNotFoundError:
    from pytorch_lightning import LightningDataModule

from . import torch as _torch
from .dataset import Dataset
from .loader import Loader
from .loading.share import Share
from .sampler import DistributedSampler
from .stages import Stages

Source = Dataset | Callable[[], Any]


class DataModule(LightningDataModule):
    """The loaders of a ``Trainer``, which are made when it asks for them: then rank and world size are known.

    Training is shuffled, equal on all ranks, and resumes from a checkpoint with the very next batch, also with another
    number of ranks. Validation, test and prediction serve every row once and in order: ranks differ by a row, and take
    the same number of steps. In the last one a rank may have no row, so a model must accept an empty batch.
    ``Trainer(use_distributed_sampler=...)`` makes no difference. With a ``ModelParallelStrategy``, the ranks that hold
    parts of one model get the same rows.

    Args:
        train, val, test, predict: A dataset, or a function without arguments that returns what Lightning takes, such as
            a :class:`rowdex.Loader` with its own options. It is called in every process, when its rank is known.
        batch_size: Rows per step and rank.
        seed: Of the shuffle. The same on all ranks.
        evaluation_batch_size: Rows per step and rank where nothing is trained. Default: ``batch_size``.
        collate: A function of the list of samples that a batch is made of, as ``collate_fn`` of a ``DataLoader``. The
            datasets are then :class:`rowdex.torch.Dataset`. For functions of columns see :class:`rowdex.Loader`, whose
            ``collate`` is a dict of these.
        workers: How many processes make batches of samples: for functions that are pure Python. A state may come from
            another number of them.
        options: As :class:`rowdex.Loader` has them: ``memory``, ``threads``, ``pack`` and the like for all loaders,
            and ``order``, ``tail`` and the like for training.
    """

    def __init__(
        self,
        train: Source | None = None,
        val: Source | None = None,
        test: Source | None = None,
        predict: Source | None = None,
        *,
        batch_size: int,
        seed: int = 0,
        evaluation_batch_size: int | None = None,
        collate: Callable[[Any], Any] | dict[str, Any] | None = None,
        workers: int = 0,
        **options: Any,
    ) -> None:
        super().__init__()
        self._sampling = {name: options.pop(name) for name in _SAMPLING & set(options)}
        self._batch_size, self._seed, self._options = batch_size, seed, options
        self._packs = {name: self._sampling[name] for name in {"pack"} & set(self._sampling)}
        self._packed: Any = None
        # The loader of training, and the state of one that it is to go on from.
        self._loader: Any = None
        self._state: dict[str, str] | None = None
        self._samples: dict[str, Any] | None = None
        if workers or callable(collate):
            self._samples = _of_samples(collate, workers, options)
            if self._packs:
                raise ValueError(
                    "pack with workers or a collate function: these are for samples, and a rowdex.Loader makes packs: "
                    "leave them out"
                )
        elif collate is not None:
            options["collate"] = collate
        self._evaluation_batch_size = batch_size if evaluation_batch_size is None else evaluation_batch_size
        # Lightning asks for those alone that a module has.
        if train is not None:
            self.train_dataloader = functools.partial(self._training, train)
        for stage, source in (("val", val), ("test", test), ("predict", predict)):
            if source is not None:
                setattr(self, f"{stage}_dataloader", functools.partial(self._evaluating, stage, source))

    def _training(self, source: Source) -> Any:
        sampling = {"batch_size": self._batch_size, "seed": self._seed, **self._sampling, **self._ranks()}
        if not isinstance(source, Dataset):
            loader = source()
        elif self._samples is not None:
            loader = _Samples(self, source, self._samples, sampling)
        elif self._packed is not None:
            # Lightning asks again before each epoch, and goes on with the same loader.
            return self._packed
        else:
            loader = self._kind(_Training)(source, **sampling, **self._options_of("train"))
            if isinstance(loader, (_Training, _SameBatches)):
                loader._module = self
            if isinstance(loader, _Training) and self._packs:
                self._ask_again(loader)
        if isinstance(loader, (Loader, _Samples)):
            self._loader = loader
            self._go_on(loader)
        return loader

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: Lightning has it in its checkpoints."""
        return {} if self._loader is None else {"train": self._loader.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes from a checkpoint when Lightning asks for the loader of training."""
        if self.trainer is None or self.trainer.state.fn == "fit":
            self._state = state_dict.get("train")

    def _ask_again(self, loader: Loader) -> None:
        """Has Lightning ask for the loader before each epoch: it ends an epoch after the number of steps that this
        loader has, and epochs of packs differ by a few.
        """
        self._packed = loader
        if self.trainer is not None:
            self.trainer.reload_dataloaders_every_n_epochs = 1

    def total_steps(self, epochs: int) -> int:
        """How many batches training has in so many epochs, exactly, for schedules: in ``configure_optimizers()`` or
        later. ``trainer.estimated_stepping_batches`` assumes that all epochs of packs have the same number as the first
        one.
        """
        if self.trainer is None:
            raise RuntimeError("no Trainer has this DataModule yet: call it in configure_optimizers()")
        if self.trainer.train_dataloader is None:
            self.trainer.fit_loop.setup_data()
        loader = self.trainer.train_dataloader
        if not isinstance(loader, Loader):
            raise TypeError(f"training has a {type(loader).__name__}, and a rowdex.Loader counts the steps of epochs")
        return loader.sampler.total_steps(epochs)

    def teardown(self, stage: str) -> None:
        if stage == "fit":
            self._packed = None

    def _options_of(self, stage: str) -> dict[str, Any]:
        """Each of the loaders that the ranks of a machine share has its own name."""
        share = self._options.get("share")
        return {**self._options, "share": share.named(stage)} if isinstance(share, Share) else self._options

    def _evaluating(self, stage: str, source: Source) -> Any:
        if not isinstance(source, Dataset):
            return source()
        sampling: dict[str, Any] = {"batch_size": self._evaluation_batch_size, "shuffle": False}
        # Which ranks get the same rows is the same at every stage.
        sampling |= self._ranks()
        if self._packs:
            if getattr(self._packs["pack"], "_is_of_rows", False):
                sampling["tail"] = "uneven"
            # Every evaluation is of the same packs. Those of tokens are as many on all ranks.
            return _SameBatches(source, **sampling, **self._packs, **self._options_of(stage))
        sampling["tail"] = "uneven"
        if self._samples is not None:
            return _Samples(self, source, self._samples, sampling)
        return self._kind(Loader)(source, **sampling, **self._options_of(stage))

    def _ranks(self) -> dict[str, Any]:
        """Which ranks get the same rows: as it was given, or as a strategy says whose ranks hold parts of a model."""
        given = {name: self._sampling[name] for name in _RANKS & set(self._sampling)}
        told = getattr(getattr(self.trainer, "strategy", None), "distributed_sampler_kwargs", None)
        if given or not told or not 0 < told["num_replicas"] < self.trainer.world_size:
            return given
        return {"num_replicas": told["num_replicas"], "rank": told["rank"]}

    def _kind(self, usual: type[Loader]) -> type[Loader]:
        """What loaders are to be: with ``overfit_batches`` those that serve the same batches in every epoch."""
        return _SameBatches if getattr(self.trainer, "overfit_batches", 0) else usual

    def _go_on(self, loader: Loader | _Samples) -> None:
        """Resumes from the checkpoint that the trainer has just read, if there is one.

        Lightning loads the state of a loader only within an epoch that it counts as begun. It counts batches, and ends
        an epoch when it has counted ``len(loader)`` of them: with another number of ranks it gets how many are over.
        """
        state, self._state = self._state, None
        fit = getattr(self.trainer, "fit_loop", None)
        if fit is None:
            return
        if state is None:
            if fit.epoch_progress.current.processed > 0:
                loader.set_epoch(fit.epoch_progress.current.processed)
            return
        loader.load_state_dict(state)
        _end_epoch(self, loader)
        progress = fit.epoch_loop.batch_progress.current
        if fit.restarting and progress.ready > 0:
            # Not all of the counters have counted the last batch, if it was being finished when the state was saved.
            more = len(loader) - loader.steps_left - _steps_done(progress)
            for name in ("ready", "started", "processed", "completed"):
                setattr(progress, name, getattr(progress, name) + more)


def _steps_done(current: Any) -> int:
    """After how many steps Lightning resumes.

    A checkpoint that is saved as a step ends has not counted it as completed. One that is saved within a step has not
    counted it as processed, and Lightning takes that step again.
    """
    return int(current.processed if current.processed == current.ready else current.completed)


def _of_samples(collate: Any, workers: int, options: dict[str, Any]) -> dict[str, Any]:
    """What a ``DataLoader`` of samples is made with."""
    if collate is not None and not callable(collate):
        raise TypeError("collate={column: function} is for columns: with workers, give a function of samples")
    making = {name: options.pop(name) for name in {"pin_memory"} & set(options)}
    if options:
        raise TypeError(
            f"{', '.join(sorted(options))}: with workers, or a collate function of samples, give these to the "
            "rowdex.torch.Dataset if it has them, and leave them out otherwise"
        )
    return {"collate_fn": collate, "num_workers": workers, "persistent_workers": workers > 0, **making}


class _Samples:
    """A ``DataLoader`` of one rank's batches of samples, with a state: after the step that was handed out last, however
    far its workers have read.

    It is no instance of ``DataLoader``, so Lightning shards nothing again.
    """

    def __init__(
        self, module: DataModule, dataset: Dataset, making: dict[str, Any], sampling: dict[str, Any]
    ) -> None:
        if not isinstance(dataset, _torch.Dataset):
            raise TypeError(
                "collate and workers are for samples: give the DataModule a rowdex.torch.Dataset in the place of the "
                "rowdex.Dataset"
            )
        self._module = module
        self._batches = _torch.BatchSampler(dataset, **sampling)
        self._loader: Any = torch.utils.data.DataLoader(dataset, **{"batch_sampler": self._batches, **making})
        self._same = bool(getattr(module.trainer, "overfit_batches", 0))
        self._goes_on = False
        # After the step that was handed out last, and before it.
        self._after: dict[str, str] | None = None
        self._before: dict[str, str] | None = None

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def epoch(self) -> int:
        """The epoch that comes."""
        return self._batches.sampler.epoch

    @property
    def steps_left(self) -> int:
        """How many batches are left of it."""
        return self._batches.sampler.steps_left

    def set_epoch(self, epoch: int) -> None:
        self._batches.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        sampler = self._batches.sampler
        if self._same:
            _begin_again(sampler, self._goes_on)
            self._goes_on = False
        epoch, first = sampler.epoch, len(self) - sampler.steps_left
        self._after = sampler._state(epoch, first)
        for step, batch in enumerate(self._loader, first):
            self._before, self._after = self._after, sampler._state(epoch, step + 1)
            yield batch

    def state_dict(self) -> dict[str, str]:
        if self._after is None:
            return self._batches.state_dict()
        return self._before if self._before is not None and _within_step(self._module) else self._after

    def load_state_dict(self, state_dict: dict[str, str]) -> None:
        self._batches.load_state_dict(state_dict)
        self._after = self._before = None
        self._goes_on = True
        _end_epoch(self._module, self)


def _end_epoch(module: DataModule, rows: Any) -> None:
    """Goes to the next epoch if Lightning has ended the one of the state before its rows did, as it does with
    ``limit_train_batches``.
    """
    if module.trainer is None:
        return
    batches = module.trainer.fit_loop.epoch_loop.batch_progress
    is_over = batches.is_last_batch and _steps_done(batches.current) == batches.current.ready
    if is_over and rows.steps_left < len(rows):
        rows.set_epoch(rows.epoch + 1)


def _begin_again(rows: Any, goes_on: bool) -> None:
    """Has epoch 0 come again. One that was resumed continues where it was, unless another epoch came in between."""
    if not goes_on:
        rows.set_epoch(1)
    rows.set_epoch(0)


def _within_step(module: DataModule) -> bool:
    """Whether the step of the batch that was handed out last is under way: Lightning takes it again."""
    progress = module.trainer.fit_loop.epoch_loop.batch_progress.current if module.trainer is not None else None
    return progress is not None and progress.ready > progress.processed


class _Loader(Loader):
    """A loader whose epochs follow its state, and not the count of a framework that began later."""

    @property
    def sampler(self) -> DistributedSampler:
        """A copy of its sampler: changing it does not change the loader."""
        return self._sampler_copy()


class _Training(_Loader):
    """A loader whose state is that before a step which Lightning takes again, because it was under way."""

    _module: DataModule
    _before: dict[str, str] | None = None

    def _epoch(self, loader: Any, epoch: int, step: int) -> Iterator[Any]:
        before = super().state_dict()
        for batch in super()._epoch(loader, epoch, step):
            self._before, before = before, super().state_dict()
            yield batch

    def state_dict(self) -> dict[str, str]:
        return self._before if self._before is not None and _within_step(self._module) else super().state_dict()

    def load_state_dict(self, state_dict: dict[str, str], *, stages: Stages | None = None) -> None:
        super().load_state_dict(state_dict, stages=stages)
        _end_epoch(self._module, self)


class _SameBatches(Loader):
    """A loader of which every epoch is the first one, and that says nothing of a sampler: where batches are to be
    overfitted, Lightning replaces each sampler that is not PyTorch's ``SequentialSampler``.
    """

    _module: DataModule | None = None
    _goes_on = False

    def _begin(self) -> Any:
        self._loaded_epoch = None
        _begin_again(self, self._goes_on)
        self._goes_on = False
        return super()._begin()

    def load_state_dict(self, state_dict: dict[str, str], *, stages: Stages | None = None) -> None:
        super().load_state_dict(state_dict, stages=stages)
        self._goes_on = True
        if self._module is not None:
            _end_epoch(self._module, self)

    @property
    def sampler(self) -> DistributedSampler:
        """None is visible."""
        raise AttributeError("sampler")


class FabricLoader(_Loader, torch.utils.data.DataLoader):  # type: ignore[misc,type-arg]
    """A :class:`rowdex.Loader` for ``fabric.setup_dataloaders()``, which takes instances of PyTorch's ``DataLoader``.

    It is nothing else: it has no workers, and what a ``DataLoader`` is made of does not change it. Its place is in the
    checkpoint of ``fabric.save(path, {"loader": loader})``.
    """

    pin_memory = False
    drop_last = False
    worker_init_fn = None


_RANKS = {"num_replicas", "rank", "replication"}
_SAMPLING = {
    "shuffle", "drop_last", "order", "tail", "replication", "num_replicas", "rank", "sampler", "pack",
}  # fmt: skip

__all__ = ["DataModule", "FabricLoader"]
