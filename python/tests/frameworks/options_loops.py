"""Options of the Trainer of Lightning, and of Accelerate."""

from __future__ import annotations

import os
from typing import Any

import accelerate
import accelerate_jobs
import lightning
import lightning_jobs
import rowdex
import rowdex.accelerate
import torch
from lightning.fabric.utilities import move_data_to_device
from option_cases import INDEX, SIZE, TOKENS, clear, honours, ids, plain
from options_hf import ranks_that_share_a_batch_are_one


def fitted(module: dict[str, Any] | None = None, **options: Any) -> Any:
    found = lightning_jobs.Model()
    lightning_jobs.trainer(**options).fit(found, datamodule=lightning_jobs.module(INDEX, **(module or {})))
    return found


def plain_epochs(number: int) -> list[list[list[int]]]:
    loader = rowdex.Loader(rowdex.Dataset(INDEX, ["id"]), batch_size=SIZE, seed=3)
    return [ids(loader) for _ in range(number)]


def validated(times: int, steps: int, **options: Any) -> None:
    """That each validation has the same first steps of the dataset, in order."""
    whole = plain(shuffle=False, tail="uneven")
    found = fitted({"val": rowdex.Dataset(INDEX)}, **options).evaluated
    assert found == whole[:steps] * times, [len(found), steps, times]


@honours("lightning.Trainer", "fast_dev_run", "max_steps", "max_epochs")
def a_run_is_as_long_as_it_is_told_to() -> None:
    assert fitted(fast_dev_run=2).epochs == [plain()[:2]]
    assert fitted(max_steps=3).epochs == [plain()[:3]]
    assert [len(epoch) for epoch in fitted({"batch_size": 500}, max_epochs=2).epochs] == [len(plain(500))] * 2


@honours("lightning.Trainer", "limit_train_batches")
def epochs_are_cut_short_and_the_next_is_shuffled_anew() -> None:
    assert fitted(max_epochs=3, limit_train_batches=3).epochs == [epoch[:3] for epoch in plain_epochs(3)]


@honours(
    "lightning.Trainer", "limit_val_batches", "val_check_interval", "check_val_every_n_epoch", "num_sanity_val_steps"
)
def validations_begin_at_the_first_row() -> None:
    steps = len(plain())
    validated(2, steps, max_epochs=2)
    validated(2, 2, max_epochs=2, limit_val_batches=2)
    times = min(15, steps) // 5
    validated(times, 2, max_epochs=1, limit_val_batches=2, val_check_interval=5, limit_train_batches=15)
    validated(1, 2, max_epochs=2, limit_val_batches=2, check_val_every_n_epoch=2)
    whole = plain(shuffle=False, tail="uneven")
    found, data = lightning_jobs.Model(), lightning_jobs.module(INDEX, val=rowdex.Dataset(INDEX))
    ranks = {"accelerator": "cpu", "devices": int(os.environ["WORLD_SIZE"])}
    lightning.Trainer(max_epochs=1, num_sanity_val_steps=2, **ranks, **lightning_jobs.QUIET).fit(found, datamodule=data)
    assert found.evaluated == whole[:2] + whole


@honours("lightning.Trainer", "limit_test_batches", "limit_predict_batches")
def tests_and_predictions_begin_at_the_first_row() -> None:
    run = lightning_jobs.trainer(limit_test_batches=2, limit_predict_batches=3)
    data = lightning_jobs.module(INDEX, test=rowdex.Dataset(INDEX), predict=rowdex.Dataset(INDEX))
    whole, found = plain(shuffle=False, tail="uneven"), lightning_jobs.Model()
    found.test_step = found.validation_step
    for _ in range(2):
        run.test(found, datamodule=data, verbose=False)
        assert [rows.tolist() for rows in run.predict(found, datamodule=data)] == whole[:3]
    assert found.evaluated == whole[:2] * 2


@honours("lightning.Trainer", "reload_dataloaders_every_n_epochs")
def loaders_that_are_made_again_have_the_next_epoch() -> None:
    assert fitted(max_epochs=3, reload_dataloaders_every_n_epochs=1).epochs == plain_epochs(3)


@honours("Accelerator", "device_placement", "parallelism_config")
def batches_go_where_the_loader_was_told() -> None:
    made = accelerate.Accelerator(cpu=True, device_placement=False)
    options = {"batch_size": SIZE, "seed": 3}
    loader = made.prepare(rowdex.accelerate.Loader(rowdex.Dataset(INDEX, ["id"]), device="meta", **options))
    assert {batch["id"].device.type for batch in loader} == {"meta"}
    loader = rowdex.accelerate.Loader(rowdex.Dataset(INDEX, ["id"]), device="none", **options)
    assert loader.device is None and ids(made.prepare(loader)) == plain()
    # Columns of several arrays are moved, too, by Accelerate and by Lightning.
    lists = rowdex.accelerate.Loader(rowdex.Dataset(TOKENS, ["input_ids"]), device="meta", **options)
    here = rowdex.accelerate.Loader(rowdex.Dataset(TOKENS, ["input_ids"]), device="none", **options)
    moved = [batch["input_ids"] for batch in lists]
    moved += [move_data_to_device(batch, torch.device("meta"))["input_ids"] for batch in here]
    assert {column.values.device.type for column in moved} == {"meta"} and len(moved) == 2 * len(here)
    ranks_that_share_a_batch_are_one()


@honours("DataLoaderConfiguration", "use_seedable_sampler", "data_seed", "non_blocking", "use_stateful_dataloader")
def batches_are_rowdexs_whatever_is_configured() -> None:
    for name, value in {
        "use_seedable_sampler": True, "data_seed": 9, "non_blocking": True, "use_stateful_dataloader": True,
    }.items():  # fmt: skip
        for kind in ("loader", "global"):
            clear()
            assert ids(accelerate_jobs.prepared(INDEX, kind, **{name: value})[1]) == plain(), (name, kind)
