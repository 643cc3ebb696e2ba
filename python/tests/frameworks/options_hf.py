"""Options of the Trainer of Hugging Face."""

from __future__ import annotations

import os
from typing import Any

import accelerate
import rowdex
import rowdex.accelerate
import rowdex.torch
import tokenizers
import torch
import transformers
import transformers_jobs
from option_cases import INDEX, SIZE, TOKENS, error_of, honours, ids, plain, refuses


def tokenizer() -> Any:
    words = {"<pad>": 0, "<eos>": 1} | {f"w{number}": number for number in range(2, 8)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<pad>"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="<pad>", eos_token="<eos>")


def trainer(kind: str = "loader", **options: Any) -> Any:
    return transformers_jobs.trainer(INDEX, kind, "out", **options)


def trained(kind: str = "loader", **options: Any) -> Any:
    found = trainer(kind, **options)
    found.train()
    return found


KINDS = ("loader", "samples")


def of_all_ranks(rows: list[int]) -> list[int]:
    found: list[list[int]] = [[]] * int(os.environ["WORLD_SIZE"])
    if len(found) == 1:
        return rows
    torch.distributed.all_gather_object(found, rows)
    return [row for each in found for row in each]


@honours("TrainingArguments", "per_device_train_batch_size", "seed", "data_seed")
def the_batches_of_training_have_the_size_and_the_seed() -> None:
    for kind in KINDS:
        assert ids(trainer(kind, size=32).get_train_dataloader()) == plain(32)
        assert ids(trainer(kind, data_seed=5).get_train_dataloader()) == plain(seed=5)


@honours("TrainingArguments", "max_steps", "num_train_epochs", "gradient_accumulation_steps")
def training_takes_as_many_batches_as_it_is_told_to() -> None:
    for kind in KINDS:
        assert trained(kind, max_steps=3, gradient_accumulation_steps=2).noted == plain()[:6]
    assert len(trained(num_train_epochs=2, size=500).noted) == 2 * len(plain(500))


@honours("TrainingArguments", "train_sampling_strategy")
def rows_may_come_in_order() -> None:
    for kind in KINDS:
        assert ids(trainer(kind, train_sampling_strategy="sequential").get_train_dataloader()) == plain(shuffle=False)


@honours("TrainingArguments", "dataloader_drop_last")
def a_short_last_batch_is_left_out() -> None:
    for kind in KINDS:
        found = ids(trainer(kind, dataloader_drop_last=True).get_train_dataloader())
        assert found == plain(drop_last="batch") and {len(batch) for batch in found} == {SIZE}


@honours(
    "TrainingArguments", "dataloader_num_workers", "dataloader_prefetch_factor", "dataloader_persistent_workers",
    "dataloader_multiprocessing_context", "dataloader_pin_memory",
)  # fmt: skip
def workers_are_those_of_the_data_loader() -> None:
    options = {
        "dataloader_num_workers": 1, "dataloader_prefetch_factor": 3, "dataloader_persistent_workers": True,
        "dataloader_multiprocessing_context": "fork",
    }  # fmt: skip
    run = trainer("samples", **options)
    loader = run.get_train_dataloader()
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (1, 3, True)
    assert loader.multiprocessing_context.get_start_method() == "fork" and not loader.pin_memory
    assert loader.worker_init_fn.func is transformers.trainer_utils.seed_worker
    assert ids(loader) == plain()
    evaluating = run.get_test_dataloader(run.train_dataset)
    assert evaluating.num_workers == 1 and not evaluating.persistent_workers
    run.args.dataloader_pin_memory = True
    assert run.get_train_dataloader().pin_memory
    # Options of workers where there are none are not left out in silence.
    for name, value in {"dataloader_persistent_workers": True, "dataloader_multiprocessing_context": "fork"}.items():
        for kind in KINDS:
            error = error_of(lambda: trainer(kind, **{name: value}).get_train_dataloader())
            assert name.removeprefix("dataloader_") in error or "options of workers" in error, error


@honours("TrainingArguments", "remove_unused_columns", "label_names")
def columns_that_the_model_does_not_take_are_not_read() -> None:
    def columns(**options: Any) -> list[str]:
        run = trainer("samples", **options)
        run.train_dataset = rowdex.torch.Dataset(TOKENS)
        return list(run.get_train_dataloader().dataset.column_names)

    assert columns() == ["id", "input_ids", "text"]
    for used, names in {(): ["input_ids"], ("id",): ["id", "input_ids"]}.items():
        run = trainer("samples", label_names=list(used) or None)
        run.args.remove_unused_columns, run.train_dataset = True, rowdex.torch.Dataset(TOKENS)
        assert run.get_train_dataloader().dataset.column_names == names


@honours("TrainingArguments", "auto_find_batch_size")
def a_smaller_batch_is_found() -> None:
    for kind in KINDS:
        run = trainer(kind, auto_find_batch_size=True, max_steps=2)
        step = run.training_step

        def training_step(model: Any, inputs: Any, *arguments: Any) -> Any:
            if len(inputs["input_ids"]) == SIZE:
                raise RuntimeError("CUDA out of memory.")
            return step(model, inputs, *arguments)

        run.training_step = training_step
        run.train()
        assert run.noted == plain(run.state.train_batch_size)[:2] and run.state.train_batch_size < SIZE


@honours("TrainingArguments", "ignore_data_skip")
def an_epoch_may_begin_again() -> None:
    for kind in KINDS:
        options = {"save_strategy": "steps", "save_steps": 2, "max_steps": 2}
        transformers_jobs.trainer(INDEX, kind, kind, **options).train()
        again = transformers_jobs.trainer(INDEX, kind, kind, max_steps=4, ignore_data_skip=True)
        again.train(resume_from_checkpoint=f"{kind}/checkpoint-2")
        assert again.noted == plain()[:2]


@honours("TrainingArguments", "parallelism_config")
def ranks_that_share_a_batch_are_one() -> None:
    class Mesh:
        """Two replicas of the data, each of four ranks."""

        mesh_dim_names = ("dp_shard", "cp", "tp")
        mesh = torch.arange(8).reshape(2, 2, 2)

    found = [rowdex.accelerate.data_ranks(Mesh(), rank) for rank in range(8)]
    assert found == [(2, 0)] * 4 + [(2, 1)] * 4


refuses(
    "TrainingArguments", "train_sampling_strategy",
    *(
        lambda kind=kind, way=way: trainer(kind, train_sampling_strategy=way).get_train_dataloader()
        for kind in KINDS for way in ("group_by_length", "batch_rebalance")
    ),
)  # fmt: skip
refuses(
    "TrainingArguments", "dataloader_in_order",
    *(lambda kind=kind: trainer(kind, dataloader_in_order=False).get_train_dataloader() for kind in KINDS),
)  # fmt: skip


def parallel(kind: str) -> Any:
    run = trainer(kind)
    run.args.parallelism_config = accelerate.ParallelismConfig(sp_size=2, sp_backend="deepspeed")
    return run.get_train_dataloader()


refuses("TrainingArguments", "parallelism_config", *(lambda kind=kind: parallel(kind) for kind in KINDS))


def configured(kind: str, **options: Any) -> Any:
    run = trainer(kind, accelerator_config=options)
    return run.get_train_dataloader(), run.get_test_dataloader(run.train_dataset)


for _name, _value in {"split_batches": True, "dispatch_batches": True, "even_batches": False}.items():
    refuses(
        "AcceleratorConfig", _name,
        *(lambda kind=kind, name=_name, value=_value: configured(kind, **{name: value}) for kind in KINDS),
    )  # fmt: skip


@honours("AcceleratorConfig", "non_blocking")
def copies_are_not_waited_for() -> None:
    for kind in KINDS:
        training, evaluating = configured(kind, non_blocking=True)
        assert ids(training) == plain()
        # Those of training over a DataLoader are made by the Trainer, which waits.
        assert kind == "samples" or training._non_blocking and evaluating._non_blocking


@honours("Trainer", "train_dataset", "eval_dataset")
def datasets_are_those_of_rowdex_several_to_evaluate_among_them() -> None:
    for kind in KINDS:
        run = trainer(kind)
        run.eval_dataset = {"one": run.train_dataset, "two": run.train_dataset}
        found = run.evaluate()
        assert {"eval_one_loss", "eval_two_loss"} <= set(found)
        # Which rank has which samples of a stock DataLoader, Accelerate decides.
        every = of_all_ranks([row for batch in run.evaluated for row in batch])
        assert sorted(every) == sorted(2 * of_all_ranks([row for batch in plain(shuffle=False) for row in batch]))


@honours("Trainer", "processing_class")
def a_tokenizer_collates_samples() -> None:
    run = transformers_jobs.Trainer(
        transformers_jobs.model(), transformers.TrainingArguments("out", use_cpu=True, report_to=[]),
        train_dataset=rowdex.Dataset(TOKENS, ["input_ids"]), processing_class=tokenizer(),
    )  # fmt: skip
    error = error_of(run.get_train_dataloader)
    assert error.startswith("TypeError") and "rowdex.torch.Dataset" in error and "default_data_collator" in error
    run.train_dataset = rowdex.torch.Dataset(TOKENS, ["input_ids"])
    assert next(iter(run.get_train_dataloader()))["attention_mask"].shape[0] == 8
