"""Integrations that serve packs, for resume_jobs.py: of rows whose tokens are numbers of their own, so that a step is
noted as the tokens that it has, and with a sign as those that it trains on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import accelerate
import lightning
import numpy as np
import rowdex
import rowdex.accelerate
import rowdex.grain
import rowdex.jax
import rowdex.lightning
import rowdex.transformers
import torch
import transformers
import trl
from lightning.pytorch.callbacks import ModelCheckpoint
from resume_run import SEED, Run, loop

COLUMN, CAPACITY, WORDS = "input_ids", 64, 8


def size(run: Run) -> int:
    """Packs of a rank's step, where others have so many rows."""
    return run.size // 32


def making(run: Run, layout: Any = "flat", **options: Any) -> dict[str, Any]:
    pack = rowdex.Pack(COLUMN, capacity=CAPACITY, layout=layout)
    return {"batch_size": size(run), "pack": pack, "seed": SEED, **options}


def dataset(run: Run) -> Any:
    return rowdex.Dataset(run.index, [COLUMN, "labels"])


def both(tokens: Any, labels: Any) -> Any:
    tokens, labels = np.asarray(tokens).reshape(-1), np.asarray(labels).reshape(-1)
    return np.concatenate([tokens, -labels[labels != -100]])


def noted(batch: Any) -> dict[str, Any]:
    return {"id": both(batch[COLUMN], batch["labels"])}


def own_loop(run: Run) -> None:
    loader = rowdex.Loader(dataset(run), **making(run, map=noted))
    if run.resumes:
        loader.load_state_dict(run.kept())
    loop(run, loader, lambda *_: run.keep(loader.state_dict()), loader.epoch)


def accelerated(run: Run) -> None:
    made = accelerate.Accelerator(cpu=True)
    loader: Any = rowdex.accelerate.Loader(dataset(run), **making(run, map=noted))
    model, loader = made.prepare(torch.nn.Linear(3, 5), loader)
    folder = str(run.folder / "checkpoint")
    if run.resumes:
        made.load_state(folder)
    loop(run, loader, lambda *_: made.save_state(folder), run.epoch)


class Fitted(lightning.LightningModule):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.run = run

    def training_step(self, batch: Any, number: int) -> Any:
        self.run.took(both(batch[COLUMN], batch["labels"]))
        return self.layer(batch[COLUMN][:, None].float()).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-9)


def fitted(run: Run) -> None:
    data = rowdex.lightning.DataModule(dataset(run), **making(run))
    saves = ModelCheckpoint(run.folder, "run", every_n_train_steps=run.stop, save_on_train_epoch_end=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=run.world, num_sanity_val_steps=0, max_epochs=run.epochs, logger=False,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=not run.resumes,
        callbacks=[] if run.resumes else [saves], **({"strategy": "ddp"} if run.world > 1 else {}),
    )  # fmt: skip
    trainer.fit(Fitted(run), datamodule=data, ckpt_path=f"{run.folder}/run.ckpt" if run.resumes else None)


def trained(run: Run, kind: str) -> None:
    base: Any = {"trainer": transformers.Trainer, "sft": trl.SFTTrainer}[kind]

    class Noting(rowdex.transformers.TrainerMixin, base):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            assert "attention_mask" not in inputs and inputs["input_ids"].shape == inputs["position_ids"].shape
            run.took(both(inputs["input_ids"], inputs["labels"][0, 1:]))
            # Numbers of the model's few words in the place of all those that are noted.
            labels = inputs["labels"]
            inputs["labels"] = torch.where(labels < 0, labels, labels % WORDS)
            inputs["input_ids"] = inputs["input_ids"] % WORDS
            return super().compute_loss(model, inputs, *arguments, **options)

    config = transformers.GPT2Config(vocab_size=WORDS, n_positions=CAPACITY, n_embd=4, n_layer=1, n_head=1)
    options: Any = {"bf16": False, "gradient_checkpointing": False} if kind == "sft" else {}
    if kind == "sft":
        options |= {"max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}}
    arguments = {"trainer": transformers.TrainingArguments, "sft": trl.SFTConfig}[kind](
        str(run.folder), use_cpu=True, seed=SEED, per_device_train_batch_size=size(run), report_to=[],
        disable_tqdm=True, logging_strategy="no", dataloader_pin_memory=False,
        save_strategy="no" if run.resumes else "steps", save_steps=run.stop, num_train_epochs=run.epochs, **options,
    )  # fmt: skip
    packs = {"pack": making(run)["pack"]}
    more = {} if kind == "trainer" else {"processing_class": tokenizer()}
    trainer = Noting(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=dataset(run), rowdex_options=packs, **more
    )
    trainer.train(resume_from_checkpoint=f"{run.folder}/checkpoint-{run.stop}" if run.resumes else None)


def tokenizer() -> Any:
    import tokenizers

    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def grain(run: Run) -> None:
    sharding = {"num_replicas": run.world, "rank": run.rank, "epochs": run.epochs}
    found = iter(rowdex.grain.IterDataset(dataset(run), **making(run, "rows", **sharding)))
    if run.resumes:
        found.set_state(run.kept())
    for batch in found:
        packs = rowdex.grain.maxtext(batch, COLUMN)
        assert packs["inputs"].shape == packs["targets_segmentation"].shape == (len(packs["inputs"]), CAPACITY)
        targets = packs["targets"][packs["targets_segmentation"] > 0]
        run.took(both(packs["inputs"][packs["inputs_segmentation"] > 0], targets))
        if run.saves():
            run.keep(found.get_state())


def jax(run: Run) -> None:
    options = making(run, "rows", num_replicas=run.world, rank=run.rank)
    loader = rowdex.jax.Loader(dataset(run), **options)
    if run.resumes:
        loader.load_state_dict(run.kept())
    while loader.epoch < run.epochs:
        for batch in loader:
            assert batch[COLUMN].shape == (size(run), CAPACITY)
            run.took(both(np.asarray(batch[COLUMN])[np.asarray(batch["segment_ids"]) > 0], batch["labels"]))
            if run.saves():
                run.keep(loader.state_dict())


def packed() -> Iterator[tuple[str, Callable[[Run], None]]]:
    """All of them, by name."""
    functions = {function.__name__: function for function in (own_loop, grain, jax)}
    functions |= {"accelerate loader": accelerated, "lightning module": fitted}
    yield from functions.items()
    for kind in ("trainer", "sft"):
        yield kind, functools.partial(trained, kind=kind)
