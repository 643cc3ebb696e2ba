"""Ranks that are killed in mid-epoch and go on from the checkpoint of their framework, forked by jobs.py.

Each integration is a function of a :class:`Run`, and serves rows; those that serve packs are in resume_packs.py.
"""

from __future__ import annotations

import functools
import json
import os
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

import accelerate
import lightning
import numpy as np
import rowdex
import rowdex.accelerate
import rowdex.dali
import rowdex.grain
import rowdex.jax
import rowdex.lightning
import rowdex.torch
import rowdex.transformers
import torch
import torch._dynamo  # Optimizers import it, which takes seconds: once here, not in every rank.
import torchdata.nodes
import transformers
import transformers.models.gpt2.modeling_gpt2
import transformers.trainer  # What transformers imports when it is needed, as above.
from accelerate.utils import DataLoaderConfiguration
from lightning.pytorch.callbacks import ModelCheckpoint
from resume_packs import packed
from resume_run import SEED, Run, loop
from torch.distributed import checkpoint
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

KINDS = ("batches", "samples", "iterable")
warnings.filterwarnings("ignore")


def own_loop(run: Run) -> None:
    loader = rowdex.Loader(run.dataset(), batch_size=run.size, seed=SEED)
    if run.resumes:
        loader.load_state_dict(run.kept())
    loop(run, loader, lambda *_: run.keep(loader.state_dict()), loader.epoch)


def batches(run: Run) -> None:
    dataset = run.dataset()
    sampler = rowdex.torch.BatchSampler(dataset, run.size, seed=SEED)
    if run.resumes:
        sampler.load_state_dict(run.kept())
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=1)
    loop(run, loader, lambda epoch, step: run.keep(sampler.state_after(epoch, step)), run.epoch)


def samples(run: Run) -> None:
    dataset = run.dataset()
    sampler = rowdex.DistributedSampler(dataset, batch_size=run.size, seed=SEED)
    if run.resumes:
        sampler.load_state_dict(run.kept())
    loader = DataLoader(dataset, batch_size=run.size, sampler=sampler, num_workers=1)
    loop(run, loader, lambda epoch, step: run.keep(sampler.state_after(epoch, step)), run.epoch)


def iterable(run: Run) -> None:
    dataset = rowdex.torch.IterableDataset(run.dataset(), run.size, seed=SEED)
    if run.resumes:
        dataset.load_run_state(run.kept())
    loader = DataLoader(dataset, batch_size=None, num_workers=1)
    loop(run, loader, lambda epoch, step: run.keep(dataset.state_after(epoch, step)), run.epoch)


def stateful_loader(run: Run, kind: str) -> Any:
    dataset = run.dataset()
    if kind == "batches":
        sampler: Any = rowdex.torch.BatchSampler(dataset, run.size, seed=SEED)
        return StatefulDataLoader(dataset, batch_sampler=sampler, num_workers=1)
    if kind == "samples":
        sampler = rowdex.DistributedSampler(dataset, seed=SEED)
        return StatefulDataLoader(dataset, batch_size=run.size, sampler=sampler, num_workers=1)
    batches: Any = rowdex.torch.IterableDataset(dataset, run.size, seed=SEED)
    return StatefulDataLoader(batches, batch_size=None, num_workers=1)


def stateful(run: Run, kind: str) -> None:
    loader = stateful_loader(run, kind)
    if run.resumes:
        loader.load_state_dict(run.kept(run.own))
    loop(run, loader, lambda *_: run.keep(loader.state_dict(), run.own), run.epoch)


def nodes(run: Run) -> None:
    made = rowdex.Loader(run.dataset(), batch_size=run.size, seed=SEED)
    node: Any = torchdata.nodes.IterableWrapper(made)
    loader: Any = torchdata.nodes.Loader(torchdata.nodes.Prefetcher(node, prefetch_factor=2))
    if run.resumes:
        loader.load_state_dict(run.kept())
    loop(run, loader, lambda *_: run.keep(loader.state_dict()), run.epoch)


def distributed_checkpoint(run: Run) -> None:
    loader = rowdex.Loader(run.dataset(), batch_size=run.size, seed=SEED)
    folder = str(run.folder / "checkpoint")
    if run.resumes:
        checkpoint.load({"loader": loader}, checkpoint_id=folder)
    loop(run, loader, lambda *_: checkpoint.save({"loader": loader}, checkpoint_id=folder), loader.epoch)


