"""Ray: datasets of Ray Data, training functions of Ray Train, and indexes that are built by tasks."""

from __future__ import annotations

import json
import os
import pathlib
import pickle
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from .need import need
from .page import script

ray = need("ray", "ray.data", "ray.data.expressions", "ray.train")

from rowdex import ray as rowdex_ray  # noqa: E402

pytestmark = pytest.mark.usefixtures("watchdog")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    """A Ray of two processors, which ends with this file."""
    os.environ["RAY_TRAIN_V2_ENABLED"] = "1"
    ray.init(
        num_cpus=2, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False, configure_logging=False
    )
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield
    ray.shutdown()


@pytest.fixture()
def dataset(unequal: pathlib.Path) -> Any:
    with rowdex.Dataset(unequal / "train.rdx") as dataset:
        yield dataset


def test_read_tasks_have_whole_row_groups_in_order_and_all_rows(dataset: Any) -> None:
    source = rowdex_ray.Datasource(dataset, row_ids="row")
    for parallelism in (1, 2, 7, 100):
        tasks = source.get_read_tasks(parallelism)
        assert 0.5 * parallelism <= len(tasks) <= parallelism or parallelism == 100
        tables = [pa.concat_tables(task()) for task in tasks]
        assert [table.num_rows for table in tables] == [task.metadata.num_rows for task in tasks]
        assert pa.concat_tables(tables)["row"].to_pylist() == list(range(10_007))
        assert pa.concat_tables(tables)["id"].to_pylist() == list(range(10_007))
        if parallelism <= 7:
            places = [dataset.index.locate(table["row"][0].as_py()) for table in tables]
            assert all(place.row == 0 for place in places)
    assert source.estimate_inmemory_data_size() == dataset.decoded_bytes
    with pytest.raises(ValueError, match="there is a column called 'id'"):
        rowdex_ray.Datasource(dataset, row_ids="id")
    with pytest.raises(TypeError, match="give it a rowdex.Dataset"):
        rowdex_ray.Datasource("train.rdx")  # type: ignore[arg-type]


def test_what_read_tasks_export_is_given_back(dataset: Any) -> None:
    def resident() -> int:
        pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def export(times: int) -> int:
        tasks = rowdex_ray.Datasource(dataset, row_ids="row").get_read_tasks(20)
        return sum(table.nbytes for _ in range(times) for task in tasks for table in task())

    export(20)
    before = resident()
    exported = export(150)
    assert exported > 50 << 20
    assert resident() - before < exported / 4


