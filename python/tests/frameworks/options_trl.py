"""Options of SFTTrainer of TRL."""

from __future__ import annotations

from typing import Any

import rowdex
import rowdex.torch
import rowdex.transformers
import transformers
import trl
from option_cases import TOKENS, error_of, honours, refuses
from options_hf import tokenizer


class Supervised(rowdex.transformers.TrainerMixin, trl.SFTTrainer):  # type: ignore[misc]
    pass


def model() -> Any:
    config = transformers.GPT2Config(vocab_size=8, n_positions=64, n_embd=4, n_layer=1, n_head=1)
    return transformers.GPT2LMHeadModel(config)


def supervised(
    columns: tuple[str, ...] = ("input_ids",), prepares: bool = False, made: dict[str, Any] | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    if not prepares:
        options = {"dataset_kwargs": {"skip_prepare_dataset": True}} | options
    arguments = trl.SFTConfig(
        "out", use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", save_strategy="no", bf16=False,
        dataloader_pin_memory=False, seed=3, gradient_checkpointing=False, **options,
    )  # fmt: skip
    made = {"train_dataset": rowdex.torch.Dataset(TOKENS, list(columns)), **(made or {})}
    return Supervised(model(), arguments, processing_class=tokenizer(), **made)


def lengths(batches: Any) -> list[list[int]]:
    return [batch["attention_mask"].sum(1).tolist() for batch in batches]


def tokens(batches: Any) -> list[list[list[int]]]:
    return [
        [row[:length] for row, length in zip(batch["input_ids"].tolist(), batch["attention_mask"].sum(1).tolist())]
        for batch in batches
    ]


def served(size: int = 8) -> list[list[list[int]]]:
    loader = rowdex.Loader(rowdex.Dataset(TOKENS, ["input_ids"]), batch_size=size, seed=3, output="python")
    return [batch["input_ids"] for batch in loader]


@honours("SFTConfig", "max_length", "truncation_mode", "dataset_kwargs")
def rows_are_cut() -> None:
    whole = served()
    assert tokens(supervised().get_train_dataloader()) == whole
    run = supervised(max_length=10)
    assert tokens(run.get_train_dataloader()) == [[row[:10] for row in batch] for batch in whole]
    assert max(map(max, lengths(run.get_test_dataloader(run.train_dataset)))) == 10
    run = supervised(max_length=10, truncation_mode="keep_end", dataloader_num_workers=1)
    assert tokens(run.get_train_dataloader()) == [[row[-10:] for row in batch] for batch in whole]
    assert supervised(max_length=10, max_steps=2).train().global_step == 2
    # What a collator of one's own makes of text is not cut, so it is refused where it is too long.
    collates = {"made": {"data_collator": of_text}, "columns": ("text",), "remove_unused_columns": False}
    assert max(map(max, lengths(supervised(**collates).get_train_dataloader()))) == 40
    error = error_of(lambda: lengths(supervised(**collates, max_length=39).get_train_dataloader()))
    assert "max_length=39" in error and "truncation=True" in error, error
    # And so of what `map` makes.
    mapped = {"data_collator": transformers.default_data_collator, "rowdex_options": {"map": of_texts}}
    collates |= {"made": mapped}
    assert max(map(max, lengths(supervised(**collates).get_train_dataloader()))) == 40
    error = error_of(lambda: lengths(supervised(**collates, max_length=39).get_train_dataloader()))
    assert "max_length=39" in error, error


def of_text(rows: Any) -> Any:
    return of_texts({"text": [row["text"] for row in rows]})


def of_texts(batch: Any) -> Any:
    collate = transformers.DataCollatorForLanguageModeling(tokenizer(), mlm=False)
    return collate([tokenizer()(text) for text in batch["text"]])


@honours("SFTConfig", "padding_free", "pad_to_multiple_of")
def batches_are_flattened_or_filled_up_by_the_collator_of_trl() -> None:
    run = supervised(padding_free=True, max_length=None)
    for batch, rows in zip(run.get_train_dataloader(), served(), strict=True):
        assert batch["input_ids"].tolist() == [[token for row in rows for token in row]]
        assert (batch["position_ids"] == 0).sum() == len(rows)
    # Cut to a length, and then filled up beyond it.
    found = list(supervised(pad_to_multiple_of=16, max_length=20).get_train_dataloader())
    assert max(map(max, lengths(found))) == 20 and not any(batch["input_ids"].shape[1] % 16 for batch in found)


def packs(batches: Any) -> list[list[int]]:
    for batch in batches:
        assert "attention_mask" not in batch and (batch["labels"][batch["position_ids"] == 0] == -100).all()
    return [batch["input_ids"][0].tolist() for batch in batches]


def plain(size: int = 8, **options: Any) -> list[list[int]]:
    pack = rowdex.Pack("input_ids", **options)
    loader = rowdex.Loader(rowdex.Dataset(TOKENS, ["input_ids"]), batch_size=size, seed=3, pack=pack)
    return [batch["input_ids"].tolist() for batch in loader]


@honours("SFTConfig", "max_length", "padding_free")
def packs_are_those_of_a_loader_and_what_they_cannot_be_is_told() -> None:
    made = {"rowdex_options": {"pack": rowdex.Pack("input_ids", capacity=50)}}
    for options in ({}, {"padding_free": True}):
        run = supervised(made=made, max_length=None, max_steps=2, **options)
        assert packs(list(run.get_train_dataloader())) == plain(capacity=50)
        assert packs(list(run.get_test_dataloader(run.train_dataset)))
        assert run.train().global_step == 2
    for options, words in (
        ({"max_length": None, "dataloader_num_workers": 1}, "dataloader_num_workers"),
        ({"max_length": None, "pad_to_multiple_of": 8}, "pad_to_multiple_of"),
        ({"max_length": None, "eval_packing": False}, "eval_packing"),
        ({"max_length": 40}, "max_length=40"),
        ({"max_length": None, "made": {**made, "data_collator": of_text}}, "data_collator"),
    ):
        error = error_of(lambda options=options: supervised(**{"made": made, **options}).get_train_dataloader())
        assert words in error, (options, error)


@honours("SFTTrainer", "train_dataset", "eval_dataset", "data_collator")
def datasets_are_taken_by_position_and_several_to_evaluate() -> None:
    dataset = rowdex.torch.Dataset(TOKENS, ["input_ids"])
    arguments = supervised(max_length=12).args
    several = {"one": dataset, "two": dataset}
    run = Supervised(model(), arguments, None, dataset, several, tokenizer())
    assert run.train_dataset is dataset and run.eval_dataset == several
    assert {"eval_one_loss", "eval_two_loss"} <= set(run.evaluate())
    assert "eval_loss" in run.evaluate(dataset)


for _name, _value in {
    "packing": True, "eval_packing": True, "completion_only_loss": True, "assistant_only_loss": True,
    "shuffle_dataset": True, "dataset_text_field": "body", "dataset_num_proc": 2,
}.items():  # fmt: skip
    refuses("SFTConfig", _name, lambda name=_name, value=_value: supervised(**{name: value}))
refuses(
    "SFTConfig", "dataset_kwargs",
    lambda: supervised(prepares=True),
    lambda: supervised(dataset_kwargs={"skip_prepare_dataset": False}),
    lambda: supervised(prepares=True, columns=("text",)),
)  # fmt: skip
refuses(
    "SFTTrainer", "formatting_func",
    lambda: supervised(made={"formatting_func": lambda row: row["text"]}),
)  # fmt: skip
refuses(
    "SFTConfig", "max_length",
    lambda: list(supervised(max_length=10, made={"train_dataset": packed()}).get_train_dataloader()),
)  # fmt: skip


def packed() -> Any:
    """Rows that were packed when the files were written."""
    return rowdex.torch.Dataset("data/packed.rdx")


def text_to_tokens() -> dict[str, Any]:
    """Does what the error about a text column says, with each of its two lines."""
    error = error_of(supervised(columns=("text",), max_length=12).get_train_dataloader)
    lines = error.splitlines()
    names = {"transformers": transformers, "tokenizer": tokenizer()}
    found = {}
    for number, line in (("collator", 2), ("map", 3)):
        given = lines[line].strip().removeprefix("or").strip()
        made = eval(f"dict({given})", names | {"collate": eval(lines[1].partition("=")[2], names)})
        run = supervised(columns=("text",), max_length=12, remove_unused_columns=False, made=made, max_steps=2)
        found[number] = [max(map(max, lengths(run.get_train_dataloader()))), run.train().global_step]
    return {"error": error, "found": found}


def packing_to_packs() -> list[str]:
    """Does what the errors about TRL's own packing say."""
    errors = [error_of(lambda name=name: supervised(**{name: True})) for name in ("packing", "eval_packing")]
    for error in errors:
        given = error.partition("write ")[2].replace(" and ", ", ").replace("…", "50")
        options = eval(f"dict({given})", {"rowdex": rowdex})
        made = {"rowdex_options": options.pop("rowdex_options")}
        assert packs(list(supervised(made=made, **options).get_train_dataloader())) == plain(capacity=50)
    return errors
