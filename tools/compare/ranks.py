"""Counts what the ranks of a job are served by rowdex and by others: python tools/compare/ranks.py [PEER ...]

Two ranks, or as many as WORLD in the environment says, each a process of its own, in one gloo group: 10,007 rows in
five files of unequal sizes, row groups of 500 rows, batches of 64, shuffled, as each library's manual says to do it for
distributed training. For each peer a line of Markdown: the steps of the ranks, how many rows were served in an epoch,
how many of them again, and how many never. What is converted is converted beforehand, and its bytes are printed. A peer
that cannot be imported is told. The peer "grain-shuffle" counts what Grain's shuffle of 65,537 rows has never.
"""

from __future__ import annotations

import collections
import importlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ.setdefault("HF_HUB_OFFLINE", "1")
SIZES, GROUP, BATCH, WORLD = (4000, 3001, 2001, 1000, 5), 500, 64, int(os.environ.get("WORLD", 2))
ROWS = sum(SIZES)
SECONDS = 120


def write(folder: pathlib.Path) -> None:
    first = 0
    for number, rows in enumerate(SIZES):
        ids = np.arange(first, first + rows)
        pq.write_table(pa.table({"id": ids, "x": ids / 2}), folder / f"part-{number}.parquet", row_group_size=GROUP)
        first += rows


def rows() -> Iterator[dict[str, Any]]:
    yield from ({"id": row, "x": row / 2} for row in range(ROWS))


class Rowdex:
    package = "rowdex"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        importlib.import_module("rowdex").build(data, folder / "train.rdx")

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        rowdex = importlib.import_module("rowdex")
        loader = rowdex.Loader(rowdex.Dataset(folder / "train.rdx"), batch_size=BATCH, seed=1, output="numpy")
        return (batch["id"] for batch in loader)


class ArrowCopy:
    """PyTorch's DistributedSampler over Hugging Face's Arrow copy."""

    package = "datasets"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        datasets = importlib.import_module("datasets")
        files = sorted(map(str, data.glob("*.parquet")))
        datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder))

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        from torch.utils.data import DataLoader, DistributedSampler

        datasets = importlib.import_module("datasets")
        files = sorted(map(str, data.glob("*.parquet")))
        dataset = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(folder))
        dataset = dataset.with_format("torch")
        sampler = DistributedSampler(dataset, WORLD, rank, seed=1)
        return (batch["id"] for batch in DataLoader(dataset, batch_size=BATCH, sampler=sampler))


class Mosaic:
    package = "streaming"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        streaming = importlib.import_module("streaming")
        with streaming.MDSWriter(out=str(folder), columns={"id": "int", "x": "float64"}, size_limit=1 << 15) as writer:
            for row in rows():
                writer.write(row)

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        streaming = importlib.import_module("streaming")
        dataset = streaming.StreamingDataset(local=str(folder), shuffle=True, batch_size=BATCH)
        return (batch["id"] for batch in streaming.StreamingDataLoader(dataset, batch_size=BATCH))