def test_ray_data_reads_an_index_and_a_view_in_parallel_and_keeps_their_order(
    dataset: Any, unequal: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    found = rowdex_ray.read(dataset, row_ids="row", override_num_blocks=4)
    assert found.count() == 10_007
    mapped = found.map_batches(lambda table: table.append_column("same", table["row"]), batch_format="pyarrow")
    table = pa.concat_tables(mapped.iter_batches(batch_size=1000, batch_format="pyarrow"))
    assert table["same"].to_pylist() == table["id"].to_pylist() == list(range(10_007))
    assert table["x"].to_pylist()[7] == [0.0, 2.0, 1.0]

    rowdex.select(dataset.index, tmp_path / "view.rdx", rows=pa.table({"row_id": range(0, 10_007, 3)}))
    view = rowdex_ray.read(rowdex.Dataset(tmp_path / "view.rdx", columns=["id"]), override_num_blocks=4)
    assert [row["id"] for row in view.iter_rows()] == list(range(0, 10_007, 3))


def test_rows_that_a_query_picked_are_trained_on(dataset: Any, tmp_path: pathlib.Path) -> None:
    read = rowdex_ray.read(dataset, row_ids="row_id", override_num_blocks=2)
    found = read.filter(expr=ray.data.expressions.col("y") == 3)
    kept = rowdex_ray.rows(found, dataset)
    assert list(kept) == [row for row in range(10_007) if row % 5 == 3]
    rowdex.select(dataset.index, tmp_path / "picked.rdx", rows=kept)
    with rowdex.Dataset(tmp_path / "picked.rdx") as picked:
        assert picked.take(range(len(picked))).to_numpy()["id"].tolist() == list(kept)
    order = rowdex.order.Subset("global", kept)
    loader = rowdex.Loader(dataset, batch_size=64, order=order, num_replicas=1, rank=0, output="numpy")
    assert sorted(row for batch in loader for row in batch["id"].tolist()) == list(kept)
    with pytest.raises(ValueError, match="make it of this one"):
        rowdex_ray.Datasource(rowdex.Dataset(tmp_path / "picked.rdx"), rows=kept)
    again = rowdex_ray.Datasource(dataset, rows=kept, row_ids="row_id")
    tables = [table for task in again.get_read_tasks(3) for table in task()]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(kept)
    with pytest.raises(rowdex.errors.ArgumentError, match="there is no column 'row_id' among id"):
        rowdex_ray.rows(found.select_columns(["id"]), dataset)


def test_a_run_of_ray_train_goes_on_exactly_with_the_worker_that_is_left(
    unequal: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    from ray.train import Checkpoint, RunConfig, ScalingConfig, TrainingFailedError  # noqa: PLC0415
    from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer  # noqa: PLC0415

    def train(config: dict[str, Any]) -> None:
        rank, world = ray.train.get_context().get_world_rank(), ray.train.get_context().get_world_size()
        # Rank and world size are those of Ray Train, and the batch of all ranks together stays.
        loader = rowdex.Loader(
            rowdex.Dataset(config["index"]), batch_size=128 // world, seed=3, output="numpy", repeated="pad"
        )
        begun = ray.train.get_checkpoint()
        if begun is not None:
            with begun.as_directory() as folder:
                loader.load_state_dict(json.loads(pathlib.Path(folder, "loader.json").read_text()))
        out = pathlib.Path(config["out"], f"{world}-{rank}")
        steps = []
        while loader.epoch < 2:
            for batch in loader:
                steps.append(batch["id"][~batch["pad"]].tolist())
                if len(steps) == 100 and begun is None:
                    folder = pathlib.Path(config["out"], f"state-{rank}")
                    folder.mkdir()
                    (folder / "loader.json").write_text(json.dumps(loader.state_dict()))
                    out.write_text(json.dumps(steps))
                    ray.train.report({}, checkpoint=Checkpoint(str(folder)) if rank == 0 else None)
                    # Reports wait for each other, so the first one of both ranks is known when this one is made.
                    ray.train.report({})
                    raise RuntimeError("a worker is lost")
        out.write_text(json.dumps(steps))
        ray.train.report({"world": world})

    def fit(workers: int) -> Any:
        return DataParallelTrainer(
            train,
            train_loop_config={"index": str(unequal / "train.rdx"), "out": str(tmp_path)},
            scaling_config=ScalingConfig(num_workers=workers),
            run_config=RunConfig(name="run", storage_path=str(tmp_path / "storage")),
        ).fit()

    with pytest.raises(TrainingFailedError, match="a worker is lost"):
        fit(2)
    fit(1)
    two = [json.loads((tmp_path / f"2-{rank}").read_text()) for rank in range(2)]
    assert [len(steps) for steps in two] == [100, 100]
    one = json.loads((tmp_path / "1-0").read_text())
    found = [sorted(a + b) for a, b in zip(*two)] + [sorted(step) for step in one]
    with rowdex.Loader(rowdex.Dataset(unequal / "train.rdx"), batch_size=128, seed=3, output="numpy") as loader:
        whole = [sorted(batch["id"].tolist()) for _ in range(2) for batch in loader]
    assert found == whole


def test_loaders_and_the_program_of_the_page_under_the_torch_trainer_are_whole_or_say_what_to_write(
    unequal: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    need("torch")
    from ray.train import RunConfig, ScalingConfig  # noqa: PLC0415
    from ray.train.torch import TorchTrainer  # noqa: PLC0415

    def train(config: dict[str, Any]) -> None:
        import rowdex.torch
        import torch
        from ray.train.torch import prepare_data_loader

        rank = ray.train.get_context().get_world_rank()
        found: dict[str, Any] = {}

        def serve(name: str, loader: Any) -> None:
            found[name] = [batch["id"].tolist() for _ in range(2) for batch in loader]

        dataset = rowdex.torch.Dataset(config["index"])
        serve("plain", rowdex.Loader(dataset, batch_size=64, seed=3))
        again = rowdex.Loader(dataset, batch_size=64, seed=3)
        serve("prepared", prepare_data_loader(again, add_dist_sampler=False))
        batches = rowdex.torch.BatchSampler(dataset, batch_size=64, seed=3)
        own = torch.utils.data.DataLoader(dataset, batch_sampler=batches)
        serve("data loader", prepare_data_loader(own, add_dist_sampler=False))
        serve("prepared as it is", prepare_data_loader(rowdex.Loader(dataset, batch_size=64, seed=3)))
        try:
            serve("data loader as it is", prepare_data_loader(own))
        except RuntimeError as error:
            found["data loader as it is"] = str(error)
        pathlib.Path(config["out"], str(rank)).write_text(json.dumps(found))
        names: dict[str, Any] = {}
        exec(config["page"], names)
        names["train"](config)

    trainer = TorchTrainer(
        train,
        train_loop_config={"index": str(unequal / "train.rdx"), "out": str(tmp_path), "page": script("frameworks/ray")},
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="torch", storage_path=str(tmp_path / "storage")),
    )
    reported = trainer.fit()
    dataset = rowdex.Dataset(unequal / "train.rdx")
    for rank in range(2):
        found = json.loads((tmp_path / str(rank)).read_text())
        loader = rowdex.Loader(dataset, batch_size=64, seed=3, num_replicas=2, rank=rank, output="numpy")
        whole = [batch["id"].tolist() for _ in range(2) for batch in loader]
        for name in ("plain", "prepared", "prepared as it is", "data loader"):
            assert found[name] == whole, name
        assert "add_dist_sampler=False" in found["data loader as it is"]
    assert reported.checkpoint is not None
    with reported.checkpoint.as_directory() as folder:
        state = json.loads(pathlib.Path(folder, "loader.json").read_text())
    loader = rowdex.Loader(dataset, batch_size=64, seed=42, num_replicas=2, rank=0)
    loader.load_state_dict(state)
    assert (len(loader), loader.epoch, loader.steps_left) == (79, 0, 39)


def data_files(folder: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def test_a_shuffle_by_tasks_writes_the_very_files_of_a_local_one(unequal: pathlib.Path, tmp_path: pathlib.Path) -> None:
    options: dict[str, Any] = {"seed": 5, "files": 5, "memory": "1MiB"}
    local = rowdex.rewrite(unequal / "train.rdx", tmp_path / "local", **options)
    spill = tmp_path / "scratch"
    spill.mkdir()
    report = rowdex_ray.rewrite(
        unequal / "train.rdx", tmp_path / "ray", nodes=3, num_cpus=1, spill=spill, verify=True, **options
    )
    assert data_files(tmp_path / "ray") == data_files(tmp_path / "local")
    assert (report.rows, report.files, report.kept_files) == (10_007, 5, 0)
    assert report.bytes_written == local.bytes_written and report.bytes_spilled > 0 and not list(spill.iterdir())
    assert report.rows_digest == rowdex.rows_digest(unequal / "train.rdx")
    # What is there is gone on with.
    again = rowdex_ray.rewrite(unequal / "train.rdx", tmp_path / "ray", nodes=2, num_cpus=1, spill=spill, **options)
    assert (again.kept_files, again.bytes_written) == (5, 0)
    with pytest.raises(rowdex.errors.StateError):
        rowdex_ray.rewrite(unequal / "train.rdx", tmp_path / "ray", nodes=1, num_cpus=1, seed=6)
    with pytest.raises(TypeError, match="nodes= divides the work"):
        rowdex_ray.rewrite(unequal / "train.rdx", tmp_path / "x", tasks=2)


def test_a_shuffle_by_tasks_needs_nothing_that_only_the_machine_of_the_caller_has(
    unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(unequal)
    # As on another machine: the file of a list that was sent before is not there.
    kept = rowdex.order.IdSet(10_007, range(0, 8000, 2))
    order = rowdex.order.Subset(rowdex.order.Explicit(range(3999, -1, -1)), kept)
    pickle.dumps(order)
    for path in (tmp_path / "temporary").iterdir():
        path.unlink()
    options: dict[str, Any] = {"order": order, "files": 2, "columns": ["id"]}
    local = rowdex.rewrite("train.rdx", tmp_path / "local", **options)
    report = rowdex_ray.rewrite("train.rdx", tmp_path / "ray", nodes=2, num_cpus=1, root=".", **options)
    assert report.rows == local.rows and data_files(tmp_path / "ray") == data_files(tmp_path / "local")
    assert list((tmp_path / "temporary").iterdir()) == []
