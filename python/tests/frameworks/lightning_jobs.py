"""Ranks that train with Lightning, forked by jobs.py."""

from __future__ import annotations

import os
import pathlib
import warnings
from typing import Any

import lightning
import pyarrow as pa
import pyarrow.parquet as pq
import rowdex
import rowdex.lightning
import rowdex.torch
import torch
import torch._dynamo  # Optimizers import it, which takes seconds: once here, not in every rank.
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import ModelParallelStrategy
from torch.utils.data import DataLoader

SIZE = 64
QUIET = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
warnings.filterwarnings("ignore")


class Model(lightning.LightningModule):
    """Notes the rows of every step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 5)
        self.epochs: list[list[list[int]]] = []
        self.evaluated: list[list[int]] = []
        self.lengths: set[int] = set()

    def on_train_epoch_start(self) -> None:
        self.epochs.append([])
        self.lengths.add(self.trainer.num_training_batches)

    def training_step(self, batch: Any, number: int) -> Any:
        if not self.epochs:
            # Nobody says that an epoch starts which goes on.
            self.on_train_epoch_start()
        self.epochs[-1].append(batch["id"].tolist())
        return torch.nn.functional.cross_entropy(self.layer(batch["x"]), batch["y"])

    def validation_step(self, batch: Any, number: int) -> None:
        self.evaluated.append(batch["id"].tolist())

    def predict_step(self, batch: Any, number: int) -> Any:
        return batch["id"]

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-6)


def trainer(**options: Any) -> Any:
    world = int(os.environ["WORLD_SIZE"])
    ddp: dict[str, Any] = {"strategy": "ddp"} if world > 1 else {}
    return lightning.Trainer(accelerator="cpu", devices=world, num_sanity_val_steps=0, **ddp, **(QUIET | options))


def plain(index: str, epochs: int) -> list[list[list[int]]]:
    """What the loader serves that no framework has touched."""
    loader = rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=SIZE, seed=3)
    return [[batch["id"].tolist() for batch in loader] for _ in range(epochs)]


def module(index: str, **options: Any) -> Any:
    return rowdex.lightning.DataModule(**{"train": rowdex.Dataset(index), "batch_size": SIZE, "seed": 3, **options})


def source(index: str, kind: str) -> Any:
    dataset = rowdex.torch.Dataset(index)
    if kind == "loader":
        return rowdex.Loader(dataset, batch_size=SIZE, seed=3)
    if kind == "fabric":
        return rowdex.lightning.FabricLoader(dataset, batch_size=SIZE, seed=3)
    if kind == "samples":
        return DataLoader(dataset, batch_size=SIZE, sampler=rowdex.DistributedSampler(dataset, seed=3))
    if kind == "batches":
        return DataLoader(dataset, batch_sampler=rowdex.torch.BatchSampler(dataset, SIZE, seed=3))
    if kind == "iterable":
        return DataLoader(rowdex.torch.IterableDataset(dataset, SIZE, seed=3), batch_size=None)
    raise ValueError(kind)


def fits(index: str, kind: str, epochs: int, injects: bool) -> dict[str, Any]:
    model = Model()
    data = {"datamodule": module(index)} if kind == "module" else {"train_dataloaders": source(index, kind)}
    trainer(max_epochs=epochs, use_distributed_sampler=injects).fit(model, **data)
    return {"found": model.epochs, "plain": plain(index, epochs), "lengths": sorted(model.lengths)}


def stops(index: str, kind: str, folder: str, steps: int, when: str, injects: bool = True) -> dict[str, Any]:
    """Saves a checkpoint after so many steps: `within` the epoch, at its `end`, or `after` the run."""
    model = Model()
    data = {"datamodule": module(index)} if kind == "module" else {"train_dataloaders": source(index, kind)}
    if when == "after":
        run = trainer(max_steps=steps)
        run.fit(model, **data)
        run.save_checkpoint(f"{folder}/run.ckpt")
    else:
        saves: dict[str, Any] = {"every_n_train_steps": steps} if when == "within" else {"every_n_epochs": 1}
        ends: dict[str, Any] = {"max_steps": steps + 2} if when == "within" else {"max_epochs": 1}
        checkpoint = ModelCheckpoint(folder, "run", save_on_train_epoch_end=when == "end", **saves)
        options: dict[str, Any] = {"enable_checkpointing": True, "use_distributed_sampler": injects}
        trainer(**ends, **options, callbacks=[checkpoint]).fit(model, **data)
    return {"found": [batch for epoch in model.epochs for batch in epoch][:steps]}


def goes_on(index: str, kind: str, folder: str, epochs: int, injects: bool = True) -> dict[str, Any]:
    model = Model()
    data = {"datamodule": module(index)} if kind == "module" else {"train_dataloaders": source(index, kind)}
    run = trainer(max_epochs=epochs, use_distributed_sampler=injects)
    run.fit(model, **data, ckpt_path=f"{folder}/run.ckpt")
    return {"found": model.epochs, "plain": plain(index, epochs), "lengths": sorted(model.lengths)}


def evaluates(index: str) -> dict[str, Any]:
    model = Model()
    run = trainer(max_epochs=1)
    dataset = rowdex.Dataset(index)
    tail: dict[str, Any] = {"shuffle": False, "tail": "uneven"}
    data = module(index, val=dataset, predict=lambda: rowdex.Loader(dataset, batch_size=100, **tail))
    run.fit(model, datamodule=data)
    during = model.evaluated
    model.evaluated = []
    run.validate(model, datamodule=data, verbose=False)
    predicted = [rows.tolist() for rows in run.predict(model, datamodule=data)]
    return {"during": during, "validated": model.evaluated, "predicted": predicted}


def evaluates_as_it_trains(index: str) -> list[Any]:
    """What the loaders of evaluation are made with, where ranks get the same rows or rows come in buckets."""
    pathlib.Path("lengths").mkdir()
    pq.write_table(pa.table({"tokens": [[1] * (row % 7 + 1) for row in range(101)]}), "lengths/0.parquet")
    rowdex.build("lengths", "lengths.rdx", lengths=["tokens"], progress=False)
    ranks: dict[str, Any] = {"num_replicas": 4, "rank": 3, "replication": (2, "strided")}
    specs = [module(index, val=rowdex.Dataset(index), **ranks).val_dataloader().spec]
    rows = []
    for rank in range(2):
        made = module(
            index, val=rowdex.Dataset("lengths.rdx"), num_replicas=2, rank=rank, output="numpy",
            pack=rowdex.Pack("tokens", algorithm="buckets"), row_ids="row",
        )  # fmt: skip
        rows += [row for batch in made.val_dataloader() for row in batch["row"].tolist()]
    return [[spec.world_size, spec.rank, spec.replicas, spec.replica_layout] for spec in specs] + [sorted(rows)]


class InParts(Model):
    """A model of which ranks may hold parts."""

    def configure_model(self) -> None:
        pass


def fits_in_parts(index: str, parts: int) -> dict[str, Any]:
    """An epoch of training and of validation where so many ranks hold parts of one model."""
    world = int(os.environ["WORLD_SIZE"])
    strategy = ModelParallelStrategy(data_parallel_size=world // parts, tensor_parallel_size=parts)
    model = InParts()
    run = lightning.Trainer(
        accelerator="cpu", devices=world, strategy=strategy, max_epochs=1, num_sanity_val_steps=0, **QUIET
    )
    run.fit(model, datamodule=module(index, val=rowdex.Dataset(index)))
    return {"found": model.epochs[0], "evaluated": model.evaluated}


def overfits(index: str) -> dict[str, Any]:
    """Three batches of training and validation, in each of three epochs."""
    model = Model()
    run = trainer(max_epochs=3, overfit_batches=3)
    run.fit(model, datamodule=module(index, val=rowdex.Dataset(index)))
    return {"found": model.epochs, "plain": plain(index, 1), "evaluated": model.evaluated}


def resumes_everywhere(index: str, folder: str, steps: int, workers: int, **options: Any) -> list[Any]:
    """A run of three epochs that saves a checkpoint after each of them and every few steps, and for each checkpoint the
    batches of all of its epochs, as many as were left.
    """
    data = rowdex.torch.Dataset(index, ["id", "x", "y"]) if workers else rowdex.Dataset(index)
    saved = [
        ModelCheckpoint(folder, "{step}-within", save_top_k=-1, every_n_train_steps=steps),
        ModelCheckpoint(folder, "{step}-end", save_top_k=-1, every_n_epochs=1, save_on_train_epoch_end=True),
    ]
    whole = Model()
    run = trainer(max_epochs=3, enable_checkpointing=True, callbacks=saved, **options)
    run.fit(whole, datamodule=module(index, train=data, workers=workers))
    found: list[Any] = [whole.epochs]
    for path in sorted(pathlib.Path(folder).glob("*.ckpt")):
        model = Model()
        resumed = trainer(max_epochs=3, **options)
        resumed.fit(model, datamodule=module(index, train=data, workers=workers), ckpt_path=path)
        found.append([path.name, model.epochs])
    return found


def shares(index: str) -> dict[str, Any]:
    """All loaders of a rank under one name, and windows of a batch: validation is within the epochs of training."""
    model = Model()
    dataset = rowdex.Dataset(index)
    share = rowdex.Share(name="all", job=os.getcwd(), ranks=2)
    data = module(index, train=dataset, val=dataset, memory="64KiB", share=share)
    trainer(max_epochs=2, val_check_interval=30).fit(model, datamodule=data)
    return {"found": model.epochs, "plain": plain(index, 2), "evaluated": model.evaluated}


def launched_late(index: str) -> str:
    """Lightning forks the ranks itself, from a process that has made the loader."""
    loader = source(index, "loader")
    run = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp_fork", max_epochs=1, **QUIET)
    run.fit(Model(), loader)
    return "no error"


class Counting(Model):
    def on_train_end(self) -> None:
        pathlib.Path(f"steps-{self.global_rank}").write_text(str(len(self.epochs[-1])))


def launched_with_a_module(index: str) -> list[int]:
    run = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp_fork", max_epochs=1, **QUIET)
    run.fit(Counting(), datamodule=module(index))
    return [int(pathlib.Path(f"steps-{rank}").read_text()) for rank in range(2)]


def fabric(index: str, kind: str, stop: int) -> dict[str, Any]:
    run = lightning.Fabric(accelerator="cpu", devices=2, strategy="ddp")
    run.launch()
    loader = source(index, kind)
    set_up = run.setup_dataloaders(loader)
    found: list[list[list[int]]] = [[batch["id"].tolist() for batch in set_up], []]
    for batch in set_up:
        found[-1].append(batch["id"].tolist())
        if len(found[-1]) == stop:
            break
    if kind == "fabric":
        run.save("fabric.ckpt", {"loader": loader})
        again = source(index, kind)
        run.load("fabric.ckpt", {"loader": again})
        other = run.setup_dataloaders(again)
        found[-1] += [batch["id"].tolist() for batch in other]
        found.append([batch["id"].tolist() for batch in other])
    return {"found": found, "plain": plain(index, 3), "len": len(set_up)}


def goes_on_as_told(index: str, kind: str, folder: str, epochs: int, step: int) -> dict[str, Any]:
    """Loads the state that the error names into the sampler or the dataset of a DataLoader."""
    model, data = Model(), source(index, kind)
    if kind == "iterable":
        data.dataset.load_run_state(data.dataset.state_after(0, step))
    else:
        sampler = data.sampler if kind == "samples" else data.batch_sampler
        sampler.load_state_dict(sampler.state_after(0, step))
    trainer(max_epochs=epochs, use_distributed_sampler=False).fit(model, data, ckpt_path=f"{folder}/run.ckpt")
    return {"found": model.epochs, "plain": plain(index, epochs)}


class Failing(Model):
    """Saves a checkpoint within a step, and takes no further."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 30:
            self.trainer.save_checkpoint("failed.ckpt")
            raise KeyError("a step that fails")
        return super().training_step(batch, batch_idx)


