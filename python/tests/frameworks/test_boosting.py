"""XGBoost, LightGBM and scikit-learn train on a dataset as they do on the whole matrix."""

from __future__ import annotations

import datetime
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.frameworks.matrix import Matrix

from .conftest import ROWS
from .need import need
from .page import script

COUNT = 6000


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, dict[str, Any]]:
    """A dataset of two files with columns of many types, and what its columns are as arrays."""
    folder = tmp_path_factory.mktemp("boosting")
    random = np.random.default_rng(1)
    vectors = random.normal(size=(COUNT, 3)).astype(np.float32)
    missing = random.random(COUNT) < 0.1
    table = pa.table(
        {
            "a": random.normal(size=COUNT),
            "i": pa.array(random.integers(0, 9, COUNT), mask=missing),
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 3),
            "flag": random.random(COUNT) < 0.5,
            "city": random.choice(["Łódź", "Bonn", "Kyoto"], COUNT),
            "label": vectors[:, 0] + random.normal(size=COUNT),
            "weight": random.random(COUNT),
            "query": np.sort(random.integers(0, 900, COUNT)),
            "blob": [b"x"] * COUNT,
        }
    )
    pq.write_table(table[:2000], folder / "a.parquet", row_group_size=300)
    pq.write_table(table[2000:], folder / "b.parquet", row_group_size=1700)
    rowdex.build(folder, folder / "train.rdx")
    columns = {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    cities = np.searchsorted(sorted(set(columns["city"])), columns["city"])
    numbers = np.where(missing, np.nan, columns["i"].astype(float))
    features = [columns["a"], numbers, *vectors.T, columns["flag"], cities]
    columns["matrix"] = np.column_stack([np.asarray(feature, dtype=np.float64) for feature in features])
    return rowdex.Dataset(folder / "train.rdx"), columns


FEATURES = ["a", "i", "v", "flag", "city"]
NAMES = ["a", "i", "v_0", "v_1", "v_2", "flag", "city"]
XGBOOST = {"max_depth": 4, "tree_method": "hist", "nthread": 2}


def iterator(dataset: Any, **options: Any) -> Any:
    need("xgboost")
    import rowdex.xgboost

    options = {"label": "label", "features": FEATURES, "weight": "weight", "categories": ["city"], **options}
    return rowdex.xgboost.DataIter(dataset, **options)


def dumped(model: Any) -> Any:
    return model.get_dump(with_stats=True)


@pytest.mark.parametrize("batch_rows", [None, 1000])
def test_xgboost_grows_the_trees_of_the_whole_matrix(mixed: Any, batch_rows: int | None) -> None:
    xgboost = need("xgboost")
    dataset, columns = mixed
    served = xgboost.QuantileDMatrix(iterator(dataset, batch_rows=batch_rows), enable_categorical=True)
    assert served.feature_names == NAMES and served.feature_types == ["q"] * 6 + ["c"]

    class Halves(xgboost.DataIter):
        """The same batches from memory, because the bins depend on the batches."""

        def __init__(self) -> None:
            super().__init__()
            self.start = 0

        def reset(self) -> None:
            self.start = 0

        def next(self, input_data: Any) -> bool:
            rows = slice(self.start, self.start + (batch_rows or COUNT))
            self.start = rows.stop
            if rows.start >= COUNT:
                return False
            given = {"label": columns["label"][rows], "weight": columns["weight"][rows]}
            data = columns["matrix"][rows].astype(np.float32)
            input_data(data=data, feature_names=NAMES, feature_types=["q"] * 6 + ["c"], **given)
            return True

    whole = xgboost.QuantileDMatrix(Halves(), enable_categorical=True)
    assert dumped(xgboost.train(XGBOOST, served, 8)) == dumped(xgboost.train(XGBOOST, whole, 8))
    assert served.get_label().tolist() == columns["label"].astype(np.float32).tolist()
    assert served.get_weight().tolist() == columns["weight"].astype(np.float32).tolist()


def test_every_pass_serves_the_same_batches(mixed: Any) -> None:
    dataset, columns = mixed
    passes: list[list[Any]] = []
    batches = iterator(dataset, batch_rows=700)
    for _ in range(3):
        batches.reset()
        passes.append([])
        while batches.next(lambda **given: passes[-1].append(given)):
            pass
    assert [len(given["data"]) for given in passes[0]] == [700] * 8 + [400]
    for served in passes:
        found = np.concatenate([given["data"] for given in served])
        assert np.array_equal(found, columns["matrix"].astype(np.float32), equal_nan=True)
        assert np.concatenate([given["label"] for given in served]).tolist() == columns["label"].tolist()


def test_external_memory_of_xgboost_trains_on_a_dataset(mixed: Any, tmp_path: pathlib.Path) -> None:
    xgboost = need("xgboost")
    dataset, _ = mixed
    options = {"features": ["a", "v"], "categories": [], "batch_rows": 1500}
    cached = iterator(dataset, cache_prefix=str(tmp_path / "cache"), **options)
    external = xgboost.ExtMemQuantileDMatrix(cached)
    held = xgboost.QuantileDMatrix(iterator(dataset, **options))
    assert external.num_row() == COUNT
    assert dumped(xgboost.train(XGBOOST, external, 4)) == dumped(xgboost.train(XGBOOST, held, 4))


@pytest.mark.parametrize("batch_rows", [5, 64, 1000, 100_000])
def test_no_query_is_in_two_batches(mixed: Any, batch_rows: int) -> None:
    xgboost = need("xgboost")
    dataset, columns = mixed
    served = xgboost.QuantileDMatrix(
        iterator(dataset, label=None, weight=None, features=["a"], categories=[], qid="query", batch_rows=batch_rows)
    )
    assert served.get_group().tolist() == np.unique(columns["query"], return_counts=True)[1].tolist()
    found = served.get_data()
    assert found.shape == (COUNT, 1)


@pytest.mark.parametrize("workers", [2, 3, 7])
def test_workers_serve_consecutive_pieces_that_are_the_whole(mixed: Any, workers: int) -> None:
    dataset, columns = mixed
    lengths, labels = [], []
    for rank in range(workers):
        served: list[Any] = []
        batches = iterator(dataset, rank=rank, num_replicas=workers, batch_rows=512)
        while batches.next(lambda **given: served.append(given["label"])):
            pass
        lengths.append(sum(map(len, served)))
        labels += [label for part in served for label in part]
    assert max(lengths) - min(lengths) <= 1 and labels == columns["label"].tolist()


WORKER = """
import json, sys
import rowdex.xgboost, xgboost
index, arguments = sys.argv[1], json.loads(sys.argv[2])
with xgboost.collective.CommunicatorContext(**arguments):
    batches = rowdex.xgboost.DataIter(rowdex.Dataset(index), "label", features=["a", "v"], batch_rows=512)
    matrix = xgboost.QuantileDMatrix(batches)
    model = xgboost.train({"max_depth": 4, "tree_method": "hist", "nthread": 1}, matrix, 4)
    found = {"rank": xgboost.collective.get_rank(), "rows": matrix.num_row(), "labels": matrix.get_label().tolist()}
    print(json.dumps({**found, "trees": model.get_dump()}))
"""


def test_two_workers_of_xgboost_train_one_model_on_all_rows(mixed: Any) -> None:
    tracker_of = need("xgboost.tracker")
    dataset, columns = mixed
    tracker = tracker_of.RabitTracker(n_workers=2, host_ip="127.0.0.1")
    tracker.start()
    command = [sys.executable, "-c", WORKER, dataset.index.path, json.dumps(tracker.worker_args())]
    workers = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        told = [worker.communicate(timeout=120) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0, 0], told
    first, second = sorted((json.loads(out.splitlines()[-1]) for out, _ in told), key=lambda found: found["rank"])
    assert (first["rows"], second["rows"]) == (3000, 3000) and first["trees"] == second["trees"]
    assert first["labels"] + second["labels"] == columns["label"].astype(np.float32).tolist()


def test_a_feature_that_has_no_numbers_is_an_error_that_says_what_to_write(mixed: Any) -> None:
    dataset, _ = mixed
    with pytest.raises(rowdex.SchemaError, match="'city' has no numbers: name the features, or give categories"):
        iterator(dataset, categories=[])
    with pytest.raises(rowdex.SchemaError, match="'blob'"):
        iterator(dataset, features=None, categories=["city"])
    with pytest.raises(KeyError, match="no column is called 'nothing'"):
        iterator(dataset, features=["nothing"])
    with pytest.raises(rowdex.SchemaError, match="column 'i'.*null"):
        batches = iterator(dataset, label="i", features=["a"], categories=[])
        batches.next(lambda **_: None)
    for named in ({"label": "blob"}, {"weight": "city"}, {"qid": "city"}):
        with pytest.raises(rowdex.SchemaError, match="has no numbers, as labels"):
            iterator(dataset, categories=[], **{"features": ["a"], **named})
    with pytest.raises(rowdex.SchemaError, match="column 'i' of categories has nulls"):
        iterator(dataset, categories=["i"])
    several = rowdex.MixedDataset([dataset, dataset])
    with pytest.raises(rowdex.ArgumentError) as raised:
        iterator(several, categories=["city"])
    assert "null" not in str(raised.value)
    with pytest.raises(ValueError, match="qid with several workers"):
        iterator(dataset, qid="query", rank=0, num_replicas=2)


def test_an_error_of_the_data_reaches_whoever_makes_the_matrix(mixed: Any) -> None:
    xgboost = need("xgboost")
    dataset, _ = mixed
    with pytest.raises(rowdex.SchemaError, match="column 'i'.*null"):
        xgboost.QuantileDMatrix(iterator(dataset, label="i", features=["a"], categories=[]))


def test_categories_of_another_dataset_have_the_numbers_of_the_first(mixed: Any, tmp_path: pathlib.Path) -> None:
    dataset, _ = mixed
    cities = ["Łódź", "Oslo", "Kyoto", "Łódź"]
    pq.write_table(pa.table({"city": cities, "a": [0.0] * 4}), tmp_path / "other.parquet")
    rowdex.build(tmp_path / "other.parquet", tmp_path / "other.rdx")
    other = rowdex.Dataset(tmp_path / "other.rdx")
    options: dict[str, Any] = {"features": ["city", "a"], "label": None}
    for first in (iterator(dataset), sequence(dataset)):
        assert first.categories == {"city": ["Bonn", "Kyoto", "Łódź"]}
        kept = json.loads(json.dumps(first.categories))
        rows: list[Any] = []
        again = iterator(other, weight=None, categories=kept, **options)
        assert again.next(lambda data, **_: rows.append(data)) and again.categories == kept
        rows.append(sequence(other, categories=kept, **options)[0:4])
        for found in rows:
            assert np.array_equal(found, [[2, 0], [np.nan, 0], [1, 0], [2, 0]], equal_nan=True)
    for make in (iterator, sequence):
        with pytest.raises(ValueError, match="no feature is called 'cty'; there are a, i, v, flag, city"):
            make(dataset, categories=["cty"])
        with pytest.raises(TypeError, match=r"give a list of names, \['city'\]"):
            make(dataset, categories="city")
        with pytest.raises(ValueError, match="'city': one is named twice"):
            make(dataset, categories={"city": ["Bonn", "Bonn"]})


def sequence(dataset: Any, **options: Any) -> Any:
    need("lightgbm")
    import rowdex.lightgbm

    options = {"features": FEATURES, "label": "label", "categories": ["city"], "batch_rows": 700, **options}
    return rowdex.lightgbm.Sequence(dataset, **options)


def test_lightgbm_grows_the_trees_of_the_whole_matrix(mixed: Any) -> None:
    lightgbm = need("lightgbm")
    dataset, columns = mixed
    rows = sequence(dataset)
    given = {
        "label": rows.read("label"), "weight": rows.read("weight"), "feature_name": rows.names,
        "categorical_feature": rows.categorical, "params": {"bin_construct_sample_cnt": 2000, "verbose": -1},
    }  # fmt: skip
    assert rows.names == NAMES and rows.categorical == ["city"]
    options = {"objective": "regression", "num_threads": 2, "verbose": -1, "deterministic": True}
    # Otherwise each training measures which way is faster.
    options["force_col_wise"] = True
    served = lightgbm.train(options, lightgbm.Dataset(rows, **given), 8)
    whole = lightgbm.train(options, lightgbm.Dataset(columns["matrix"], **given), 8)
    assert served.model_to_string() == whole.model_to_string()


def test_sampling_reads_each_slice_once(mixed: Any) -> None:
    dataset, columns = mixed
    rows = sequence(dataset, features=["a", "v"], categories=[])
    taken: list[int] = []
    read = rows._read
    rows._read = lambda ids: taken.append(len(ids)) or read(ids)
    for row in range(0, COUNT, 3):
        assert rows[row].tolist() == columns["matrix"][row, [0, 2, 3, 4]].tolist()
    assert len(taken) == -(-COUNT // 700)


def test_a_sequence_is_asked_for_rows_slices_and_lists(mixed: Any) -> None:
    dataset, columns = mixed
    matrix = columns["matrix"]
    rows = sequence(dataset)
    assert len(rows) == COUNT and rows[-1].tolist() == matrix[-1].tolist() and rows[5].base is None
    for asked in (slice(690, 711), slice(5990, 9999), slice(None, None, 1000), [5, 4, 5], []):
        assert np.array_equal(rows[asked], matrix[asked] if asked else matrix[:0], equal_nan=True)
    with pytest.raises(IndexError, match=f"row id {COUNT} of {COUNT} rows"):
        rows[COUNT]
    pieces = [sequence(dataset, rank=rank, num_replicas=7) for rank in range(7)]
    assert np.array_equal(np.concatenate([piece[:] for piece in pieces]), matrix, equal_nan=True)
    assert np.concatenate([piece.read("label") for piece in pieces]).tolist() == columns["label"].tolist()
    assert pieces[3][0].tolist() == matrix[sum(map(len, pieces[:3]))].tolist()


@pytest.mark.parametrize("name", ["XGBoost", "LightGBM", "scikit-learn"])
def test_the_programs_of_the_manual_run(
    name: str, unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need({"scikit-learn": "sklearn"}.get(name, name.lower()))
    (tmp_path / "data").symlink_to(unequal)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(script(name), "docs/frameworks.md", "exec"), names)
    if name == "scikit-learn":
        assert names["steps"] == 3 * ROWS and names["right"] > 300
    else:
        # The second number of a vector is the class.
        assert names["right"] == ROWS


def test_given_categories_are_values_of_any_type(tmp_path: pathlib.Path) -> None:
    days = [datetime.date(2024, 1, 1), datetime.date(1969, 12, 31)]
    table = pa.table({"flag": [True, False, True], "day": [days[0], days[1], days[0]], "raw": [b"\x01", b"a", b"a"]})
    table = table.append_column("text", pa.array(["True", "False", "True"]))
    pq.write_table(table, tmp_path / "a.parquet")
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx", progress=False)
    # Text stays what it is.
    given = {"flag": [False, np.bool_(True)], "day": days, "raw": [b"a", b"\x01"], "text": [False, True]}
    matrix = Matrix(rowdex.Dataset(tmp_path / "a.rdx"), [*given], given, "float32")
    found = matrix(rowdex.Dataset(tmp_path / "a.rdx").take([0, 1, 2]))
    assert found.tolist() == [[1, 0, 1, 1], [0, 1, 0, 0], [1, 0, 0, 1]]
