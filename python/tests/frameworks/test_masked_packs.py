"""Packs of rows of which some tokens have no labels: each token that has one is trained on once, and no other one."""

from __future__ import annotations

import collections
import pathlib
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need

torch = need("torch")
need("accelerate", "lightning", "tokenizers", "transformers", "trl")

import lightning  # noqa: E402
import rowdex.lightning  # noqa: E402
import rowdex.transformers  # noqa: E402
import tokenizers  # noqa: E402
import transformers  # noqa: E402
import trl  # noqa: E402

CAPACITY, WORDS, ROWS = 32, 8, 90
LENGTHS = [(7 * row * row) % 61 for row in range(ROWS)]
PROMPTS = [min((5 * row) % 41, length) for row, length in enumerate(LENGTHS)]
FIRST = [1 + sum(LENGTHS[:row]) for row in range(ROWS)]
IDS = [list(range(first, first + length)) for first, length in zip(FIRST, LENGTHS)]
"""Each token is a number of its own."""
MASKS = [[int(at >= prompt) for at in range(length)] for prompt, length in zip(PROMPTS, LENGTHS)]
LABELS = [[one if kept else -100 for one, kept in zip(ids, mask)] for ids, mask in zip(IDS, MASKS)]
KEPT = {one for labels in LABELS for one in labels if one > 0}
COLUMNS = {
    "labels": LABELS,
    "completion_mask": MASKS,
    "assistant_masks": MASKS,
    "weights": [[float(one) for one in ids] for ids in IDS],
    "prompt": PROMPTS,
}


def index(folder: pathlib.Path, *columns: str) -> str:
    """Rows of 0 to 60 tokens, with these columns beside them."""
    table = pa.table({"input_ids": pa.array(IDS, pa.list_(pa.int32())), **{name: COLUMNS[name] for name in columns}})
    (folder / "rows").mkdir()
    pq.write_table(table, folder / "rows/rows.parquet", row_group_size=20)
    rowdex.build(folder / "rows", folder / "train.rdx", lengths=["input_ids"], progress=False)
    return str(folder / "train.rdx")


def packing(**options: Any) -> rowdex.Pack:
    return rowdex.Pack("input_ids", capacity=CAPACITY, **options)


def begun(path: str) -> set[int]:
    """The first token of each piece, which models that shift labels themselves predict nowhere."""
    with rowdex.Dataset(path, ["input_ids"]) as dataset:
        loader = rowdex.Loader(dataset, batch_size=2, pack=packing(), seed=3, num_replicas=1, rank=0, output="numpy")
        return {int(one) for batch in loader for one in batch["input_ids"][batch["cu_seqlens"][:-1]]}


def trainer(base: Any, path: str, folder: pathlib.Path, pack: Any = None, **options: Any) -> Any:
    class Noting(rowdex.transformers.TrainerMixin, base):  # type: ignore[misc]
        def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **more: Any) -> Any:
            labels = inputs["labels"]
            noted = self.__dict__.setdefault("noted", collections.Counter())
            noted.update(labels[0, 1:][labels[0, 1:] != -100].tolist())
            self.others = {name: value for name, value in inputs.items() if name == "weights"}
            ids = inputs["input_ids"][0]
            for value in self.others.values():
                assert torch.equal(value[0][labels[0] != -100].long(), ids[labels[0] != -100])
                del inputs["weights"]
            inputs["labels"] = torch.where(labels < 0, labels, labels % WORDS)
            inputs["input_ids"] = inputs["input_ids"] % WORDS
            return super().compute_loss(model, inputs, *arguments, **more)

    config = transformers.GPT2Config(vocab_size=WORDS, n_positions=64, n_embd=4, n_layer=1, n_head=1)
    given = {"max_length": None, "dataset_kwargs": {"skip_prepare_dataset": True}, "bf16": False}
    sft = base is trl.SFTTrainer
    made = {"gradient_checkpointing": False, **given, **options} if sft else options
    mapped = made.pop("map", None)
    arguments = (trl.SFTConfig if sft else transformers.TrainingArguments)(
        str(folder / "out"), use_cpu=True, seed=3, per_device_train_batch_size=2, per_device_eval_batch_size=2,
        num_train_epochs=1, report_to=[], disable_tqdm=True, save_strategy="no", logging_strategy="no", **made,
    )  # fmt: skip
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    dataset = rowdex.Dataset(path)
    return Noting(
        transformers.GPT2LMHeadModel(config), arguments, train_dataset=dataset, eval_dataset=dataset,
        rowdex_options={"pack": pack or packing(), **({"map": mapped} if mapped else {})},
        **({"processing_class": tokenizer} if sft else {}),
    )  # fmt: skip


def noted(run: Any) -> Any:
    """How often each token had a label in an epoch, and then in an evaluation."""
    run.train()
    trained, run.noted = run.noted, collections.Counter()
    run.evaluate(run.eval_dataset)
    assert trained == run.noted
    return trained


BASES = [transformers.Trainer, trl.SFTTrainer]


@pytest.mark.parametrize("unused", [True, False])
@pytest.mark.parametrize("kind", ["labels", "completion_mask", "assistant_masks"])
@pytest.mark.parametrize("base", BASES)
def test_a_trainer_trains_once_on_each_token_with_a_label_and_on_no_other(
    base: Any, kind: str, unused: bool, tmp_path: pathlib.Path
) -> None:
    path = index(tmp_path, kind)
    found = noted(trainer(base, path, tmp_path, remove_unused_columns=unused))
    assert set(found.values()) == {1} and set(found) == KEPT - begun(path)


