"""Functions that a loader applies to its batches on threads, with images as hubs store them, and lists of tokens."""

from __future__ import annotations

import io
import pathlib
import pickle
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from ..conftest import ROWS
from .need import need

WAIT = 60


def loader_of(dataset: Any, **options: Any) -> rowdex.Loader:
    given = {"batch_size": 32, "seed": 7, "output": "numpy", "nulls": "fill", "num_replicas": 1, "rank": 0}
    return rowdex.Loader(dataset, **{**given, **options})


def ids(batch: Any) -> list[int]:
    return list(batch["id"].tolist())


def slowly(batch: Any) -> Any:
    # Batches are done in another order than they were begun.
    time.sleep((int(batch["id"][0]) % 4) / 1000)
    return batch


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_batches_states_and_epochs_are_those_of_the_loader_without_functions(dataset: Any, threads: int) -> None:
    plain, mapped = loader_of(dataset), loader_of(dataset, map=slowly, threads=threads)
    for epoch in range(3):
        assert (mapped.epoch, len(mapped), mapped.steps_left) == (epoch, len(plain), plain.steps_left)
        others = iter(mapped)
        for batch in plain:
            assert ids(next(others)) == ids(batch)
            assert mapped.state_dict() == plain.state_dict() and mapped.steps_left == plain.steps_left
        assert next(others, None) is None
    assert mapped.stats.rows >= ROWS


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_state_counts_what_was_handed_out_and_goes_on_with_another_world_size(dataset: Any, world: int) -> None:
    states, served = [], []
    for rank in range(2):
        loader = loader_of(dataset, num_replicas=2, rank=rank, map=slowly, threads=3)
        batches = iter(loader)
        served += [row for _ in range(5) for row in ids(next(batches))]
        time.sleep(0.05)
        states.append(loader.state_dict())
    assert states[0] == states[1] == loader._sampler.state_after(0, 4)
    for rank in range(world):
        loader = loader_of(dataset, num_replicas=world, rank=rank, map=slowly, threads=3)
        plain = loader_of(dataset, num_replicas=world, rank=rank)
        for resumed in (loader, plain):
            resumed.load_state_dict(states[0])
        rest = [ids(batch) for batch in loader]
        assert rest == [ids(batch) for batch in plain]
        assert [ids(batch) for batch in loader] == [ids(batch) for batch in plain]
        served += [row for batch in rest for row in batch]
    assert set(served) == set(range(ROWS)) and len(served) - ROWS < world


def test_no_more_than_twice_the_threads_are_read_ahead(dataset: Any) -> None:
    done: list[int] = []
    loader = loader_of(dataset, map=lambda batch: done.append(1) or batch, threads=3)
    batches = iter(loader)
    for handed in range(1, 10):
        next(batches)
        time.sleep(0.02)
        assert handed <= len(done) <= handed + 6


def test_close_ends_an_iteration_and_the_loader_goes_on_after_the_last_batch(dataset: Any) -> None:
    plain, stuck = loader_of(dataset), threading.Event()
    begun = threading.Event()

    def block(batch: Any) -> Any:
        calls.append(batch)
        if len(calls) == 5:
            begun.set()
            stuck.wait(WAIT)
        return batch

    calls: list[Any] = []
    handed: list[Any] = []
    loader = loader_of(dataset, map=block, threads=1)
    errors: list[BaseException] = []

    def train() -> None:
        try:
            for batch in loader:
                handed.append(ids(batch))
        except rowdex.errors.ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    assert begun.wait(WAIT)
    loader.close()
    thread.join(WAIT)
    assert not thread.is_alive() and len(errors) == 1
    stuck.set()
    expected = [ids(batch) for batch in plain]
    assert handed == expected[: len(handed)]
    state = loader.state_dict()
    resumed = loader_of(dataset)
    resumed.load_state_dict(state)
    assert [ids(batch) for batch in resumed] == expected[len(handed) :]