def accelerated(run: Run, kind: str) -> None:
    stateful = DataLoaderConfiguration(use_stateful_dataloader=True)
    made = accelerate.Accelerator(cpu=True, dataloader_config=stateful)
    dataset = run.dataset()
    if kind == "loader":
        loader: Any = rowdex.accelerate.Loader(dataset, batch_size=run.size, seed=SEED)
    else:
        dealt = rowdex.torch.GlobalBatchSampler(dataset, run.size, seed=SEED)
        loader = DataLoader(dataset, batch_sampler=dealt, num_workers=1)
    model, loader = made.prepare(torch.nn.Linear(3, 5), loader)
    folder = str(run.folder / "checkpoint")
    if run.resumes:
        made.load_state(folder)
        if kind == "global":
            loader.set_epoch(run.epoch)
    loop(run, loader, lambda *_: made.save_state(folder), run.epoch)


class Fitted(lightning.LightningModule):
    def __init__(self, run: Run) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 5)
        self.run = run

    def training_step(self, batch: Any, number: int) -> Any:
        self.run.took(batch["id"])
        return torch.nn.functional.cross_entropy(self.layer(batch["x"]), batch["y"])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def collated(samples: Any) -> Any:
    return {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in ("id", "x", "y")}


def fitted(run: Run, kind: str) -> None:
    if kind == "module":
        data: Any = {"datamodule": rowdex.lightning.DataModule(run.dataset(), batch_size=run.size, seed=SEED)}
    elif kind == "module of samples":
        options: Any = {"collate": collated, "workers": 1}
        data = {"datamodule": rowdex.lightning.DataModule(run.dataset(), batch_size=run.size, seed=SEED, **options)}
    elif kind == "loader":
        data = {"train_dataloaders": rowdex.Loader(run.dataset(), batch_size=run.size, seed=SEED)}
    else:
        data = {"train_dataloaders": stateful_loader(run, kind.split()[0])}
    saves = ModelCheckpoint(run.folder, "run", every_n_train_steps=run.stop, save_on_train_epoch_end=False)
    trainer = lightning.Trainer(
        accelerator="cpu", devices=run.world, num_sanity_val_steps=0, max_epochs=run.epochs, logger=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False,
        enable_checkpointing=not run.resumes, callbacks=[] if run.resumes else [saves],
        **({"strategy": "ddp"} if run.world > 1 else {}),
    )  # fmt: skip
    trainer.fit(Fitted(run), **data, ckpt_path=f"{run.folder}/run.ckpt" if run.resumes else None)


def fabric(run: Run) -> None:
    made = lightning.Fabric(accelerator="cpu", devices=run.world, strategy="ddp" if run.world > 1 else "auto")
    made.launch()
    mine = rowdex.lightning.FabricLoader(run.dataset(), batch_size=run.size, seed=SEED)
    loader = made.setup_dataloaders(mine)
    path = str(run.folder / "fabric.ckpt")
    if run.resumes:
        made.load(path, {"loader": mine})
    for _ in range(mine.epoch, run.epochs):
        for batch in loader:
            run.took(batch["id"])
            if run.saves():
                made.save(path, {"loader": mine})


def tokens(batch: Any) -> Any:
    ids = batch["x"].long()
    return {"input_ids": ids, "labels": ids, "id": batch["id"]}


def token_samples(samples: Any) -> Any:
    return tokens({name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in ("id", "x")})


def trained(run: Run, kind: str) -> None:
    """With the mixin or without (`bare`), with the loaders that it makes or one that a user prepares."""
    bare = kind.startswith("bare ")
    kind = kind.removeprefix("bare ")

    class Noting(transformers.Trainer):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
            run.took(inputs.pop("id"))
            return super().compute_loss(model, inputs, *arguments, **options)

    bases: Any = (Noting,) if bare else (rowdex.transformers.TrainerMixin, Noting)
    prepared: Any = {"get_train_dataloader": lambda self: by_hand(run, kind, self.accelerator)}
    config = transformers.GPT2Config(vocab_size=8, n_positions=4, n_embd=4, n_layer=1, n_head=1)
    arguments = transformers.TrainingArguments(
        str(run.folder), use_cpu=True, seed=SEED, per_device_train_batch_size=run.size, report_to=[],
        disable_tqdm=True, logging_strategy="no", remove_unused_columns=False, dataloader_pin_memory=False,
        save_strategy="no" if run.resumes else "steps", save_steps=run.stop, num_train_epochs=run.epochs,
        dataloader_num_workers=1 if kind == "samples" else 0,
    )  # fmt: skip
    options: dict[str, Any] = {"train_dataset": run.dataset()}
    if kind == "loader":
        options["rowdex_options"] = {"map": tokens, "threads": 0}
    else:
        options["data_collator"] = token_samples
    own = types.new_class("Own", bases, exec_body=lambda names: names.update(prepared if "own" in kind else {}))
    trainer = own(transformers.GPT2LMHeadModel(config), arguments, **options)
    trainer.train(resume_from_checkpoint=f"{run.folder}/checkpoint-{run.stop}" if run.resumes else None)


