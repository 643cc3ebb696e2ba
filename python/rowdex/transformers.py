"""Datasets for the ``Trainer`` of Hugging Face, and for those of TRL.

::

    class Trainer(rowdex.transformers.TrainerMixin, transformers.Trainer):
        pass

    trainer = Trainer(model, arguments, train_dataset=rowdex.Dataset("train.rdx", columns=[...]))
"""

from __future__ import annotations

import json
import math
import os
from typing import Any

import torch.utils.data
from transformers import TrainerCallback, default_data_collator

from . import accelerate as _accelerate
from . import torch as _torch
from ._gathered import in_order
from .dataset import Dataset
from .order import Explicit
from .sampler import DistributedSampler

_FILE = "rowdex_state.json"


class TrainerMixin:
    """Has a ``Trainer`` read its datasets that are rowdex's with loaders of rowdex; it comes before the ``Trainer`` in
    the list of base classes.

    Training is shuffled, and equal on all ranks. ``train(resume_from_checkpoint=...)`` goes on with the very next
    batch, and reads none of those before it. The ``Trainer`` counts steps to find its place, so a run goes on with the
    same number of rows per step of all ranks together; another one is an error. Evaluation and prediction give every
    row once and in the order of the dataset.

    Batches are those of a :class:`rowdex.Loader`. With a ``data_collator``, a tokenizer, or ``dataloader_num_workers``
    the datasets must be :class:`rowdex.torch.Dataset`; then a ``DataLoader`` makes the batches of samples. Columns
    that the model does not take are not read, unless ``remove_unused_columns=False``.

    Args:
        rowdex_options: What :class:`rowdex.Loader` takes: ``memory``, ``threads``, ``map`` and the like; for training
            also ``order`` and ``tail``. With a ``DataLoader`` of samples only those of the sampler.
    """

    def __init__(self, *arguments: Any, rowdex_options: dict[str, Any] | None = None, **options: Any) -> None:
        self._rowdex_options = dict(rowdex_options or {})
        self._rowdex_saved: str | None = None
        self._rowdex_evaluations = 0
        kept = {}
        if any(kind.__module__.partition(".")[0] == "trl" for kind in type(self).__mro__):
            # TRL's trainers look at the first row of a datasets.Dataset, and take nothing else.
            for name in ("train_dataset", "eval_dataset"):
                if isinstance(options.get(name), Dataset):
                    kept[name] = options[name]
                    options[name] = _first_row(options[name])
        super().__init__(*arguments, **options)
        for name, dataset in kept.items():
            setattr(self, name, dataset)
        self.add_callback(_Place(self))  # type: ignore[attr-defined]

    def get_train_dataloader(self) -> Any:
        trainer: Any = self
        if not isinstance(trainer.train_dataset, Dataset):
            return super().get_train_dataloader()  # type: ignore[misc]
        args = trainer.args
        if getattr(args, "train_sampling_strategy", "random") not in ("random", "sequential"):
            raise ValueError(f"train_sampling_strategy={args.train_sampling_strategy!r}: rowdex's order is its own")
        sampling = {
            "batch_size": trainer._train_batch_size,
            "seed": args.seed if args.data_seed is None else args.data_seed,
            "shuffle": getattr(args, "train_sampling_strategy", "random") == "random",
            "drop_last_batch": args.dataloader_drop_last,
        }
        return self._rowdex_loader(trainer.train_dataset, sampling | self._rowdex_options, training=True)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        trainer: Any = self
        dataset = trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(dataset, str):
            dataset = trainer.eval_dataset[dataset]
        if not isinstance(dataset, Dataset):
            return super().get_eval_dataloader(eval_dataset)  # type: ignore[misc]
        return self.get_test_dataloader(dataset)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        if not isinstance(test_dataset, Dataset):
            return super().get_test_dataloader(test_dataset)  # type: ignore[misc]
        options = {name: value for name, value in self._rowdex_options.items() if name not in ("order", "tail")}
        size = self.args.eval_batch_size  # type: ignore[attr-defined]
        # What the ranks' batches are gathered to is then in the order of the dataset, as everybody expects.
        ids = in_order(len(test_dataset), _accelerate.ranks()[0], size)
        options |= {"batch_size": size, "order": Explicit(ids), "rotation": False}
        if options.get("share_name") is not None:
            # The loader of training has the name as it is, and a rank may be at the next evaluation already.
            self._rowdex_evaluations += 1
            options["share_name"] += f" evaluation {self._rowdex_evaluations}"
        return self._rowdex_loader(test_dataset, options, training=False)

    def _rowdex_loader(self, dataset: Dataset, options: dict[str, Any], training: bool) -> Any:
        trainer: Any = self
        args = trainer.args
        if args.remove_unused_columns:
            trainer._set_signature_columns_if_needed()
            kept = [name for name in dataset.column_names if name in trainer._signature_columns]
            if not kept:
                raise ValueError(
                    f"none of the columns {', '.join(dataset.column_names)} is an argument of the model: name them as "
                    "it does, or use remove_unused_columns=False"
                )
            if kept != dataset.column_names:
                dataset = dataset.select(kept)
        if trainer.data_collator is default_data_collator and args.dataloader_num_workers == 0:
            return trainer.accelerator.prepare_data_loader(_accelerate.Loader(dataset, **options))
        if not isinstance(dataset, _torch.Dataset):
            raise TypeError(
                "a data_collator, a tokenizer and dataloader_num_workers are for samples: give the Trainer a "
                "rowdex.torch.Dataset in the place of the rowdex.Dataset"
            )
        making = {
            "collate_fn": trainer.data_collator,
            "num_workers": args.dataloader_num_workers,
            "pin_memory": args.dataloader_pin_memory,
            "persistent_workers": args.dataloader_persistent_workers,
            "prefetch_factor": args.dataloader_prefetch_factor,
        }
        if training:
            size, rank = _accelerate.ranks()
            batches: Any = _torch.BatchSampler(dataset, num_replicas=size, rank=rank, **options)
            # Not prepared: it is the shard of this rank, and the Trainer moves batches itself.
            return torch.utils.data.DataLoader(dataset, batch_sampler=batches, **making)
        split = trainer.accelerator.split_batches
        if split:
            options["batch_size"] *= trainer.accelerator.num_processes
        everything = _torch.GlobalBatchSampler(dataset, split_batches=split, **options)
        return trainer.accelerator.prepare(torch.utils.data.DataLoader(dataset, batch_sampler=everything, **making))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        path = os.path.join(resume_from_checkpoint, _FILE)
        if os.path.exists(path):
            with open(path) as file:
                self._rowdex_saved = json.load(file)["state"]
        super()._load_from_checkpoint(resume_from_checkpoint, model)  # type: ignore[misc]