def fails_within_a_step(index: str, workers: int) -> dict[str, Any]:
    """Goes on from the checkpoint of a step that was under way."""
    options: dict[str, Any] = {"collate": collated, "workers": workers} if workers else {}
    models = [Failing(), Model()]
    for number, model in enumerate(models):
        data = module(index, train=rowdex.torch.Dataset(index), **options)
        try:
            trainer(max_epochs=2).fit(model, datamodule=data, ckpt_path="failed.ckpt" if number else None)
        except KeyError:
            pass
    before, after = models
    return {"found": [before.epochs[0] + after.epochs[0], *after.epochs[1:]], "plain": plain(index, 2)}


def collated(samples: Any) -> Any:
    return {name: torch.stack([torch.as_tensor(sample[name]) for sample in samples]) for name in ("id", "x", "y")}


def misused(index: str) -> list[str]:
    """Loaders that Lightning makes of options that do not go together."""
    dataset = rowdex.torch.Dataset(index)
    errors = []
    for options in ({"collate": {"x": list}, "workers": 1}, {"workers": 1, "memory": "1MiB"}, {"collate": collated}):
        try:
            train = dataset if "workers" in options else rowdex.Dataset(index)
            data = module(index, train=train, **options)
            trainer(max_epochs=1).fit(Model(), datamodule=data)
        except TypeError as error:
            errors.append(str(error))
    return errors