def test_a_value_that_cannot_be_decoded_is_an_error_that_names_row_file_and_row_group(dataset: Any) -> None:
    def refuse(value: str) -> str:
        if value == "row 437":
            raise ValueError("no good")
        return value

    loader = loader_of(dataset, decode={"name": refuse}, threads=2)
    expected = next(step for step, batch in enumerate(loader_of(dataset)) if 437 in ids(batch))
    handed = 0
    with pytest.raises(rowdex.errors.TransformError) as caught:
        for _ in loader:
            handed += 1
    error = caught.value
    assert handed == error.step == expected and error.row_ids == [437] and isinstance(error.__cause__, ValueError)
    assert (error.file, error.row_group, error.column) == ("part-1.parquet", 1, "name")
    assert "part-1.parquet, row group 1, row 2, column 'name': decode failed for row id 437" in str(error)
    assert "ValueError: no good" in str(error)
    mixed = rowdex.MixedDataset([dataset, dataset])
    loader = loader_of(mixed, shuffle=False, decode={"name": refuse})
    loader.load_state_dict(loader._sampler.state_after(0, 40))
    with pytest.raises(rowdex.errors.TransformError) as caught:
        list(loader)
    assert caught.value.row_ids == [ROWS + 437] and caught.value.file == "part-1.parquet"


def test_a_function_of_batches_that_fails_is_an_error_that_names_the_rows(dataset: Any) -> None:
    loader = loader_of(dataset, shuffle=False, map=[lambda batch: batch, lambda batch: batch["nothing"]])
    told = "epoch 0, step 0, row ids 0, 1, 2, 3, 4, 5, 6, 7, …: KeyError"
    with pytest.raises(rowdex.errors.TransformError, match=told) as caught:
        list(loader)
    assert caught.value.hint and "__cause__" in caught.value.hint and isinstance(caught.value.__cause__, KeyError)
    stopping = loader_of(dataset, map=lambda batch: next(iter([])))
    with pytest.raises(rowdex.errors.TransformError, match="StopIteration"):
        list(stopping)


def test_decoded_values_become_arrays_lists_and_ragged_lists(dataset: Any) -> None:
    decode = {
        "name": lambda text: len(text),
        "x": lambda x: f"<{x}>",
        "tokens": lambda tokens: [2 * token for token in tokens],
        "vector": lambda vector: np.outer(vector, vector),
        "maybe": lambda value: value is None,
    }
    for output in ("numpy", "torch"):
        if output == "torch":
            need("torch")
        batch = next(iter(loader_of(dataset, shuffle=False, output=output, decode=decode)))
        assert batch["name"].tolist() == [len(f"row {i}") for i in range(32)]
        assert batch["x"] == [f"<{i / 2}>" for i in range(32)]
        assert batch["vector"].shape == (32, 3, 3)
        assert batch["vector"][2].tolist() == np.outer([2, 3, 4], [2, 3, 4]).tolist()
        assert batch["maybe"].tolist() == [i % 3 == 0 for i in range(32)]
        tokens = [batch["tokens"][i].tolist() for i in range(32)]
        assert tokens == [[2 * token for token in range(i % 4)] for i in range(32)]
        assert isinstance(batch["label"], type(batch["name"]))
    collate = {"vector": list, "label": lambda labels: labels + 1}
    batch = next(iter(loader_of(dataset, shuffle=False, decode=decode, collate=collate)))
    assert isinstance(batch["vector"], list) and batch["label"].tolist() == [i % 5 + 1 for i in range(32)]
    shapes = loader_of(dataset, decode={"id": lambda i: np.zeros((i % 2 + 1, 2))})
    told = r"arrays of shapes \(1, 2\) and \(2, 2\).*collate=\{'id': list\}"
    with pytest.raises(rowdex.errors.TransformError, match=told):
        list(shapes)
    masked = loader_of(dataset, decode={"id": lambda i: np.ma.array([i, 0], mask=[False, True])})
    with pytest.raises(rowdex.errors.TransformError, match="masked arrays"):
        list(masked)
    lists = {"id": lambda i: [1.0, i] if i % 2 else 1.0, "label": lambda _: np.zeros(0, np.float32)}
    batch = next(iter(loader_of(dataset, shuffle=False, decode=lists)))
    assert batch["id"][:3] == [1.0, [1.0, 1], 1.0] and batch["label"].values.dtype == np.float32
    python = next(iter(loader_of(dataset, shuffle=False, output="python", decode={"name": str.upper})))
    assert python["name"][:2] == ["ROW 0", "ROW 1"] and python["id"][:2] == [0, 1]