def _first_row(dataset: Dataset) -> Any:
    import datasets

    return datasets.Dataset.from_dict(dataset.take([0]).to_pydict())


class _Place(TrainerCallback):
    """Writes into each checkpoint where the run stands, and compares that with where the Trainer goes on."""

    def __init__(self, trainer: TrainerMixin) -> None:
        self._trainer = trainer
        self._begins = False

    def on_save(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        place = self._place(args, state, things.get("train_dataloader"))
        if place is not None and state.is_world_process_zero:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if os.path.isdir(folder):
                with open(os.path.join(folder, _FILE), "w") as file:
                    json.dump({"state": place[2]}, file)

    def on_train_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        self._begins = True
        saved, self._trainer._rowdex_saved = self._trainer._rowdex_saved, None
        place = self._place(args, state, things.get("train_dataloader"))
        if place is not None and saved is not None and saved != place[2] and not args.ignore_data_skip:
            raise ValueError(
                f"the checkpoint is at {saved}, and the Trainer would go on at {place[2]}: use the dataset, the seed, "
                "and as many rows per step of all ranks together as before (per_device_train_batch_size times ranks "
                "times gradient_accumulation_steps), or begin an epoch with ignore_data_skip=True"
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        if not self._begins:
            return
        self._begins = False
        loader = things.get("train_dataloader")
        place = self._place(args, state, loader)
        batches = getattr(loader, "batch_sampler", None)
        if place is not None and isinstance(batches, _torch.BatchSampler):
            # Nobody tells it where an epoch was over.
            batches.set_epoch(place[0])

    def _place(self, args: Any, state: Any, loader: Any) -> tuple[int, int, str] | None:
        """Epoch, step and state after as many steps as the Trainer has counted."""
        if isinstance(loader, _accelerate.Loader):
            sampler: DistributedSampler = loader._sampler_copy()
        elif isinstance(getattr(loader, "batch_sampler", None), _torch.BatchSampler):
            sampler = loader.batch_sampler.sampler
        else:
            return None
        every = args.gradient_accumulation_steps
        epoch, update = divmod(state.global_step, max(1, math.ceil(sampler.steps / every)))
        return epoch, update * every, sampler._state(epoch, update * every)["state"]


__all__ = ["TrainerMixin"]
