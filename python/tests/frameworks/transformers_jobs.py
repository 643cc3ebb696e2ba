"""Ranks that train with the Trainer of Hugging Face, forked by jobs.py."""

from __future__ import annotations

import os
import pathlib
import warnings
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import rowdex
import rowdex.torch
import rowdex.transformers
import torch
import torch._dynamo  # Optimizers import it, which takes seconds: once here, not in every rank.
import transformers

SIZE = 64
warnings.filterwarnings("ignore")
COLUMNS = ["id", "x"]


def model() -> Any:
    """A language model of one layer, with nothing downloaded."""
    config = transformers.GPT2Config(vocab_size=8, n_positions=4, n_embd=4, n_layer=1, n_head=1)
    return transformers.GPT2LMHeadModel(config)


def tokens(batch: Any) -> Any:
    ids = batch["x"].long()
    return {"input_ids": ids, "labels": ids, "id": batch["id"]}


def collate(samples: Any) -> Any:
    ids = torch.stack([sample["x"] for sample in samples]).long()
    return {"input_ids": ids, "labels": ids, "id": torch.tensor([sample["id"] for sample in samples])}


class Noting(transformers.Trainer):  # type: ignore[misc]
    """Notes the rows of every step."""

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        noted = self.__dict__.setdefault("noted" if model.training else "evaluated", [])
        noted.append(inputs.pop("id").tolist())
        return super().compute_loss(model, inputs, *arguments, **options)


class Trainer(rowdex.transformers.TrainerMixin, Noting):
    pass


def trainer(index: str, kind: str, folder: str, size: int = SIZE, **options: Any) -> Any:
    arguments = transformers.TrainingArguments(
        folder, use_cpu=True, seed=3, per_device_train_batch_size=size, per_device_eval_batch_size=100, report_to=[],
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False, dataloader_pin_memory=False,
        save_strategy=options.pop("save_strategy", "no"), **options,
    )  # fmt: skip
    if kind == "loader":
        data = rowdex.Dataset(index, COLUMNS)
        return Trainer(model(), arguments, train_dataset=data, rowdex_options={"map": tokens, "threads": 0})
    dataset = rowdex.torch.Dataset(index, COLUMNS)
    if kind == "samples":
        return Trainer(model(), arguments, train_dataset=dataset, data_collator=collate)
    return Noting(model(), arguments, train_dataset=dataset, data_collator=collate)


def plain(index: str, epochs: int) -> list[list[list[int]]]:
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE, seed=3)
    return [[batch["id"].tolist() for batch in loader] for _ in range(epochs)]


def trains(index: str, kind: str, folder: str, epochs: int = 2, resume: int | None = None, **options: Any) -> Any:
    """The rows of every step, with a checkpoint after so many steps, or from one of those."""
    run = trainer(index, kind, folder, num_train_epochs=epochs, **options)
    run.train(resume_from_checkpoint=None if resume is None else f"{folder}/checkpoint-{resume}")
    return {"found": run.noted, "plain": plain(index, epochs)}


def evaluates(index: str, kind: str, **options: Any) -> list[int]:
    """The rows that a prediction is of, as the Trainer gathers them."""
    run = trainer(index, kind, "out")
    run._rowdex_options |= options
    run.noted = []
    gathered: list[int] = []

    def step(model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        ids = inputs.pop("id")
        return torch.tensor(0.0), torch.nn.functional.one_hot(ids % 2, 2).float(), ids

    run.prediction_step = step
    gathered = run.predict(run.train_dataset).label_ids.tolist()
    # Each evaluation has a loader of its own, and leaves no thread of it behind.
    before = len(thread_names())
    for _ in range(2):
        run.predict(run.train_dataset)
    assert len(thread_names()) <= before
    return gathered


def thread_names() -> list[str]:
    """The names of all threads of this process that read rows."""
    tasks = pathlib.Path("/proc/self/task")
    names = [(task / "comm").read_text() for task in tasks.iterdir()] if tasks.exists() else []
    return [name for name in names if name.startswith("rowdex")]


def shares(index: str) -> Any:
    """Evaluates twice within an epoch, with loaders of one name."""
    options = {"map": tokens, "share": rowdex.Share(name="all", job=os.getcwd(), ranks=2)}
    arguments = transformers.TrainingArguments(
        "out", use_cpu=True, seed=3, per_device_train_batch_size=SIZE, per_device_eval_batch_size=100, report_to=[],
        disable_tqdm=True, remove_unused_columns=False, num_train_epochs=1, eval_strategy="steps", eval_steps=30,
        prediction_loss_only=True, dataloader_pin_memory=False, save_strategy="no",
    )  # fmt: skip
    data = rowdex.Dataset(index, COLUMNS)
    run = Trainer(model(), arguments, train_dataset=data, eval_dataset=data, rowdex_options=options)
    run.train()
    return {"found": run.noted, "plain": plain(index, 1)[0], "evaluated": run.evaluated}


def iterable(index: str) -> str:
    """What the Trainer would deal again."""
    dataset = rowdex.torch.IterableDataset(rowdex.torch.Dataset(index, COLUMNS), SIZE)
    arguments = transformers.TrainingArguments(
        "out", use_cpu=True, report_to=[], disable_tqdm=True, max_steps=2, remove_unused_columns=False
    )
    Noting(model(), arguments, train_dataset=dataset).train()
    return "no error"


def supervised(index: str, folder: str) -> int:
    """TRL's trainer of language models, over tokens that are in the files."""
    import tokenizers
    import trl

    class Supervised(rowdex.transformers.TrainerMixin, trl.SFTTrainer):  # type: ignore[misc]
        pass

    arguments = trl.SFTConfig(
        folder, use_cpu=True, per_device_train_batch_size=SIZE, num_train_epochs=1, report_to=[], disable_tqdm=True,
        logging_strategy="no", save_strategy="no", dataset_kwargs={"skip_prepare_dataset": True}, bf16=False,
        remove_unused_columns=False, dataloader_pin_memory=False,
    )  # fmt: skip
    words = {"<pad>": 0, "<eos>": 1, "a": 2}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>")),
        pad_token="<pad>", eos_token="<eos>",
    )  # fmt: skip

    def without_ids(samples: Any) -> Any:
        made = collate(samples)
        del made["id"]
        return made | {"attention_mask": torch.ones_like(made["labels"])}

    run = Supervised(
        model(), args=arguments, train_dataset=rowdex.torch.Dataset(index, COLUMNS), data_collator=without_ids,
        processing_class=tokenizer,
    )  # fmt: skip
    run.train()
    return int(run.state.global_step)
