"""Which options of a ``Trainer`` hold where rowdex reads the rows. All others are refused by name."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..dataset import Dataset

Refusals = Mapping[str, tuple[tuple[Any, ...], str]]
"""For options by name: what they may be, and what to do where they are anything else."""

_ARGUMENTS: Refusals = {
    "train_sampling_strategy": (
        (None, "random", "sequential"),
        "use 'random' or 'sequential', or an order of your own, rowdex_options={'order': rowdex.order.Explicit(ids)}",
    ),
    "group_by_length": (
        (None, False),
        "leave it out, or give an order of your own, rowdex_options={'order': rowdex.order.Explicit(ids)}",
    ),
    "dataloader_in_order": (
        (None, True),
        "a run resumes from the number of its steps, so batches come in order: leave it out",
    ),
}
_ACCELERATOR: Refusals = {
    "split_batches": (
        (None, False),
        "per_device_train_batch_size and per_device_eval_batch_size are rows of one rank: leave it out",
    ),
    "dispatch_batches": ((None, False), "every rank reads its own rows: leave it out"),
    "even_batches": (
        (None, True),
        "ranks take equal steps; so that none serves a row again, write rowdex_options={'tail': 'uneven'}, or 'drop'",
    ),
}
_PARALLELISM: Refusals = {
    "sp_size": ((None, 1), "ranks that share a sequence are not known to rowdex: use cp_size or tp_size"),
}
_PACKS = "rowdex_options={'pack': rowdex.Pack('input_ids', capacity=…)}"
_SUPERVISED: Refusals = {
    "packing": (
        (None, False),
        f"TRL would pack within one rank, and rowdex packs over all of them: write packing=False, max_length=None and "
        f"{_PACKS}",
    ),
    "eval_packing": (
        (None, False),
        f"what evaluates is packed as what trains: write eval_packing=None, max_length=None and {_PACKS}",
    ),
    "formatting_func": ((None,), "TRL prepares nothing here: format the rows in the data_collator"),
    "dataset_text_field": ((None, "text"), "TRL prepares nothing here: make tokens of the text in the data_collator"),
    "dataset_num_proc": ((None,), "TRL prepares nothing here: use dataloader_num_workers, which run the data_collator"),
    "completion_only_loss": (
        (None, False),
        "TRL makes no labels here: serve a column labels, or make labels in the data_collator, with -100 for all but "
        "the completion; or, with packs, serve a column completion_mask",
    ),
    "assistant_only_loss": (
        (None, False),
        "TRL makes no labels here: serve a column labels, or make labels in the data_collator, with -100 for all but "
        "the assistant's tokens; or, with packs, serve a column assistant_masks and leave this out",
    ),
    "shuffle_dataset": (
        (None, False),
        "every epoch is shuffled again, unless train_sampling_strategy='sequential': leave it out",
    ),
}
_PACKED: Refusals = {
    "dataloader_num_workers": ((0, None), "a pack is made by the loader's own threads, rowdex_options={'threads': …}"),
    "pad_to_multiple_of": ((None,), "write rowdex_options={'pack': rowdex.Pack(…, multiple=…)}"),
    "eval_packing": ((None,), "what evaluates is packed as what trains: leave it out"),
    "use_cache": ((None, False), "with a cache, models do not look where position_ids restart: leave it out"),
}
_PACKED_PARALLELISM: Refusals = {
    "cp_size": (
        (None, 1),
        "its attention takes no mask, so documents of a pack would see each other: use tp_size, or serve rows, without "
        "pack",
    ),
}
NO_EPOCHS = (
    "the Trainer of this transformers takes all epochs to have as many steps as the first one, and epochs of packs "
    "differ by a few: use transformers 5.23 or later"
)


def check(arguments: Any) -> None:
    """Refuses what a ``TrainingArguments`` asks for that rowdex does not do.

    Raises:
        ValueError: naming the option, and what to do.
    """
    _refuse(arguments, _ARGUMENTS, "")
    _refuse(getattr(arguments, "accelerator_config", None), _ACCELERATOR, "accelerator_config: ")
    _refuse(getattr(arguments, "parallelism_config", None), _PARALLELISM, "parallelism_config: ")


def check_packs(arguments: Any, collates: bool) -> None:
    """Refuses what is for batches of samples where batches are of packs.

    Raises:
        ValueError: naming the option, and what to do.
    """
    _refuse(arguments, _PACKED, "")
    _refuse(getattr(arguments, "parallelism_config", None), _PACKED_PARALLELISM, "parallelism_config: ")
    if collates:
        raise ValueError(
            "data_collator with packs: it makes batches of samples, and the loader makes packs: leave it out, or give "
            "rowdex_options={'map': function}, which gets the tokens of all packs and where pieces begin"
        )


def _refuse(options: Any, refusals: Refusals, where: str) -> None:
    for name, (allowed, advice) in refusals.items():
        value = getattr(options, name, None)
        if value not in allowed:
            raise ValueError(f"{where}{name}={value!r} with a rowdex dataset: {advice}")


def by_name(make: Callable[..., None], given: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a trainer is made with, all by name."""
    parameters = inspect.signature(make).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
    if len(given) > len(names):
        raise TypeError("give the arguments of the trainer by name")
    return {**dict(zip(names, given)), **named}