def test_decoded_tensors_keep_their_types_and_scalars_become_one_array(dataset: Any) -> None:
    torch = need("torch")
    first = ids(next(iter(loader_of(dataset))))

    def decoded(function: Any, output: str = "torch") -> Any:
        return next(iter(loader_of(dataset, output=output, decode={"label": function}, threads=0)))["label"]

    halves = decoded(lambda value: torch.full((2, 2), value, dtype=torch.bfloat16))
    assert halves.dtype == torch.bfloat16 and halves[:, 0, 0].tolist() == [row % 5 for row in first]
    lists = decoded(lambda value: torch.ones(value, dtype=torch.bfloat16) if value else torch.ones(0))
    assert lists.values.dtype == torch.bfloat16 and lists.offsets.diff().tolist() == [row % 5 for row in first]
    for scalar in (torch.tensor, np.array):
        assert decoded(scalar).tolist() == decoded(scalar, "numpy").tolist() == [row % 5 for row in first]


def test_decoded_lists_of_no_numbers_stay_lists_and_no_integer_is_rounded(dataset: Any) -> None:
    first = ids(next(iter(loader_of(dataset))))
    for function in (
        lambda value: ["word"] * value,
        lambda value: [None, 1.5][: value % 3],
        lambda value: [{"a": value}],
        lambda value: 2**63 + value if value % 2 else -value,
        lambda value: np.uint64(2**63 + value) if value % 2 else np.int64(-value),
        lambda value: [2**63 + value, 1] if value % 2 else [-1],
        lambda value: [2**63 + value, -1],
        lambda value: [[2**63 + value], [-1]],
    ):
        for output in ("numpy", "torch"):
            loader = loader_of(dataset, output=output, decode={"label": function}, threads=0)
            assert next(iter(loader))["label"] == [function(row % 5) for row in first]
    for shape in ((2,), (2, 2)):
        made = [np.full(shape, 2**63 + 1, np.uint64), np.full(shape, -1, np.int64)]
        loader = loader_of(dataset, output="numpy", decode={"label": lambda value: made[value % 2]}, threads=0)
        found = next(iter(loader))["label"]
        assert [id(array) for array in found] == [id(made[row % 5 % 2]) for row in first]
    halves = loader_of(dataset, output="numpy", decode={"label": lambda value: [2**62, value / 2][: value % 3]})
    assert next(iter(halves))["label"].values.dtype == np.float64


def test_decoded_lists_of_lists_make_an_array_or_an_error_that_says_what_to_write(dataset: Any) -> None:
    def decoded(function: Any, **options: Any) -> Any:
        return next(iter(loader_of(dataset, decode={"label": function}, threads=0, **options)))["label"]

    assert decoded(lambda value: [[value, 1]] * 3).shape == (32, 3, 2)
    for function in (lambda value: [[1] * value, [2]], lambda value: [[1, 2]] * value):
        told = "'label' was decoded to .*, which are no batch.*collate"
        with pytest.raises(rowdex.errors.TransformError, match=told):
            decoded(function)
        assert len(decoded(function, collate={"label": list})) == 32


def test_a_function_that_is_iterable_is_called_as_a_whole(dataset: Any) -> None:
    class Both:
        def __iter__(self) -> Any:
            raise AssertionError("a function is called, and not looked into")

        def __call__(self, batch: Any) -> Any:
            return len(batch["id"])

    assert next(iter(loader_of(dataset, map=Both()))) == 32


@pytest.mark.parametrize("output", ["numpy", "torch"])
def test_lists_are_padded_as_torch_pads_them(dataset: Any, output: str) -> None:
    torch = need("torch")
    pad_sequence = torch.nn.utils.rnn.pad_sequence
    lists = [torch.tensor(range(i % 4), dtype=torch.int64) for i in range(32)]

    def first(**options: Any) -> Any:
        return next(iter(loader_of(dataset, shuffle=False, output=output, **options)))

    def plain(value: Any) -> Any:
        return np.asarray(value).tolist()

    for pad in ("longest", {"tokens": "longest"}):
        assert plain(first(pad=pad)["tokens"]) == pad_sequence(lists, batch_first=True).tolist()
    assert plain(first(pad=5)["tokens"]) == [row + [0, 0] for row in pad_sequence(lists, batch_first=True).tolist()]
    left = rowdex.transforms.Pad(fill=-1, side="left", multiple_of=4, mask="there")
    batch = first(pad={"tokens": left})
    expected = pad_sequence([row.flip(0) for row in lists], batch_first=True, padding_value=-1).flip(1).tolist()
    assert plain(batch["tokens"]) == [[-1, *row] for row in expected]
    assert plain(batch["there"]) == [[place >= 4 - i % 4 for place in range(4)] for i in range(32)]
    cut = first(pad={"tokens": rowdex.transforms.Pad(2, cut=True)})
    assert plain(cut["tokens"]) == pad_sequence(lists, batch_first=True)[:, :2].tolist()
    assert type(batch["tokens"]) is type(batch["id"])
    with pytest.raises(rowdex.errors.TransformError, match="column 'tokens': a list of 3 items is longer than 2"):
        first(pad=2)
    # Text is no list of numbers.
    texts = first(pad="longest", strings="offsets")
    assert isinstance(texts["name"], rowdex.Ragged) and plain(texts["tokens"]) == plain(first(pad="longest")["tokens"])


