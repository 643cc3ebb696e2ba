"""Datasets for the ``Trainer`` of Hugging Face, and for those of TRL.

::

    class Trainer(rowdex.transformers.TrainerMixin, transformers.Trainer):
        pass

    trainer = Trainer(model, arguments, train_dataset=rowdex.Dataset("train.rdx", columns=[...]))
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
from typing import Any

import torch.utils.data
from transformers import Trainer, TrainerCallback, default_data_collator
from transformers.trainer_utils import get_last_checkpoint, seed_worker

from . import accelerate as _accelerate
from . import torch as _torch
from .dataset import Dataset
from .frameworks import trainer as _trainer
from .frameworks.attention import check_apart
from .frameworks.epochs import Epochs
from .frameworks.gathered import in_order
from .frameworks.packs import causal
from .loader import Loader
from .loading.functions import functions
from .loading.sequences import MASKS, beside
from .loading.share import Share
from .order import Explicit
from .packing import Pack
from .sampler import DistributedSampler

_FILE = "rowdex_state.json"


class TrainerMixin:
    """Has a ``Trainer`` read its datasets that are rowdex's with loaders of rowdex; it comes before the ``Trainer`` in
    the list of base classes.

    Training is shuffled, and equal on all ranks. ``train(resume_from_checkpoint=...)`` resumes with the very next
    batch, and reads none of those before it. The ``Trainer`` counts steps to find its place, so a run resumes only with
    the same number of rows per step of all ranks together; another one is refused. Evaluation and prediction give every
    row once and in the order of the dataset.

    Batches are those of a :class:`rowdex.Loader`. With a ``data_collator``, a tokenizer, or ``dataloader_num_workers``
    the datasets must be :class:`rowdex.torch.Dataset`; then a ``DataLoader`` makes the batches of samples. Columns
    that the model does not take are not read, unless ``remove_unused_columns=False``.

    With ``rowdex_options={"pack": rowdex.Pack("input_ids", capacity=8192)}`` a batch is ``per_device_train_batch_size``
    packs, of shape ``(1, tokens)``, with ``position_ids`` that restart where a document begins and without an attention
    mask. A model that does not keep documents apart by that is refused before the first step. ``labels`` next to the
    packed column are those of its tokens, and ``completion_mask`` and ``assistant_masks`` take labels away, the first
    unless ``completion_only_loss=False``. Columns that the pack names are given to the model, too; others are served
    with ``remove_unused_columns=False``, to ``map``. How many steps training takes is exact, although epochs differ by
    a few.

    An option of the ``Trainer`` that is not honoured raises an error that names it. ``SFTTrainer`` of TRL takes rows as
    they are, with ``dataset_kwargs={"skip_prepare_dataset": True}``, and cuts them to ``max_length``.

    Args:
        rowdex_options: What :class:`rowdex.Loader` takes: ``memory``, ``threads``, ``map`` and the like; for training
            also ``order`` and ``tail``. With a ``DataLoader`` of samples only those of the sampler.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        order = cls.__mro__
        if Trainer in order and order.index(Trainer) < order.index(TrainerMixin):
            own = [base.__name__ for base in cls.__bases__ if issubclass(base, TrainerMixin)]
            others = [base.__name__ for base in cls.__bases__ if not issubclass(base, TrainerMixin)]
            raise TypeError(
                f"class {cls.__name__}: {own[0]} comes after {others[0]}, so the loaders would be the Trainer's own: "
                f"write class {cls.__name__}({', '.join(own + others)})"
            )

    def __init__(self, *arguments: Any, rowdex_options: dict[str, Any] | None = None, **options: Any) -> None:
        self._rowdex_options = dict(rowdex_options or {})
        pack = self._rowdex_options.get("pack")
        # Whether the model gets pieces of rows that lie one after the other.
        self._rowdex_packed = isinstance(pack, Pack) and pack._is_of_tokens
        self._rowdex_saved: str | None = None
        self._rowdex_evaluations = 0
        self._rowdex_epochs: Epochs | None = None
        self._rowdex_unproven = False
        given = _trainer.by_name(super().__init__, arguments, options)
        for dataset in (given.get("train_dataset"), given.get("eval_dataset")):
            if isinstance(dataset, Loader):
                # Says what a Loader is and what to write; TRL would say that it is no datasets.Dataset.
                dataset[0]
            if isinstance(dataset, _torch.IterableDataset):
                raise TypeError(
                    "an IterableDataset makes batches, and the Trainer would make batches of these: give it the "
                    "rowdex.Dataset"
                )
        kind = _trainer.trl_trainer(type(self))
        # TRL's trainers look at the first row of a datasets.Dataset, and take nothing else.
        kept = {} if kind is None else _trainer.replaced(given, self._rowdex_first_row)
        if kind is not None and kept:
            _trainer.check_trl(kind, given, masked=all(self._rowdex_masked(data) for data in kept.values()))
        super().__init__(**given)
        for name, dataset in kept.items():
            setattr(self, name, dataset)
        length = getattr(self.args, "max_length", None)  # type: ignore[attr-defined]
        self._rowdex_cuts = kind is not None and length is not None
        collator = given.get("data_collator")
        self._rowdex_collates = collator is not None and collator is not default_data_collator
        self.add_callback(_Place(self))  # type: ignore[attr-defined]

    def _rowdex_first_row(self, dataset: Dataset) -> Any:
        import datasets

        # Of masks TRL would want labels to be made, and packs are masked by the columns themselves.
        left_out = MASKS if self._rowdex_packed else ()
        row = dataset.select([name for name in dataset.column_names if name not in left_out]).take([0])
        return datasets.Dataset.from_dict(row.to_pydict())

    def _rowdex_masked(self, data: Any) -> bool:
        """Whether packs of all these datasets are masked by what TRL calls a completion."""
        parts = [part for part in (data.values() if isinstance(data, dict) else [data]) if isinstance(part, Dataset)]
        return self._rowdex_packed and all("completion_mask" in beside(part.schema.fields, "") for part in parts)

    def evaluate(self, eval_dataset: Any = None, *given: Any, **named: Any) -> Any:
        trainer: Any = self
        kept = trainer.eval_dataset
        if self._rowdex_packed and eval_dataset is not None and not isinstance(eval_dataset, str):
            # TRL would ask what is given here for labels, and packs are masked by the columns themselves.
            trainer.eval_dataset, eval_dataset = eval_dataset, None
        try:
            return super().evaluate(eval_dataset, *given, **named)  # type: ignore[misc]
        finally:
            trainer.eval_dataset = kept

    def train(self, resume_from_checkpoint: str | bool | None = None, *given: Any, **named: Any) -> Any:
        folder = resume_from_checkpoint
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)  # type: ignore[attr-defined]
        path = os.path.join(folder or "", _FILE)
        self._rowdex_saved = None
        if folder and os.path.exists(path):
            with open(path) as file:
                self._rowdex_saved = json.load(file)["state"]
        return super().train(resume_from_checkpoint, *given, **named)  # type: ignore[misc]

    def get_train_dataloader(self) -> Any:
        trainer: Any = self
        if not isinstance(trainer.train_dataset, Dataset):
            return super().get_train_dataloader()  # type: ignore[misc]
        args = trainer.args
        ranks = args.world_size // trainer.get_tp_size() // trainer.get_cp_size() // trainer.get_sp_size()
        sampling = {
            # The Trainer may have found out that it must have fewer than it was told.
            "batch_size": trainer.get_total_train_batch_size(args) // args.gradient_accumulation_steps // ranks,
            "seed": args.seed if args.data_seed is None else args.data_seed,
            "shuffle": getattr(args, "train_sampling_strategy", "random") == "random",
            "drop_last": args.dataloader_drop_last,
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
        # Every row is served, and in the order of the dataset.
        training = {"order", "tail", "shuffle", "drop_last"}
        options = {name: value for name, value in self._rowdex_options.items() if name not in training}
        size = self.args.eval_batch_size  # type: ignore[attr-defined]
        if self._rowdex_packed:
            options |= {"batch_size": size, "shuffle": False}
        else:
            options.pop("pack", None)
            # What the ranks' batches are gathered to is then in the order of the dataset, as everybody expects.
            ids = in_order(len(test_dataset), _accelerate.ranks()[0], size)
            options |= {"batch_size": size, "order": Explicit(ids), "shuffle": False}
        share = options.get("share")
        if isinstance(share, Share):
            # The loader of training has the name as it is, and a rank may be at the next evaluation already.
            self._rowdex_evaluations += 1
            options["share"] = share.named(f"evaluation {self._rowdex_evaluations}")
        return self._rowdex_loader(test_dataset, options, training=False)

    def evaluation_loop(self, dataloader: Any, *given: Any, **named: Any) -> Any:
        try:
            return super().evaluation_loop(dataloader, *given, **named)  # type: ignore[misc]
        finally:
            if isinstance(dataloader, _accelerate.Loader):
                dataloader.close()

    def _rowdex_loader(self, dataset: Dataset, options: dict[str, Any], training: bool) -> Any:
        trainer: Any = self
        args = trainer.args
        _trainer.check(args)
        if self._rowdex_packed:
            return self._rowdex_packs(dataset, options, training)
        if getattr(options.get("pack"), "_is_of_rows", False):
            raise ValueError(
                "algorithm='buckets' with a Trainer: its models shift labels, and its collators pad samples; use "
                "algorithm='bfd', or a loop of your own over a rowdex.Loader"
            )
        if args.remove_unused_columns:
            taken = self._rowdex_taken()
            kept = [name for name in dataset.column_names if name in taken]
            if not kept:
                raise _trainer.no_columns(dataset.column_names, args)
            if kept != dataset.column_names:
                dataset = dataset.select(kept)
        workers = {
            "num_workers": args.dataloader_num_workers,
            "prefetch_factor": args.dataloader_prefetch_factor,
            "multiprocessing_context": getattr(args, "dataloader_multiprocessing_context", None),
            # An evaluation has a loader of its own, so workers that persist would stay after each.
            "persistent_workers": args.dataloader_persistent_workers and training,
        }
        if trainer.data_collator is default_data_collator and not any(workers.values()):
            if self._rowdex_cuts:
                checks = functools.partial(_trainer.checked, args.max_length)
                options["map"] = [*functions(options.get("map")), checks]
            return self._rowdex_prepared(dataset, options, training)
        if not isinstance(dataset, _torch.Dataset):
            raise TypeError(
                "a data_collator, a tokenizer and options of workers such as dataloader_num_workers are for samples: "
                "give the Trainer a rowdex.torch.Dataset in the place of the rowdex.Dataset, or, if map makes what the "
                "model takes, data_collator=transformers.default_data_collator and no workers"
            )
        collate = trainer.data_collator
        listed = functools.partial(_trainer.listed, collate)
        making = {
            "collate_fn": _trainer.Cut(collate, args) if self._rowdex_cuts else listed,
            "pin_memory": args.dataloader_pin_memory,
            **workers,
        }
        if training and workers["num_workers"]:
            seeded = {"num_workers": workers["num_workers"], "rank": args.process_index}
            making["worker_init_fn"] = functools.partial(seed_worker, **seeded)
        if training:
            size, rank = _accelerate.ranks()
            batches: Any = _torch.BatchSampler(dataset, num_replicas=size, rank=rank, **options)
            # Not prepared: it is the shard of this rank, and the Trainer moves batches itself.
            return torch.utils.data.DataLoader(dataset, batch_sampler=batches, **making)
        everything = _torch.GlobalBatchSampler(dataset, num_shards=_accelerate.ranks()[0], **options)
        return trainer.accelerator.prepare(torch.utils.data.DataLoader(dataset, batch_sampler=everything, **making))

    def _rowdex_taken(self) -> set[str]:
        """The columns that a model takes, or that its labels or the collator of TRL are made of."""
        trainer: Any = self
        model = getattr(trainer.model, "get_base_model", lambda: trainer.model)()
        taken = {*inspect.signature(model.forward).parameters, "label", "label_ids", *trainer.label_names}
        return taken if _trainer.trl_trainer(type(self)) is None else taken | {"seq_lengths"}

    def _rowdex_packs(self, dataset: Dataset, options: dict[str, Any], training: bool) -> Any:
        trainer: Any = self
        args, pack = trainer.args, options["pack"]
        _trainer.check_packs(args, self._rowdex_collates)
        if pack.layout != "flat" or not pack.labels:
            raise ValueError("layout='rows' or labels=False of a pack: the model is given flat batches with labels")
        if self._rowdex_cuts and pack.capacity > args.max_length:
            raise ValueError(
                f"max_length={args.max_length}, and packs of {pack.capacity} tokens may have longer rows: use "
                "max_length=None, or as much"
            )
        column = options.get("tokens") or str(pack.lengths)
        kept = dataset.column_names
        if args.remove_unused_columns:
            kept = list(dict.fromkeys([column, *beside(dataset.schema.fields, column), *pack.with_columns]))
        if getattr(args, "completion_only_loss", None) is False:
            kept = [name for name in kept if name != "completion_mask"]
        if kept != dataset.column_names:
            dataset = dataset.select(kept)
        takes = inspect.signature(trainer.model.forward).parameters.values()
        bounds = any(taken.kind is taken.VAR_KEYWORD or taken.name == "cu_seq_lens_q" for taken in takes)
        named = [name for name in pack.with_columns if name not in ("labels", *MASKS)]
        making = functools.partial(causal, column=column, bounds=bounds, with_columns=named)
        options["map"] = [*functions(options.get("map")), making]
        self._rowdex_unproven = True
        return self._rowdex_prepared(dataset, options, training)

    def _rowdex_prepared(self, dataset: Dataset, options: dict[str, Any], training: bool) -> Any:
        accelerator = self.accelerator  # type: ignore[attr-defined]
        loader = _accelerate.Loader(dataset, non_blocking=accelerator.non_blocking, **options)
        # The accelerator keeps what it prepares, and each evaluation has a loader of its own.
        return accelerator.prepare_data_loader(loader) if training else loader

    def compute_loss(self, model: Any, inputs: Any, *given: Any, **named: Any) -> Any:
        if self._rowdex_unproven and "position_ids" in inputs:
            self._rowdex_unproven = False
            args: Any = self.args  # type: ignore[attr-defined]
            check_apart(model, inputs, rounded=args.bf16 or args.fp16)
        return super().compute_loss(model, inputs, *given, **named)  # type: ignore[misc]

    # Epochs of packs have different numbers of steps, and the Trainer takes all to have as many as the first one.

    def set_initial_training_values(self, args: Any, dataloader: Any, *more: Any) -> Any:
        values = super().set_initial_training_values(args, dataloader, *more)  # type: ignore[misc]
        self._rowdex_epochs = _epochs_of(dataloader, args)
        if self._rowdex_epochs is None:
            return values
        if not hasattr(Trainer, "_run_epoch") or not hasattr(Trainer, "_init_training_state"):
            raise RuntimeError(_trainer.NO_EPOCHS)
        epochs, *middle, updates = values
        if args.max_steps > 0:
            epochs = self._rowdex_epochs.place(updates - 1)[0] + 1
        else:
            updates = self._rowdex_epochs.until(args.num_train_epochs)
        return (epochs, *middle, updates)

    def _init_training_state(self, *given: Any, **named: Any) -> Any:
        trained = super()._init_training_state(*given, **named)  # type: ignore[misc]
        if self._rowdex_epochs is None:
            return trained
        epoch, updates = self._rowdex_epochs.place(self.state.global_step)  # type: ignore[attr-defined]
        skips = not self.args.ignore_data_skip  # type: ignore[attr-defined]
        return epoch, updates * self._rowdex_epochs.every if skips else 0

    def _run_epoch(self, *given: Any, **named: Any) -> None:
        if self._rowdex_epochs is not None:
            named["steps_in_epoch"] = self._rowdex_epochs.steps(named["epoch"])
            named["num_update_steps_per_epoch"] = self._rowdex_epochs.updates(named["epoch"])
        super()._run_epoch(*given, **named)  # type: ignore[misc]


def _batches(loader: Any) -> Any:
    """The batch sampler of rowdex that a ``DataLoader`` has, maybe within one of Accelerate."""
    found = getattr(loader, "batch_sampler", None)
    for _ in range(3):
        if isinstance(found, (_torch.BatchSampler, _torch.GlobalBatchSampler)):
            return found
        found = getattr(found, "batch_sampler", None)
    return None


def _where(state: str) -> list[str]:
    """Of which order and dataset a state is, and where: not of how many ranks, which may be others."""
    return state.split(":")[1:4]


class _Place(TrainerCallback):
    """Writes into each checkpoint where the run stands, and compares that with where the Trainer resumes."""

    def __init__(self, trainer: TrainerMixin) -> None:
        self._trainer = trainer
        self._begins = False

    def on_save(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        place = self._place(args, state, things.get("train_dataloader"))
        if place is not None and args.should_save:
            folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
            if os.path.isdir(folder):
                with open(os.path.join(folder, _FILE), "w") as file:
                    json.dump({"state": place[2]}, file)

    def on_train_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        self._begins = True
        saved = self._trainer._rowdex_saved
        place = self._place(args, state, things.get("train_dataloader"))
        if place is None or args.ignore_data_skip:
            return
        if saved is None and state.global_step > 0 and (place[1] > 0 or state.epoch != place[0]):
            raise ValueError(
                f"the checkpoint has no {_FILE}, which the TrainerMixin writes, so nothing says which rows "
                f"{state.global_step} steps were. If it is of as many ranks, rows per step and gradient accumulation "
                f"steps as these, write {json.dumps({'state': place[2]})} to a file of this name in it; otherwise "
                "begin an epoch with ignore_data_skip=True"
            )
        if saved is not None and _where(saved) != _where(place[2]):
            raise ValueError(
                f"the checkpoint is at {saved}, and the Trainer would resume at {place[2]}: use the dataset, the seed, "
                "and as many rows per step of all ranks together as before (per_device_train_batch_size times ranks "
                "times gradient_accumulation_steps), or begin an epoch with ignore_data_skip=True"
            )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **things: Any) -> None:
        if not self._begins:
            return
        self._begins = False
        loader = things.get("train_dataloader")
        place, batches = self._place(args, state, loader), _batches(loader)
        if place is not None and batches is not None:
            # Nobody tells it where an epoch was over, nor one that is wrapped.
            batches.set_epoch(place[0])

    def _place(self, args: Any, state: Any, loader: Any) -> tuple[int, int, str] | None:
        """Epoch, step and state after as many steps as the Trainer has counted."""
        if isinstance(loader, _accelerate.Loader):
            sampler: DistributedSampler = loader._sampler_copy()
        else:
            batches = _batches(loader)
            if batches is None:
                return None
            sampler = batches.sampler
        every, epochs = args.gradient_accumulation_steps, self._trainer._rowdex_epochs
        if epochs is None:
            epoch, update = divmod(state.global_step, max(1, math.ceil(sampler.steps / every)))
        else:
            epoch, update = epochs.place(state.global_step)
        return epoch, update * every, sampler._state(epoch, update * every)["state"]


def _epochs_of(dataloader: Any, args: Any) -> Epochs | None:
    """How many updates the epochs of a loader of packs have; ``None`` for one of rows, whose epochs are alike."""
    if not isinstance(dataloader, _accelerate.Loader) or dataloader.spec.pack is None:
        return None
    sampler = dataloader._sampler_copy()
    return Epochs(sampler._steps_after, args.gradient_accumulation_steps)


__all__ = ["TrainerMixin"]
