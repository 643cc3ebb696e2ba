"""What frameworks count when they go on from a checkpoint, and what to say where the rows are elsewhere.

Lightning and the ``Trainer`` of Hugging Face keep how many steps they took, and no word about rows. A sampler is not
told of that count, and a plain ``DataLoader`` has no state. So when an epoch begins, the loop that counts is looked for
among those that are running, and an epoch that would begin elsewhere is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import running as _sharded

MODULE = "rowdex.lightning.DataModule(dataset, batch_size=…, collate=…, workers=…)"
MIXIN = "class T(rowdex.transformers.TrainerMixin, Trainer)"


class Counted(NamedTuple):
    """Where Lightning is when it begins an epoch of training over a loader."""

    epoch: int
    steps: int | None
    """How many batches of it are over, if it goes on from a checkpoint."""
    batch_size: int
    """Rows of a batch, of a loader that makes batches of rows."""
    has_state: bool
    """Whether Lightning's checkpoints say where the loader stands."""
    limit: int | None = None
    """After how many batches it ends the epoch, where nobody has told it to end it early."""
    begins_anew: bool = False
    """Whether it has fewer batches than are over, because Lightning begins the shorter ones of several loaders anew."""

    def refusal(self, begins: int, batch: int, how: str) -> Refusal | None:
        """What to hand out in the place of rows if the epoch goes on elsewhere than Lightning does: after ``begins``,
        of which a step has ``batch``. ``how`` says how to begin where Lightning does.
        """
        if self.steps is None or begins == self.steps * batch:
            return None
        lightning = f"Lightning goes on after {self.steps} batches of epoch {self.epoch}"
        places = f"{lightning}, and the rows after {begins // batch}"
        if self.begins_anew:
            return Refusal(
                f"{places}: Lightning counts the batches of all its loaders together, and begins the shorter ones anew "
                "within an epoch. Give fit() lightning.pytorch.utilities.CombinedLoader(loaders, 'min_size')"
            )
        if self.has_state:
            return Refusal(
                f"{places}: the checkpoint is from another number of ranks, another batch size or another kind of "
                f"loader, or was saved within a step. Use {MODULE}, which goes on with any number of ranks, or all of "
                "these as before"
            )
        return Refusal(
            f"{places}: a DataLoader has no place in Lightning's checkpoints. Use {MODULE}, or torchdata's "
            "StatefulDataLoader in the place of the DataLoader. To go on from this checkpoint with the ranks and the "
            f"batch size that it was saved with, call {how} before fit()"
        )


class Refusal:
    """A row, or a step, that nobody can have: an error for whoever asks for it.

    An error at the beginning of an epoch would be lost, because Lightning raises another one as it cleans up.
    """

    def __init__(self, message: str) -> None:
        self.message = message

    def __index__(self) -> int:
        raise RuntimeError(self.message)

    def __iter__(self) -> Iterator[Any]:
        raise RuntimeError(self.message)


def by_lightning(ours: Any) -> Counted | None:
    """Where Lightning is, if it is what begins an epoch of training over a loader that has this sampler, dataset or
    loader.
    """
    if not {"lightning.pytorch", "pytorch_lightning"} & set(sys.modules):
        return None
    for loop, _ in _sharded.running("lightning.pytorch.loops.", "pytorch_lightning.loops."):
        if type(loop).__name__ in ("_EvaluationLoop", "_PredictionLoop"):
            return None
        if hasattr(loop, "epoch_loop"):
            loaders = [] if loop._combined_loader is None else loop._combined_loader.flattened
            found = [loader for loader in loaders if loader is ours or _has(loader, ours)]
            return _of_fit(loop, found[0]) if found else None
    return None


def check(ours: Any, epoch: int, step: int) -> None:
    """Refuses to begin an epoch of a loader with a step where a framework counts another.

    Raises:
        RuntimeError: naming both.
    """
    check_steps(epoch, step, type(ours).__name__)
    counted = by_lightning(ours)
    refusal = None if counted is None else counted.refusal(step, 1, "")
    if refusal is not None:
        raise RuntimeError(refusal.message)
    if counted is not None and counted.limit is not None and counted.limit < len(ours):
        raise RuntimeError(
            f"epoch {epoch} has {len(ours)} steps, and Lightning ends it after {counted.limit}, as many as the first "
            f"one had: use {MODULE.replace('collate=…, workers=…', 'pack=…')}, or "
            "Trainer(reload_dataloaders_every_n_epochs=1)"
        )


def _has(loader: Any, ours: Any) -> bool:
    for _, part in _sharded._chains(loader):
        while part is not None:
            if part is ours:
                return True
            # A batch sampler has a sampler, and an iterable dataset has a batch sampler.
            inner = getattr(part, "__dict__", {})
            part = inner.get("sampler", inner.get("_sampler"))
    return False