class LitData:
    package = "litdata"
    options: dict[str, Any] = {"shuffle": True, "drop_last": True}

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        litdata = importlib.import_module("litdata")
        litdata.optimize(row_of, inputs=list(range(ROWS)), output_dir=str(folder), chunk_bytes="32KB", num_workers=1)

    @classmethod
    def serve(cls, data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        litdata = importlib.import_module("litdata")
        dataset = litdata.StreamingDataset(str(folder), **cls.options)
        return (batch["id"] for batch in litdata.StreamingDataLoader(dataset, batch_size=BATCH, num_workers=1))


class LitDataWhole(LitData):
    """With ``drop_last=False``."""

    options = {"shuffle": True, "drop_last": False}


def row_of(row: int) -> dict[str, Any]:
    return {"id": row, "x": row / 2}


class Lance:
    package = "lancedb.streaming"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        lancedb = importlib.import_module("lancedb")
        table = pa.concat_tables(pq.read_table(file) for file in sorted(data.glob("*.parquet")))
        lancedb.connect(str(folder)).create_table("train", table)

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        from torch.utils.data import DataLoader

        table = importlib.import_module("lancedb").connect(str(folder)).open_table("train")
        streaming = importlib.import_module("lancedb.streaming")
        dataset = streaming.StreamingDataset(table, shuffle_seed=1, rank=rank, world_size=WORLD)
        return (batch["id"] for batch in DataLoader(dataset, batch_size=BATCH))


class Grain:
    """Its DataLoader with an IndexSampler."""

    package = "grain"
    drop_remainder = False

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        pass

    @classmethod
    def serve(cls, data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        grain = importlib.import_module("grain.python")
        source = pa.concat_tables(pq.read_table(file) for file in sorted(data.glob("*.parquet")))["id"].to_pylist()
        shard = grain.ShardOptions(rank, WORLD, drop_remainder=cls.drop_remainder)
        sampler = grain.IndexSampler(len(source), shard, shuffle=True, num_epochs=1, seed=1)
        batches = [grain.Batch(BATCH)]
        return iter(grain.DataLoader(data_source=source, sampler=sampler, operations=batches, worker_count=0))


class GrainEven(Grain):
    """With ``ShardOptions(drop_remainder=True)``."""

    drop_remainder = True


class TorchDataloaderUtils:
    package = "torch_dataloader_utils"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        pass

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        utils = importlib.import_module("torch_dataloader_utils")
        loader, _ = utils.StructuredDataset.create_dataloader(
            path=str(data), format="parquet", batch_size=BATCH, shuffle=True, num_workers=0, num_ranks=WORLD, rank=rank
        )
        return (batch["id"] for batch in loader)


class Petastorm:
    package = "petastorm"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        pass

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        petastorm = importlib.import_module("petastorm")
        pytorch = importlib.import_module("petastorm.pytorch")
        reader = petastorm.make_batch_reader(f"file://{data}", cur_shard=rank, shard_count=WORLD)
        return (batch["id"] for batch in pytorch.BatchedDataLoader(reader, batch_size=BATCH))


class RowGroups:
    """What petastorm does, by pyarrow: row group ``g`` is of rank ``g % world``."""

    package = "pyarrow"

    @staticmethod
    def prepare(data: pathlib.Path, folder: pathlib.Path) -> None:
        pass

    @staticmethod
    def serve(data: pathlib.Path, folder: pathlib.Path, rank: int) -> Any:
        files = [pq.ParquetFile(file) for file in sorted(data.glob("*.parquet"))]
        groups = [(file, group) for file in files for group in range(file.num_row_groups)]
        ids = np.concatenate([file.read_row_group(group)["id"].to_numpy() for file, group in groups[rank::WORLD]])
        return (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))


PEERS: dict[str, Any] = {
    "rowdex": Rowdex, "row-groups": RowGroups, "petastorm": Petastorm, "arrow-copy": ArrowCopy, "lance": Lance,
    "mosaic": Mosaic, "litdata": LitData, "litdata-whole": LitDataWhole, "grain": Grain, "grain-even": GrainEven,
    "torch-dataloader-utils": TorchDataloaderUtils,
}  # fmt: skip


def be_a_rank(name: str, data: str, folder: str) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    try:
        served = [np.asarray(ids).tolist() for ids in PEERS[name].serve(pathlib.Path(data), pathlib.Path(folder), rank)]
        told: dict[str, Any] = {"batches": served}
    except Exception:
        told = {"error": traceback.format_exc().strip().splitlines()[-1]}
    print("\n" + json.dumps(told), flush=True)
    # Some leave threads behind.
    os._exit(0)


def run(name: str, data: pathlib.Path, folder: pathlib.Path) -> list[dict[str, Any]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = []
    for rank in range(WORLD):
        environment = {
            **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(WORLD), "OMP_NUM_THREADS": "1",
            "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
        }  # fmt: skip
        command = [sys.executable, __file__, "--rank", name, str(data), str(folder)]
        ranks.append(subprocess.Popen(command, stdout=-1, stderr=subprocess.DEVNULL, text=True, env=environment))
    found = []
    for process in ranks:
        try:
            out, _ = process.communicate(timeout=SECONDS)
            found.append(json.loads(out.strip().splitlines()[-1]))
        except (subprocess.TimeoutExpired, IndexError, ValueError):
            process.kill()
            found.append({"error": f"no answer within {SECONDS} seconds"})
    return found


def line(name: str, found: list[dict[str, Any]], size: int) -> str:
    errors = [rank["error"] for rank in found if "error" in rank]
    if errors:
        return f"| {name} | {errors[0]} | | | | |"
    steps = " and ".join(str(len(rank["batches"])) for rank in found)
    counted = collections.Counter(row for rank in found for batch in rank["batches"] for row in batch)
    twice = sum(counted.values()) - len(counted)
    return f"| {name} | {steps} | {sum(counted.values())} | {twice} | {ROWS - len(counted)} | {size} |"


def grain_shuffle(rows: int = 65_537) -> None:
    grain = importlib.import_module("grain")
    for seed in range(5):
        shuffled = grain.MapDataset.range(rows).shuffle(seed=seed)
        print(f"grain, seed {seed}: {rows - len({shuffled[i] for i in range(rows)})} of {rows} rows never", flush=True)


def main(names: list[str]) -> None:
    if names == ["grain-shuffle"]:
        grain_shuffle()
        return
    print("| peer | steps | rows served | again | never | bytes of a copy |\n| --- | --- | --- | --- | --- | --- |")
    for name in names or PEERS:
        peer = PEERS[name]
        try:
            importlib.import_module(peer.package)
        except ModuleNotFoundError as error:
            print(f"| {name} | {error} | | | | |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            data, folder = pathlib.Path(temporary, "data"), pathlib.Path(temporary, "copy")
            data.mkdir()
            folder.mkdir()
            write(data)
            peer.prepare(data, folder)
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            print(line(name, run(name, data, folder), size), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        be_a_rank(*sys.argv[2:])
    else:
        main(sys.argv[1:])
