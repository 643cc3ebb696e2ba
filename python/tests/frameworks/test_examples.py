"""The programs in ``examples/`` for packages that rowdex has no module for, each run as a user runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from ..conftest import REPOSITORY
from .need import need

EXAMPLES = REPOSITORY / "examples"
ROWS = 3000


def run(name: str, *arguments: Any, **environment: str) -> str:
    command = [sys.executable, str(EXAMPLES / f"with_{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"with_{name}", EXAMPLES / f"with_{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture()
def index(tmp_path: pathlib.Path) -> pathlib.Path:
    table = pa.table(
        {
            "a": [float(row % 97) for row in range(ROWS)],
            "b": pa.array([None if row % 11 == 0 else row % 7 for row in range(ROWS)], pa.int32()),
            "label": [row % 97 / 3 + row % 7 for row in range(ROWS)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=400)
    rowdex.build(tmp_path, tmp_path / "train.rdx", progress=False)
    return tmp_path / "train.rdx"


@pytest.mark.parametrize("name", ["xgboost", "lightgbm"])
def test_a_boosting_library_trains_on_all_rows(index: pathlib.Path, name: str) -> None:
    need(name)
    assert run(name, index, "label") == f"{ROWS} rows, 10 rounds\n"


def test_the_matrix_of_xgboost_has_the_rows_in_order(index: pathlib.Path) -> None:
    xgboost = need("xgboost")
    dataset = rowdex.Dataset(index)
    matrix = xgboost.QuantileDMatrix(example("xgboost").Batches(dataset, "label", 700))
    assert matrix.get_label().tolist() == pytest.approx(dataset[:].to_pydict()["label"])
    assert matrix.num_nonmissing() == 2 * ROWS - len(range(0, ROWS, 11))


def test_lightgbm_reads_rows_slices_and_lists(index: pathlib.Path) -> None:
    need("lightgbm")
    features = example("lightgbm").Features(rowdex.Dataset(index, columns=["a", "label"]))
    assert features[5].tolist() == features[3:7][2].tolist() == features[[5, 9]][0].tolist()
    assert features[5].shape == (2,) and features[:].shape == (ROWS, 2)


def test_a_lazy_frame_keeps_what_a_condition_says(index: pathlib.Path) -> None:
    pl = need("polars")
    assert run("polars", index, "a = 3 and b is not null") == (
        f"{sum(row % 97 == 3 and row % 11 > 0 for row in range(ROWS))} rows\n"
    )
    frame = example("polars").scan(rowdex.Dataset(index))
    assert frame.select(pl.len()).collect().item() == ROWS
    assert frame.head(5).collect()["row"].to_list() == list(range(5))
    assert frame.select("b", "row").collect().columns == ["b", "row"]


def numbers(first: int, rows: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + rows), pa.int64())})


def served(index: pathlib.Path) -> list[int]:
    with rowdex.Dataset(index) as dataset:
        return sorted(dataset[:].to_pydict()["id"])


@pytest.fixture()
def delta(tmp_path: pathlib.Path) -> Any:
    need("deltalake")
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(tmp_path / "table", numbers(0, 100))
    write_deltalake(tmp_path / "table", numbers(100, 50), mode="append")
    return DeltaTable(tmp_path / "table")


def test_each_version_of_a_delta_table_is_served(delta: Any, tmp_path: pathlib.Path) -> None:
    delta.delete("id >= 20 AND id < 30")
    for version in range(3):
        run("delta", tmp_path / "table", tmp_path / "i.rdx", version)
        kept = set(range((100, 150, 150)[version])) - (set(range(20, 30)) if version == 2 else set())
        assert served(tmp_path / "i.rdx") == sorted(kept)
    with pytest.raises(rowdex.errors.ArgumentError, match="examples/with_delta.py"):
        rowdex.build(tmp_path / "table", tmp_path / "no.rdx")


# As the protocol of Delta Lake writes the rows 0, 5, 6 and 99: a bitmap of 40 bytes in Z85.
VECTOR = {
    "storageType": "i",
    "pathOrInlineDv": "^Bg9^0rr910000000000iXQKl0rr91000935c8Xg000f51]@ck",
    "sizeInBytes": 40,
    "cardinality": 4,
}


def test_deletion_vectors_of_a_delta_table_are_honoured(delta: Any, tmp_path: pathlib.Path) -> None:
    log = tmp_path / "table/_delta_log"
    first = next(json.loads(line)["add"] for line in (log / f"{0:020}.json").open() if '"add"' in line)
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
    lines = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": {"path": first["path"], "deletionTimestamp": 1, "dataChange": True}},
        {"add": {**first, "deletionVector": VECTOR}},
    ]
    (log / f"{2:020}.json").write_text("\n".join(map(json.dumps, lines)) + "\n")
    run("delta", tmp_path / "table", tmp_path / "i.rdx")
    assert served(tmp_path / "i.rdx") == sorted(set(range(150)) - {0, 5, 6, 99})


def test_a_snapshot_of_an_iceberg_table_is_served(tmp_path: pathlib.Path) -> None:
    need("pyiceberg", "sqlalchemy")
    from pyiceberg.catalog.sql import SqlCatalog

    places = {"uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = SqlCatalog("test", **places)
    catalog.create_namespace("some")
    table = catalog.create_table("some.table", schema=numbers(0, 1).schema)
    table.append(numbers(0, 100))
    first = table.current_snapshot().snapshot_id
    table.append(numbers(100, 50))
    table.delete("id >= 20 and id < 30")
    known = {f"PYICEBERG_CATALOG__TEST__{name.upper()}": place for name, place in {**places, "type": "sql"}.items()}
    run("iceberg", "test", "some.table", tmp_path / "i.rdx", **known)
    assert served(tmp_path / "i.rdx") == sorted(set(range(150)) - set(range(20, 30)))
    run("iceberg", "test", "some.table", tmp_path / "i.rdx", first, **known)
    assert served(tmp_path / "i.rdx") == list(range(100))
    with pytest.raises(rowdex.errors.ArgumentError, match="examples/with_iceberg.py"):
        rowdex.build(tmp_path / "warehouse", tmp_path / "no.rdx")


def test_position_deletes_of_an_iceberg_table_are_honoured(tmp_path: pathlib.Path) -> None:
    need("pyiceberg")
    from types import SimpleNamespace as Of

    from pyiceberg.io.pyarrow import PyArrowFileIO

    deletes = pa.table({"file_path": ["a", "b", "a", "a"], "pos": pa.array([3, 4, 7, 3], pa.int64())})
    pq.write_table(deletes, tmp_path / "deletes.parquet")
    file = Of(file_format="PARQUET", file_path=f"file://{tmp_path}/deletes.parquet")
    task = Of(file=Of(file_path="a"), delete_files=[file])
    found = example("iceberg").deleted(Of(io=PyArrowFileIO()), task)
    assert [batch.to_pydict() for batch in found] == [{"file": ["a", "a"], "row_in_file": [3, 7]}]


LENGTHS = [1 + row * 7 % 19 for row in range(100)]


@pytest.fixture()
def tokens(tmp_path: pathlib.Path) -> pathlib.Path:
    """Rows of which the first third has no labels."""
    rows = [list(range(1, length + 1)) for length in LENGTHS]
    labels = [[token if 3 * token > len(row) + 3 else -100 for token in row] for row in rows]
    lists = pa.list_(pa.int32())
    table = pa.table({"tokens": pa.array(rows, lists), "labels": pa.array(labels, lists)})
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path, tmp_path / "train.rdx", lengths=["tokens"], progress=False)
    return tmp_path / "train.rdx"


def test_torchtitan_trains_on_every_token_and_goes_on(tokens: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = need("torch")
    monkeypatch.syspath_prepend(str(pathlib.Path(__file__).with_name("torchtitan_main")))
    config = example("torchtitan").Packs.Config(dataset_path=str(tokens), seed=42, epochs=2)
    making = {"tokenizer": None, "max_context_length": 64, "num_tokens_per_batch": 128}
    loader = config.build(dp_world_size=1, dp_rank=0, **making)
    found, batches = [], iter(loader)
    found += [next(batches) for _ in range(3)]
    state, others = loader.state_dict(), []
    for rank in range(2):
        other = config.build(dp_world_size=2, dp_rank=rank, **{**making, "num_tokens_per_batch": 64})
        other.load_state_dict(state)
        others += list(other)
    found += list(batches)
    rest = torch.cat([inputs["input"] for inputs, _ in found[3:]])
    assert (rest > 0).sum() == sum((inputs["input"] > 0).sum() for inputs, _ in others)
    assert sum(int((inputs["input"] > 0).sum()) for inputs, _ in found) == 2 * sum(LENGTHS)
    trained = sum(int((labels != -100).sum()) for _, labels in found)
    assert trained == 2 * sum(3 * token > length + 3 for length in LENGTHS for token in range(1, length + 1))
    assert all(inputs["positions"].shape == labels.shape == (128,) for inputs, labels in found)


def test_megatron_is_given_bounds_of_what_pieces_take(tokens: pathlib.Path) -> None:
    torch = need("torch")
    assert len(run("megatron", tokens, "tokens").splitlines()) == 3
    pack = rowdex.Pack("tokens", capacity=64, multiple=4)
    for batch in rowdex.Loader(rowdex.Dataset(tokens), batch_size=1, pack=pack, seed=42):
        found = example("megatron").thd(batch)
        padded, lengths = found["cu_seqlens_padded"], found["cu_seqlens"].diff()
        assert padded.dtype == found["cu_seqlens"].dtype == torch.int32
        assert padded[-1] == len(found["tokens"]) and (padded % 4 == 0).all()
        assert (padded.diff() - lengths < 4).all() and (lengths > 0).all()
        assert torch.equal(found["loss_mask"] > 0, batch["labels"] != -100) and found["loss_mask"].sum() > 0
