"""Batches of packs as frameworks name them, beside what these make of the same documents themselves."""

from __future__ import annotations

import collections
import pathlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need

torch = need("torch")
need("accelerate", "grain", "jax", "lightning", "ray", "transformers", "trl")

import grain  # noqa: E402
import lightning  # noqa: E402
import rowdex.accelerate  # noqa: E402
import rowdex.dali  # noqa: E402
import rowdex.grain  # noqa: E402
import rowdex.jax  # noqa: E402
import rowdex.lightning  # noqa: E402
import rowdex.ray  # noqa: E402
import rowdex.torch  # noqa: E402
import rowdex.transformers  # noqa: E402
import transformers  # noqa: E402
from rowdex.frameworks.epochs import Epochs  # noqa: E402
from rowdex.frameworks.packs import causal  # noqa: E402
from rowdex.frameworks.trainer import check_packs  # noqa: E402
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling  # noqa: E402

CAPACITY, ROWS = 32, 120
LENGTHS = [1 + (7 * row * row) % 40 for row in range(ROWS)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Rows of 1 to 40 tokens, all of which differ from their neighbours."""
    folder = tmp_path_factory.mktemp("packs")
    tokens = [[1 + (31 * row + at) % 250 for at in range(length)] for row, length in enumerate(LENGTHS)]
    pq.write_table(pa.table({"input_ids": pa.array(tokens, pa.list_(pa.int32()))}), folder / "rows.parquet")
    rowdex.build(folder, folder / "train.rdx", lengths=["input_ids"], progress=False)
    return str(folder / "train.rdx")


def packing(**options: Any) -> rowdex.Pack:
    return rowdex.Pack("input_ids", **{"capacity": CAPACITY, **options})


def loader(index: str, output: Any = "torch", batch_size: int = 2, **options: Any) -> rowdex.Loader:
    dataset = rowdex.Dataset(index, columns=["input_ids"])
    made = {"num_replicas": 1, "rank": 0, "seed": 3, "output": output}
    return rowdex.Loader(dataset, batch_size=batch_size, pack=packing(**options), **made)


def documents(index: str, batch: Any) -> list[list[int]]:
    """The pieces of a batch, each by itself."""
    pieces = zip(*(np.asarray(batch[name]).tolist() for name in ("row_ids", "offsets", "lengths")))
    with rowdex.Dataset(index, columns=["input_ids"]) as dataset:
        rows = dataset.take(range(ROWS)).to_pydict()["input_ids"]
    return [rows[row][offset : offset + length] for row, offset, length in pieces]


def test_models_of_hugging_face_are_given_what_its_collators_make_of_the_same_documents(index: str) -> None:
    flattening = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True, return_tensors="pt"
    )
    padding_free = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    for batch in loader(index):
        samples = [{"input_ids": piece} for piece in documents(index, batch)]
        found = causal(batch, "input_ids", bounds=True)
        assert "attention_mask" not in found
        for other in (flattening(samples), padding_free(samples)):
            assert set(found) == set(other)
            for name, value in other.items():
                assert torch.equal(torch.as_tensor(found[name]), torch.as_tensor(value)), name
                assert getattr(found[name], "dtype", None) == getattr(value, "dtype", None), name
        assert set(causal(batch, "input_ids", bounds=False)) == {"input_ids", "labels", "position_ids"}


SMALL: dict[str, Any] = {"vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


def llama(**options: Any) -> Any:
    torch.manual_seed(1)
    config = transformers.LlamaConfig(**SMALL, intermediate_size=16, use_cache=False, **options)
    return transformers.LlamaForCausalLM(config)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_model_sees_each_document_as_if_it_were_alone(index: str, attention: str) -> None:
    model = llama(attn_implementation=attention).eval()
    batch = next(iter(loader(index)))
    found = causal(batch, "input_ids", bounds=True)
    with torch.no_grad():
        whole = model(**{name: value for name, value in found.items() if name != "labels"}).logits[0]
        alone = [model(input_ids=torch.tensor([piece])).logits[0] for piece in documents(index, batch)]
        assert torch.allclose(whole, torch.cat(alone), atol=1e-5)
        loss = model(**found).loss
    following = batch["labels"].clone()
    # A piece that goes on elsewhere has a label of which these models know nothing.
    following[batch["cu_seqlens"][1:].long() - 1] = -100
    expected = torch.nn.functional.cross_entropy(whole, following, ignore_index=-100)
    assert torch.allclose(loss, expected, atol=1e-5)


def trainer(index: str, folder: pathlib.Path, model: Any, pack: Any = None, **options: Any) -> Any:
    class Trainer(rowdex.transformers.TrainerMixin, transformers.Trainer):  # type: ignore[misc]
        pass

    arguments = transformers.TrainingArguments(
        str(folder), use_cpu=True, per_device_train_batch_size=2, max_steps=2, seed=3, report_to=[], disable_tqdm=True,
        save_strategy="no", logging_strategy="no", **options,
    )  # fmt: skip
    dataset = rowdex.Dataset(index, columns=["input_ids"])
    return Trainer(model, arguments, train_dataset=dataset, rowdex_options={"pack": pack or packing()})


def test_a_model_that_joins_the_documents_of_a_pack_is_refused_before_it_learns(
    index: str, tmp_path: pathlib.Path
) -> None:
    opt = transformers.OPTForCausalLM(transformers.OPTConfig(**SMALL, ffn_dim=16, word_embed_proj_dim=16))
    mamba = transformers.MambaForCausalLM(transformers.MambaConfig(vocab_size=256, hidden_size=16, num_hidden_layers=1))
    for model in (opt, mamba):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        with pytest.raises(ValueError, match=f"{type(model).__name__} does not keep the documents of a pack apart"):
            trainer(index, tmp_path, model).train()
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    run = trainer(index, tmp_path, llama())
    assert run.train().global_step == 2 and run.model.training
    assert run.evaluate(run.train_dataset)["eval_loss"] > 0
    with pytest.raises(ValueError, match="use_cache=True with a rowdex dataset: .* leave it out"):
        trainer(index, tmp_path, llama(), use_cache=True).train()


def test_a_trainer_refuses_buckets_whose_labels_its_model_would_shift_once_more(
    index: str, tmp_path: pathlib.Path
) -> None:
    for layout in ("rows", "flat", None):
        buckets = packing(algorithm="buckets", capacity=None, layout=layout)
        with pytest.raises(ValueError, match="algorithm='buckets' with a Trainer: .* algorithm='bfd'"):
            trainer(index, tmp_path, llama(), pack=buckets).train()


def test_accelerate_says_which_tail_buckets_can_have(index: str) -> None:
    dataset, buckets = rowdex.Dataset(index), packing(algorithm="buckets", capacity=None, layout="rows")
    given: Any = {"num_replicas": 2, "rank": 0, "batch_size": 4, "pack": buckets}
    with pytest.raises(ValueError, match="tail='drop'"):
        rowdex.accelerate.Loader(dataset, **given)
    assert len(rowdex.accelerate.Loader(dataset, tail="drop", **given)) == ROWS // 8


def test_a_trainer_that_shares_sequences_among_ranks_is_refused() -> None:
    """Its attention takes no mask."""
    options = types.SimpleNamespace(parallelism_config=types.SimpleNamespace(cp_size=2))
    with pytest.raises(ValueError, match="cp_size=2 with a rowdex dataset: .* use tp_size"):
        check_packs(options, collates=False)


def test_padding_within_pieces_is_no_label(index: str) -> None:
    for batch in loader(index, multiple=8):
        found = causal(batch, "input_ids", bounds=False)
        there = torch.zeros_like(batch["labels"], dtype=torch.bool)
        for first, length in zip(batch["cu_seqlens"].tolist(), batch["lengths"].tolist()):
            there[first + 1 : first + length] = True
        assert torch.equal(found["labels"][0] != -100, there)
        assert torch.equal(found["labels"][0][there], found["input_ids"][0][there])


def test_grain_is_given_the_names_and_the_types_of_its_own_packs(index: str) -> None:
    for batch in loader(index, "numpy", batch_size=1, layout="rows"):
        pieces = documents(index, batch)
        source = grain.MapDataset.source([{"input_ids": np.asarray(piece, np.int32)} for piece in pieces])
        (own,) = grain.experimental.FirstFitPackIterDataset(
            source.to_iter_dataset(), length_struct={"input_ids": CAPACITY}, num_packing_bins=1
        )
        found = rowdex.grain.segments(batch, "input_ids")
        assert set(found) == set(own)
        for name, value in own.items():
            assert found[name].dtype == value.dtype and found[name].tolist() == [value.tolist()], name
    with pytest.raises(ValueError, match="layout"):
        rowdex.grain.segments(next(iter(loader(index, "numpy"))), "input_ids")


def test_maxtext_is_given_inputs_and_the_targets_that_follow_them(index: str) -> None:
    for batch in loader(index, "numpy", layout="rows"):
        found = rowdex.grain.maxtext(batch, "input_ids")
        assert {value.dtype for value in found.values()} == {np.dtype(np.int32)}
        assert {value.shape for value in found.values()} == {(2, CAPACITY)}
        there = batch["labels"] != -100
        assert np.array_equal(found["targets"][there], batch["labels"][there])
        assert np.array_equal(found["targets_segmentation"] != 0, there) and not found["targets"][~there].any()
        assert np.array_equal(found["targets_segmentation"][there], found["inputs_segmentation"][there])
        assert np.array_equal(found["inputs_position"], found["targets_position"])
        empty = found["inputs_segmentation"] == 0
        assert not found["inputs"][empty].any() and not found["inputs_position"][empty].any()


def test_jax_has_arrays_of_one_shape_and_says_which_packs_it_cannot_serve(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["input_ids"])
    given: Any = {"num_replicas": 1, "rank": 0, "seed": 3}
    made = rowdex.jax.Loader(dataset, batch_size=7, pack=packing(layout="rows"), tail="uneven", **given)
    plain = list(loader(index, "numpy", batch_size=1, layout="rows"))
    rows = [tuple(row) for batch in made for row in np.asarray(batch["input_ids"]).tolist()]
    assert {value.shape for batch in made for value in batch.values()} == {(7, CAPACITY)}
    assert rows[: len(plain)] == [tuple(batch["input_ids"][0].tolist()) for batch in plain]
    assert len(rows) % 7 == 0 and not any(token for row in rows[len(plain) :] for token in row)
    with pytest.raises(ValueError, match="layout='rows'"):
        rowdex.jax.Loader(dataset, batch_size=2, pack=packing(), **given)
    with pytest.raises(ValueError, match="valid are of rows"):
        rowdex.jax.Loader(dataset, batch_size=2, pack=packing(layout="rows"), valid="valid", **given)


def refusals(index: str, pack: Any) -> Iterator[tuple[str, Any]]:
    rows, dataset = rowdex.Dataset(index), rowdex.torch.Dataset(index)
    given: Any = {"pack": pack, "num_replicas": 1, "rank": 0}
    yield "BatchSampler", lambda: rowdex.torch.BatchSampler(dataset, 2, **given)
    yield "GlobalBatchSampler", lambda: rowdex.torch.GlobalBatchSampler(dataset, 2, num_shards=1, pack=pack)
    yield "IterableDataset", lambda: rowdex.torch.IterableDataset(dataset, 2, **given)
    yield "sampler", lambda: list(torch.utils.data.DataLoader(
        dataset, batch_size=2, sampler=rowdex.DistributedSampler(dataset, batch_size=2, **given)
    ))  # fmt: skip
    yield "dali", lambda: rowdex.dali.Batches(rows, 2, **given)
    yield "ray", lambda: rowdex.ray.read(rows, pack=pack)
    yield "DataModule", lambda: rowdex.lightning.DataModule(dataset, batch_size=2, workers=1, pack=pack)


@pytest.mark.parametrize("pack", [packing(), packing(algorithm="buckets", layout="rows")])
def test_what_serves_rows_refuses_packs_and_buckets_and_says_what_serves_them(index: str, pack: Any) -> None:
    for name, attempt in refusals(index, pack):
        with pytest.raises((TypeError, ValueError)) as refused:
            attempt()
        assert "pack" in str(refused.value) and "rowdex.Loader" in str(refused.value), (name, refused.value)


class Fitted(lightning.LightningModule):
    """Notes how many steps there were in each epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.steps: collections.Counter[int] = collections.Counter()

    def training_step(self, batch: Any, number: int) -> Any:
        self.steps[self.current_epoch] += 1
        return self.layer(batch["input_ids"][:, None].float()).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=1e-9)