def replaced(arguments: dict[str, Any], change: Callable[[Dataset], Any]) -> dict[str, Any]:
    """Puts something else in the place of datasets of rowdex. Returns these, by the name of the argument."""
    kept = {}
    for name in ("train_dataset", "eval_dataset"):
        given = arguments.get(name)
        parts = list(given.values()) if isinstance(given, dict) else [given]
        if any(isinstance(part, Dataset) for part in parts):
            made = [change(part) if isinstance(part, Dataset) else part for part in parts]
            kept[name], arguments[name] = given, dict(zip(given, made)) if isinstance(given, dict) else made[0]
    return kept


def trl_trainer(kind: type) -> type | None:
    """The trainer of TRL that a class is made of."""
    return next((base for base in kind.__mro__ if base.__module__.partition(".")[0] == "trl"), None)


def check_trl(kind: type, given: dict[str, Any], masked: bool) -> None:
    """Refuses what a trainer of TRL does to a dataset before it trains: here it would do that to one row.

    Args:
        masked: Whether packs are masked by the column ``completion_mask``.

    Raises:
        TypeError: for another trainer than ``SFTTrainer``.
        ValueError: naming the option, and what to do.
    """
    if kind.__name__ != "SFTTrainer":
        raise TypeError(
            f"{kind.__name__} of TRL makes what it trains on from a whole datasets.Dataset: give it one; of TRL's "
            "trainers SFTTrainer reads a rowdex.torch.Dataset"
        )
    arguments = given.get("args")
    _refuse(types.SimpleNamespace(formatting_func=given.get("formatting_func")), _SUPERVISED, "")
    given_up = {"completion_only_loss"} if masked else set()
    _refuse(arguments, {name: refusal for name, refusal in _SUPERVISED.items() if name not in given_up}, "")
    prepared = getattr(arguments, "dataset_kwargs", None) or {}
    if not prepared.get("skip_prepare_dataset", False):
        raise ValueError(
            "TRL would prepare one row, and rowdex serves all of them as they are: serve tokens (a column input_ids), "
            "or make them in the data_collator, and write SFTConfig(dataset_kwargs={'skip_prepare_dataset': True})"
        )


def listed(collate: Callable[[Any], Any], samples: Iterable[Any]) -> Any:
    """What a collator makes of a list, which tokenizers want, and of nothing like it."""
    return collate(list(samples))


class Cut:
    """A collator whose samples are cut to ``max_length`` tokens, and whose batches have no more of them."""

    def __init__(self, collate: Callable[[Any], Any], arguments: Any) -> None:
        self._collate, self._length = collate, int(arguments.max_length)
        # TRL's other mode keeps the start.
        self._part = slice(-self._length, None) if arguments.truncation_mode == "keep_end" else slice(self._length)

    def __call__(self, samples: Iterable[Any]) -> Any:
        cut = [self._cut(sample) for sample in samples]
        return checked(self._length, self._collate(cut), len(cut))

    def _cut(self, sample: Any) -> Any:
        ids = sample.get("input_ids")
        if ids is None or len(ids) <= self._length:
            return sample
        if "seq_lengths" in sample:
            raise ValueError(
                f"max_length={self._length}, and a row of {len(ids)} tokens has seq_lengths: packed rows are not cut; "
                "use max_length=None"
            )
        # What has a value for each token: labels and masks.
        return {
            name: value[self._part] if not isinstance(value, str) and _length(value) == len(ids) else value
            for name, value in sample.items()
        }


def _length(value: Any) -> int:
    try:
        return len(value)
    except TypeError:
        return -1


def checked(length: int, batch: Any, rows: int | None = None) -> Any:
    """A batch, if none of its rows has more than so many tokens.

    Raises:
        ValueError: saying where to cut them.
    """
    ids, mask = batch.get("input_ids"), batch.get("attention_mask")
    if rows is None:
        rows = 0 if ids is None else len(ids)
    if ids is None or not rows:
        return batch
    # What fills rows up counts only where nothing tells it from tokens, and flattened rows by their average.
    marked = mask is not None and mask.shape == ids.shape
    longest = int(mask.sum(-1).max()) if marked else -(-ids.numel() // rows)
    if longest > length:
        raise ValueError(
            f"a sequence of {longest} tokens, and max_length={length}: cut it where tokens are made, "
            f"tokenizer(…, truncation=True, max_length={length}), or use max_length=None"
        )
    return batch


def no_columns(names: list[str], arguments: Any) -> ValueError:
    """The error where a model takes none of the columns, as it takes no text."""
    length = getattr(arguments, "max_length", None)
    cut = "" if length is None else f", truncation=True, max_length={length}"
    text = "text" if "text" in names else names[0]
    return ValueError(
        f"none of the columns {', '.join(names)} is an argument of the model: name them as it does, or make what it "
        "takes, with remove_unused_columns=False. Text becomes tokens in the data_collator, or in map:\n"
        "    collate = transformers.DataCollatorForLanguageModeling(tokenizer, mlm=False)\n"
        f'    data_collator=lambda rows: collate([tokenizer(row["{text}"]{cut}) for row in rows])\n'
        f'or  rowdex_options={{"map": lambda batch: collate([tokenizer(text{cut}) for text in batch["{text}"]])}}, '
        "data_collator=transformers.default_data_collator"
    )