def _of_fit(loop: Any, loader: Any) -> Counted:
    has_state = hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")
    batch = getattr(loader, "batch_size", None) or 1
    found = Counted(loop.epoch_progress.current.processed, None, batch, has_state, _limit(loop, loader))
    # Otherwise the count is that of the epoch before, and about to be reset.
    if not loop.epoch_loop.restarting:
        return found
    progress = loop.epoch_loop.batch_progress
    steps = steps_done(progress.current)
    if progress.is_last_batch and steps == progress.current.ready:
        # Lightning begins another epoch only if epochs have no more batches now than they had.
        return found._replace(epoch=found.epoch + 1, steps=0 if steps >= _batches_of_an_epoch(loop) else steps)
    combined, batches = loop._combined_loader, _batches_of(loop, loader)
    outlasts = len(combined.flattened) > 1 and not combined._mode.startswith("min_size")
    return found._replace(steps=steps, begins_anew=outlasts and batches is not None and steps >= batches)


def _batches_of_an_epoch(loop: Any) -> float:
    """How many batches Lightning takes for an epoch, which it counts when it has begun one."""
    limits = loop._combined_loader.limits or [0]
    return float(min(limits) if loop._combined_loader._mode.startswith("min_size") else max(limits))


def _limit(loop: Any, loader: Any) -> int | None:
    """After how many batches of a loader Lightning ends an epoch, by the length that it had when it was asked for."""
    if loop.trainer.limit_train_batches != 1.0 or getattr(loop.trainer, "fast_dev_run", False):
        return None
    limit = _batches_of(loop, loader)
    return int(limit) if limit is not None and limit != float("inf") else None


def _batches_of(loop: Any, loader: Any) -> float | None:
    """How many batches of one of its loaders Lightning takes before it is over."""
    combined = loop._combined_loader
    return dict(zip(map(id, combined.flattened), combined.limits or [])).get(id(loader))


def steps_done(current: Any) -> int:
    """How many steps Lightning goes on after.

    A checkpoint that is saved as a step ends has not counted it as completed. One that is saved within a step has not
    counted it as processed, and Lightning takes that step again.
    """
    return int(current.processed if current.processed == current.ready else current.completed)


def check_steps(epoch: int, step: int, name: str, is_unordered: bool = False) -> None:
    """Refuses to begin an epoch with a step where steps were counted by nobody who knows which rows they were.

    Raises:
        RuntimeError: if Accelerate skips what was skipped already, a ``Trainer`` goes on in mid-epoch, or batches are
            handed out in another order than that of their steps.
    """
    skipped = _skipped()
    if is_unordered and (step or skipped):
        raise RuntimeError(f"this {name} goes on after {step or skipped} steps: {_sharded.UNORDERED}")
    if skipped and step:
        raise RuntimeError(
            f"this {name} goes on after {step} steps, from its state, and skip_first_batches() would skip {skipped} "
            "more: leave skip_first_batches() out after load_state(), or load no state"
        )
    trainer = _counting_trainer()
    if trainer is None or trainer.args.ignore_data_skip:
        return
    state = trainer.state
    resumed = state.global_step > 0 and state.global_step == trainer._initial_global_step
    if skipped or (resumed and state.epoch != epoch):
        raise RuntimeError(
            f"the Trainer goes on from a checkpoint after {state.global_step} steps, and nothing in it says which rows "
            f"these were: train with {MIXIN}, whose checkpoints do (a get_train_dataloader of your own may stay), or "
            "begin an epoch with ignore_data_skip=True"
        )


def _skipped() -> int:
    """How many batches Accelerate skips of the epoch that begins."""
    running = _sharded.running("accelerate.data_loader")
    return max((getattr(found, "skip_batches", 0) for found, _ in running), default=0)


def _counting_trainer() -> Any:
    """The ``Trainer`` of Hugging Face that trains, if it does not compare what it counts with where rows are."""
    for found, method in _sharded.running("transformers.trainer"):
        if method in ("evaluate", "predict", "evaluation_loop"):
            return None
        kinds = type(found).__mro__
        if any(kind.__module__ == "transformers.trainer" and kind.__name__ == "Trainer" for kind in kinds):
            checks = any(kind.__module__ == "rowdex.transformers" for kind in kinds)
            return None if checks else found
    return None


def in_workers(ours: Any) -> str:
    """Who counts the steps of a dataset's workers, which cannot see that; the empty string if nobody does."""
    found = by_lightning(ours)
    if found is not None and not found.has_state:
        return "Lightning"
    return "the Trainer of Hugging Face" if _counting_trainer() is not None else ""