def test_lightning_has_all_steps_of_epochs_that_differ_or_says_what_to_write(index: str) -> None:
    def fit(data: Any, **options: Any) -> list[int]:
        model = Fitted()
        made = {"accelerator": "cpu", "max_epochs": len(steps), "logger": False, "enable_checkpointing": False}
        shows = {"enable_progress_bar": False, "enable_model_summary": False}
        lightning.Trainer(**made, **shows, **options).fit(model, data)
        return [model.steps[epoch] for epoch in range(len(steps))]

    def packs() -> rowdex.Loader:
        return loader(index, batch_size=1, block=16)

    sampler = packs().sampler
    totals = [0, *(sampler.total_steps(epochs) for epochs in range(1, 9))]
    steps = [after - before for before, after in zip(totals, totals[1:])]
    # Otherwise nothing could go wrong.
    assert max(steps) > steps[0]
    with pytest.raises(RuntimeError, match="reload_dataloaders_every_n_epochs=1"):
        fit(packs())
    assert fit(packs(), reload_dataloaders_every_n_epochs=1) == steps
    dataset = rowdex.Dataset(index, columns=["input_ids"])
    assert fit(rowdex.lightning.DataModule(dataset, batch_size=1, pack=packing(block=16), seed=3)) == steps


def test_packs_that_come_twice_are_refused_where_a_metric_would_count_them_twice(index: str) -> None:
    dataset = rowdex.Dataset(index, columns=["input_ids"])
    with pytest.raises(ValueError, match="tail='wrap' with packs: .* use tail='even'"):
        rowdex.accelerate.Loader(dataset, batch_size=2, pack=packing(), num_replicas=2, rank=0, tail="wrap")


def test_updates_of_epochs_of_different_lengths_are_counted_exactly() -> None:
    steps, asked = [10, 7, 9, 8], []

    def steps_of(epoch: int) -> int:
        asked.append(epoch)
        return steps[epoch]

    epochs = Epochs(steps_of, every=4)
    assert [epochs.updates(epoch) for epoch in range(4)] == [3, 2, 3, 2]
    assert [epochs.until(count) for count in (1, 2, 2.5, 4)] == [3, 5, 7, 10]
    assert [epochs.place(updates) for updates in range(9)] == [
        (0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2), (3, 0)
    ]  # fmt: skip
    assert asked == [0, 1, 2, 3], "each is planned once"