@pytest.mark.parametrize("chosen", [None, True, False])
def test_trl_has_its_say_about_the_completion_mask(chosen: Any, tmp_path: pathlib.Path) -> None:
    path = index(tmp_path, "completion_mask")
    found = noted(trainer(trl.SFTTrainer, path, tmp_path, completion_only_loss=chosen))
    expected = set(range(1, sum(LENGTHS) + 1)) if chosen is False else KEPT
    assert set(found.values()) == {1} and set(found) == expected - begun(path)


def test_trl_refuses_a_loss_of_completions_without_what_tells_them(tmp_path: pathlib.Path) -> None:
    path = index(tmp_path)
    with pytest.raises(ValueError, match="completion_only_loss=True with a rowdex dataset: .* completion_mask"):
        trainer(trl.SFTTrainer, path, tmp_path, completion_only_loss=True)


@pytest.mark.parametrize("base", BASES)
def test_a_trainer_is_given_the_columns_that_a_pack_names(base: Any, tmp_path: pathlib.Path) -> None:
    path = index(tmp_path, "labels", "weights")
    run = trainer(base, path, tmp_path, packing(with_columns=["weights"]))
    found = noted(run)
    assert set(found) == KEPT - begun(path) and list(run.others) == ["weights"]


def without_prompts(batch: Any) -> Any:
    left = (batch["prompt"] - batch["offsets"]).repeat_interleave(batch["cu_seqlens"].diff())
    return {**batch, "labels": batch["labels"].masked_fill(batch["position_ids"] + 1 < left, -100)}


@pytest.mark.parametrize("base", BASES)
def test_a_map_masks_prompts_by_their_length(base: Any, tmp_path: pathlib.Path) -> None:
    path = index(tmp_path, "prompt")
    run = trainer(base, path, tmp_path, map=without_prompts, remove_unused_columns=False)
    assert set(noted(run)) == KEPT - begun(path)


@pytest.mark.parametrize("layout", ["flat", "rows"])
@pytest.mark.parametrize("kind", ["labels", "completion_mask", "assistant_masks"])
def test_a_loader_serves_each_label_once_where_it_is_predicted(kind: str, layout: Any, tmp_path: pathlib.Path) -> None:
    dataset = rowdex.Dataset(index(tmp_path, kind, "weights"))
    found: collections.Counter[int] = collections.Counter()
    for rank in range(3):
        pack = packing(layout=layout, with_columns=["weights"])
        for batch in rowdex.Loader(dataset, batch_size=1, pack=pack, seed=3, num_replicas=3, rank=rank):
            labels, tokens = batch["labels"].reshape(-1), batch["input_ids"].reshape(-1)
            trained = labels[labels != -100]
            found.update(trained.tolist())
            assert torch.equal(batch["weights"].reshape(-1)[labels != -100].long(), trained)
            assert torch.equal(tokens[labels != -100] + 1, trained)
            assert batch["labels"].shape == batch["input_ids"].shape == batch["weights"].shape
            if kind != "labels":
                assert torch.equal(batch[kind].reshape(-1) != 0, labels != -100)
    firsts = {first for first, length in zip(FIRST, LENGTHS) if length}
    assert set(found.values()) == {1} and set(found) == KEPT - firsts


def test_lightning_is_given_labels_as_a_loader_serves_them(tmp_path: pathlib.Path) -> None:
    trained: collections.Counter[int] = collections.Counter()

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            trained.update(batch["labels"][batch["labels"] != -100].tolist())
            return self.layer(torch.ones(1)).sum()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    dataset = rowdex.Dataset(index(tmp_path, "labels"))
    data = rowdex.lightning.DataModule(dataset, batch_size=2, pack=packing(), seed=3)
    run = lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    run.fit(Model(), datamodule=data)
    firsts = {first for first, length in zip(FIRST, LENGTHS) if length}
    assert set(trained.values()) == {1} and set(trained) == KEPT - firsts


def test_labels_of_another_length_are_an_error_at_their_row(tmp_path: pathlib.Path) -> None:
    labels = [[*LABELS[row], 7] if row == 50 else LABELS[row] for row in range(ROWS)]
    (tmp_path / "rows").mkdir()
    table = pa.table({"input_ids": pa.array(IDS, pa.list_(pa.int32())), "labels": labels})
    pq.write_table(table, tmp_path / "rows/rows.parquet", row_group_size=20)
    rowdex.build(tmp_path / "rows", tmp_path / "train.rdx", lengths=["input_ids"], progress=False)
    loader = rowdex.Loader(rowdex.Dataset(tmp_path / "train.rdx"), batch_size=2, pack=packing())
    told = "row 50 has .* tokens in input_ids, and .* items in labels"
    with pytest.raises(rowdex.errors.SchemaError, match=told) as error:
        list(loader)
    assert "rows.parquet" in str(error.value) and "row group 2" in str(error.value)


def test_labels_that_are_no_lists_of_integers_are_told_from_those_of_tokens(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rows").mkdir()
    table = pa.table({"input_ids": pa.array(IDS, pa.list_(pa.int32())), "labels": PROMPTS})
    pq.write_table(table, tmp_path / "rows/rows.parquet")
    rowdex.build(tmp_path / "rows", tmp_path / "train.rdx", lengths=["input_ids"], progress=False)
    with pytest.raises(ValueError, match="a column called 'labels', .* has no lists of integers, one for each token"):
        rowdex.Loader(rowdex.Dataset(tmp_path / "train.rdx"), batch_size=2, pack=packing())