def test_lists_with_nulls_are_padded_and_what_cannot_be_padded_is_an_error(tmp_path: pathlib.Path) -> None:
    lists = [[1, 2], None, [], [3, 4, 5]]
    words = [["a"], [], ["b", "c"], []]
    table = pa.table({"tokens": pa.array(lists, pa.list_(pa.int64())), "words": pa.array(words, pa.list_(pa.string()))})
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    dataset = rowdex.Dataset(tmp_path / "a.rdx")
    mask = {"tokens": rowdex.transforms.Pad(fill=7, mask="there")}
    for pad, fill in (("longest", 0), (mask, 7)):
        loader = loader_of(dataset.select(["tokens"]), shuffle=False, nulls="mask", pad=pad)
        (batch,) = loader
        assert batch["tokens"].values.tolist() == [[1, 2, fill], [fill] * 3, [fill] * 3, [3, 4, 5]]
        assert batch["tokens"].valid.tolist() == [True, False, True, True]
    assert batch["there"].tolist() == [[True, True, False], [False] * 3, [False] * 3, [True] * 3]
    with pytest.raises(rowdex.errors.TransformError, match="column 'words': only lists of numbers.*name columns"):
        list(loader_of(dataset, pad="longest"))


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"map": 3}, TypeError, "map=3|give a function"),
    ({"decode": len}, TypeError, "give a dict of a function for each column"),
    ({"decode": {"nothing": len}}, KeyError, "no column is called 'nothing'"),
    ({"collate": {"id": 3}}, TypeError, "give a function"),
    ({"pad": {"nothing": 3}}, KeyError, "no column is called 'nothing'"),
    ({"pad": {"tokens": 1.5}}, ValueError, "use 'longest' or a number of items"),
    ({"pad": "shortest"}, ValueError, "use 'longest' or a number of items"),
    ({"pad": -1}, ValueError, "use 'longest' or a number of items"),
    ({"pad": "longest", "output": "arrow"}, ValueError, "or map="),
    ({"pad": "longest", "output": "python"}, ValueError, "use 'torch' or 'numpy'"),
    ({"pin_memory": True}, ValueError, "use output='torch'"),
    ({"map": len, "threads": -1}, ValueError, "threads is -1"),
]


@pytest.mark.parametrize("options, kind, match", REFUSED)
def test_what_cannot_be_done_is_refused_when_the_loader_is_made(
    dataset: Any, options: dict[str, Any], kind: type[Exception], match: str
) -> None:
    with pytest.raises(kind, match=match):
        loader_of(dataset, **options)


def test_padding_lists_where_there_are_none_is_refused(dataset: Any) -> None:
    with pytest.raises(ValueError, match="pad='longest': no column has lists of different lengths"):
        loader_of(dataset.select(["id", "vector"]), pad="longest")