def by_hand(run: Run, kind: str, made: Any) -> Any:
    dataset = run.dataset()
    if kind == "own loader":
        return made.prepare(rowdex.accelerate.Loader(dataset, batch_size=run.size, seed=SEED, map=tokens))
    if kind == "own global":
        dealt = rowdex.torch.GlobalBatchSampler(dataset, run.size, seed=SEED)
        return made.prepare(DataLoader(dataset, batch_sampler=dealt, collate_fn=token_samples, num_workers=1))
    sampler = rowdex.torch.BatchSampler(dataset, run.size, seed=SEED)
    return DataLoader(dataset, batch_sampler=sampler, collate_fn=token_samples)


def grain(run: Run) -> None:
    sharding = {"num_replicas": run.world, "rank": run.rank}
    found = iter(rowdex.grain.IterDataset(run.dataset(), run.size, seed=SEED, epochs=run.epochs, **sharding))
    if run.resumes:
        found.set_state(run.kept())
    for batch in found:
        run.took(batch["id"])
        if run.saves():
            run.keep(found.get_state())


def jax(run: Run) -> None:
    options: Any = {"num_replicas": run.world, "rank": run.rank, "valid": "valid"}
    loader = rowdex.jax.Loader(rowdex.Dataset(run.index, ["id"]), batch_size=run.size, seed=SEED, **options)
    if run.resumes:
        loader.load_state_dict(run.kept())
    while loader.epoch < run.epochs:
        for batch in loader:
            run.took(np.asarray(batch["id"])[np.asarray(batch["valid"])])
            if run.saves():
                run.keep(loader.state_dict())


def dali(run: Run) -> None:
    """As a pipeline asks the source of ``fn.external_source``."""
    source = rowdex.dali.Batches(rowdex.Dataset(run.index, ["id"]), run.size, seed=SEED)
    if run.resumes:
        source.load_state_dict(run.kept())
    for epoch in range(run.epochs - source.epoch):
        for step in range(len(source)):
            try:
                (ids,) = source(types.SimpleNamespace(epoch_idx=epoch, iteration=step))
            except StopIteration:
                break
            run.took(ids)
            if run.saves():
                run.keep(source.state_after(epoch, step))


def ray(run: Run) -> None:
    """What a training function does; rank and world size are those of its process group."""
    loader = rowdex.Loader(run.dataset(), batch_size=run.size, seed=SEED)
    path = run.folder / "loader.json"
    if run.resumes:
        loader.load_state_dict(json.loads(path.read_text()))
    loop(run, loader, lambda *_: path.write_text(json.dumps(loader.state_dict())), loader.epoch)


def integrations() -> Iterator[tuple[str, Callable[[Run], None]]]:
    """All of them, by name."""
    loops = (own_loop, batches, samples, iterable, nodes, distributed_checkpoint)
    for function in (*loops, fabric, grain, jax, dali, ray):
        yield function.__name__, function
    for kind in KINDS:
        yield f"stateful {kind}", functools.partial(stateful, kind=kind)
    for kind in ("loader", "global"):
        yield f"accelerate {kind}", functools.partial(accelerated, kind=kind)
    loaders = [f"{kind} stateful" for kind in KINDS]
    for kind in ("module", "module of samples", "loader", *loaders):
        yield f"lightning {kind}", functools.partial(fitted, kind=kind)
    own = [f"{how}own {kind}" for how in ("", "bare ") for kind in ("loader", "global", "batches")]
    for kind in ("loader", "samples", *own):
        yield f"trainer {kind}", functools.partial(trained, kind=kind)
    for name, function in packed():
        yield f"packs {name}", function


def names() -> list[str]:
    return [name for name, _ in integrations()]


def trains(integration: str, **options: Any) -> int:
    run = Run(**options)
    dict(integrations())[integration](run)
    return run.steps