def test_tensors_are_pinned_where_there_is_a_device_and_there_is_a_warning_otherwise(dataset: Any) -> None:
    torch = need("torch")
    narrow = dataset.select(["id", "tokens"])
    if torch.accelerator.is_available():
        batch = next(iter(loader_of(narrow, output="torch", pin_memory=True)))
        assert batch["id"].is_pinned() and batch["tokens"].values.is_pinned()
        return
    with pytest.warns(UserWarning, match="there is no accelerator"):
        loader = loader_of(narrow, output="torch", pin_memory=True, threads=1)
    assert not next(iter(loader))["id"].is_pinned()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[Any]]:
    """Images as Hugging Face's datasets writes them, 100 rows a group, and their pixels."""
    image = need("PIL.Image")
    random = np.random.default_rng(3)
    files, pixels = [], []
    for number in range(230):
        size = (48, 40) if number % 2 else (32, 64)
        smooth = image.fromarray(random.integers(0, 255, (4, 4, 3), dtype=np.uint8)).resize(size[::-1])
        file = io.BytesIO()
        smooth.save(file, "JPEG" if number % 3 else "PNG")
        files.append({"bytes": file.getvalue(), "path": f"{number}.jpg" if number % 5 else None})
        pixels.append(np.asarray(image.open(file)))
    features = b'{"info": {"features": {"image": {"_type": "Image"}, "label": {"dtype": "int64", "_type": "Value"}}}}'
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({"image": pa.array(files, kind), "label": pa.array(range(230), pa.int64())})
    folder = tmp_path_factory.mktemp("hub")
    table = table.replace_schema_metadata({"other": "x", "huggingface": features})
    pq.write_table(table, folder / "train.parquet", row_group_size=100)
    rowdex.build(folder, folder / "images.rdx")
    return folder, pixels


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities:DeprecationWarning")
@pytest.mark.parametrize("decoder", [None, "pillow", "simplejpeg", "torchvision"])
def test_images_of_a_hub_are_decoded_as_pillow_decodes_them(hub: Any, decoder: Any) -> None:
    if decoder is not None:
        need({"pillow": "PIL"}.get(decoder, decoder))
    folder, pixels = hub
    dataset = rowdex.Dataset(folder / "images.rdx")
    decode = rowdex.transforms.hub(dataset) if decoder is None else {"image": rowdex.transforms.Image(decoder=decoder)}
    assert list(decode) == ["image"]
    if decoder == "simplejpeg":
        # It knows no PNG.
        jpegs = rowdex.order.Explicit([row for row in range(230) if row % 3])
        loader = loader_of(dataset, order=jpegs, decode=decode, collate={"image": list}, threads=3)
    else:
        loader = loader_of(dataset, decode=decode, collate={"image": list}, threads=3)
    seen = 0
    for batch in loader:
        for label, image in zip(batch["label"].tolist(), batch["image"]):
            # Decoders round differently.
            assert image.shape == pixels[label].shape
            most = 0 if decoder == "pillow" or label % 3 == 0 else 3
            assert np.abs(image.astype(int) - pixels[label]).max() <= most
            seen += 1
    assert seen >= 153


def test_images_become_one_array_when_they_are_scaled(hub: Any) -> None:
    need("PIL")
    folder, pixels = hub
    dataset = rowdex.Dataset(folder / "images.rdx")
    scaled = rowdex.transforms.Image(size=(24, 20), layout="chw")
    grey = rowdex.transforms.Image("L", size=(24, 20))
    batch = next(iter(loader_of(dataset, shuffle=False, decode={"image": scaled})))
    assert batch["image"].shape == (32, 3, 24, 20) and batch["image"].dtype == np.uint8
    means = [image.mean(axis=(1, 2)) for image in batch["image"]]
    assert np.abs(np.array(means) - [image.mean(axis=(0, 1)) for image in pixels[:32]]).max() < 8
    assert next(iter(loader_of(dataset, decode={"image": grey})))["image"].shape == (32, 24, 20, 1)
    with pytest.raises(rowdex.errors.TransformError, match=r"arrays of shapes .*Image\(size=…\)"):
        list(loader_of(dataset, decode={"image": rowdex.transforms.Image()}))


def test_an_image_that_is_none_is_an_error_that_names_its_row(hub: Any, tmp_path: pathlib.Path) -> None:
    need("PIL")
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    files = [{"bytes": b"\xff\xd8\xff no image", "path": None}, {"bytes": None, "path": "far/away.jpg"}, None]
    messages = ["UnidentifiedImageError", "only the path 'far/away.jpg'", "no image"]
    for number, (file, told) in enumerate(zip(files, messages)):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"image": pa.array([file], kind), "id": [0]}), path)
        rowdex.build(path, tmp_path / f"{number}.rdx")
        dataset = rowdex.Dataset(tmp_path / f"{number}.rdx")
        decode = {"image": rowdex.transforms.Image(decoder="pillow")}
        place = f"{number}.parquet, row group 0, row 0, column 'image'"
        with pytest.raises(rowdex.errors.TransformError, match=f"{place}.*{told}"):
            list(loader_of(dataset, decode=decode))
        with pytest.raises(ValueError, match="no feature metadata"):
            rowdex.transforms.hub(dataset)
    with pytest.raises(ValueError, match="use 'simplejpeg', 'pillow', 'torchvision'"):
        rowdex.transforms.Image(decoder="paint")  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(rowdex.transforms.Image("L")))._mode == "L"


def refusing(*refused: str) -> Any:
    def decode(text: str) -> str:
        if text in refused:
            raise ValueError(f"refused {text}")
        return text.upper()

    return decode


def served_with(dataset: Any, decode: Any, **options: Any) -> list[tuple[int, str]]:
    options = {"decode": {"name": decode}, "on_error": "substitute", "threads": 3, **options}
    return [
        pair for batch in loader_of(dataset, **options)
        for pair in zip(batch["id"].tolist(), batch["name"])
    ]  # fmt: skip


def test_a_row_that_cannot_be_decoded_is_replaced_by_the_same_one_whoever_serves_it(dataset: Any) -> None:
    decode = refusing(*(f"row {row}" for row in range(0, ROWS, 10)))
    alone = served_with(dataset, decode, shuffle=False)
    assert len(alone) == ROWS and all(name == f"ROW {row}" for row, name in alone)
    assert all((row == place) == (place % 10 != 0) and row % 10 for place, (row, _) in enumerate(alone))
    assert len({row for place, (row, _) in enumerate(alone) if place % 10 == 0}) > 50
    # Another world size, other threads and batches, and a resumed run.
    other = {"shuffle": False, "num_replicas": 3, "tail": "uneven", "batch_size": 7, "threads": 0}
    by_rank = [served_with(dataset, decode, rank=rank, **other) for rank in range(3)]
    assert [by_rank[place % 3][place // 3] for place in range(ROWS)] == alone
    shuffled = loader_of(dataset, row_ids="row")
    order = [row for batch in shuffled for row in batch["row"].tolist()]
    assert served_with(dataset, decode) == [alone[row] for row in order]
    with pytest.raises(rowdex.errors.TransformError, match="decode failed for row id 0 .*refused row 0"):
        served_with(dataset, decode, shuffle=False, on_error="raise")


def test_a_row_is_replaced_in_all_of_its_columns(dataset: Any) -> None:
    table = {row["id"]: row for row in dataset}
    for output in ("numpy", "torch", "python"):
        if output == "torch":
            need("torch")
        marks = {} if output == "python" else {"row_ids": "row", "repeated": "pad"}
        loader = loader_of(
            dataset, shuffle=False, output=output, nulls="mask", decode={"name": refusing("row 0", "row 40", "row 63")},
            on_error="substitute", **marks,
        )  # fmt: skip
        for batch in (batch for batch, _ in zip(loader, range(3))):
            if output == "python":
                rows = [dict(zip(batch, row)) for row in zip(*batch.values())]
                assert all(row == {**table[row["id"]], "name": row["name"]} for row in rows)
                continue
            # What the loader adds is not masked.
            masked = (name for name, column in batch.items() if isinstance(column, rowdex.Masked))
            found = batch | {name: batch[name].values for name in masked}
            for place, row in enumerate(found["id"].tolist()):
                assert found["tokens"][place].tolist() == table[row]["tokens"]
                assert found["vector"][place].tolist() == table[row]["vector"]
                assert found["name"][place] == f"ROW {row}" and int(found["row"][place]) == row
                assert bool(batch["maybe"].valid[place]) == (table[row]["maybe"] is not None)
                assert not found["pad"][place]
        assert [lost.row_id for lost in loader.lost_rows] == [0, 40, 63]
        assert isinstance(loader.lost_rows[1].error, rowdex.errors.TransformError) and loader.stats.substituted >= 3
        assert loader.lost_rows[1].error.row_ids == [40] and loader.lost_rows[1].error.file == "part-0.parquet"


def test_where_nothing_can_be_decoded_there_is_an_error(dataset: Any) -> None:
    def refuse(_: str) -> None:
        raise ValueError("never")

    with pytest.raises(rowdex.errors.TransformError, match="row id 0, .*never"):
        served_with(dataset, refuse, shuffle=False)
