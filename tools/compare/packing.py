"""What training steps are made of by packers: python tools/compare/packing.py [PEER ...]

One generated set of documents with lengths as those of web text, eight ranks with one pack a step, packs of 8192
tokens, one epoch; each library as its manual says. Every token is a number of its own, so that what was served is
counted, and not what a library says of itself. For each peer a line of Markdown: the fewest and the most steps of a
rank, tokens that were never served and that were served again, how full packs are, what becomes of a run that is saved
after half of its steps and goes on with five ranks, and the CPU time in user mode by a million tokens, of what all
ranks do in one process: the median of three times, from opening what was written for the peer before. A peer that
cannot be imported is told.

ROWS in the environment says how many documents there are, and CAPACITY how many tokens a pack has.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "TOKENIZERS_PARALLELISM": "false"}
ROWS, CAPACITY = int(os.environ.get("ROWS", 2_000)), int(os.environ.get("CAPACITY", 8192))
WORLD, OTHER_WORLD, TIMES, SECONDS = 8, 5, 3, 600
BINS = 64
"""Packs that Grain keeps open: its manual names no number, torchtitan takes 8, and more of them waste less."""


class Served(NamedTuple):
    """What the ranks of a job had."""

    ranks: list[list[np.ndarray]]
    """For each rank, and step by step, the tokens, without what fills packs up."""
    room: int
    """How many tokens a step of a rank has room for; 0: as many as the largest one had."""


def lengths_of() -> np.ndarray:
    """Lognormal, about 900 tokens on average, as web text has them."""
    found = np.random.default_rng(7).lognormal(6.3, 1.0, ROWS)
    return np.clip(found.astype(np.int64), 1, 100_000)


def documents() -> pa.Table:
    ends = np.concatenate([[0], np.cumsum(lengths_of())]).astype(np.int32)
    # From 1, because what fills up is 0.
    values = np.arange(1, ends[-1] + 1, dtype=np.int32)
    return pa.table({"input_ids": pa.ListArray.from_arrays(pa.array(ends), pa.array(values))})


class Rowdex:
    package = "rowdex"

    @staticmethod
    def prepare(folder: pathlib.Path) -> None:
        rowdex = importlib.import_module("rowdex")
        rowdex.build(folder, folder / "train.rdx", lengths=["input_ids"], progress=False)

    @staticmethod
    def loader(folder: pathlib.Path, rank: int, world: int) -> Any:
        rowdex = importlib.import_module("rowdex")
        pack = rowdex.Pack("input_ids", capacity=CAPACITY)
        dataset = rowdex.Dataset(folder / "train.rdx", columns=["input_ids"])
        return rowdex.Loader(
            dataset, batch_size=1, pack=pack, seed=1, num_replicas=world, rank=rank, output="numpy", threads=0
        )

    @classmethod
    def serve(cls, folder: pathlib.Path, world: int) -> Served:
        loaders = [cls.loader(folder, rank, world) for rank in range(world)]
        return Served([[batch["input_ids"] for batch in loader] for loader in loaders], CAPACITY)

    @classmethod
    def resume(cls, folder: pathlib.Path) -> tuple[Served, Served]:
        loaders = [cls.loader(folder, rank, WORLD) for rank in range(WORLD)]
        before = halves([(batch["input_ids"] for batch in loader) for loader in loaders], len(loaders[0]) // 2)
        others = [cls.loader(folder, rank, OTHER_WORLD) for rank in range(OTHER_WORLD)]
        for loader in others:
            loader.load_state_dict(loaders[0].state_dict())
        return before, Served([[batch["input_ids"] for batch in loader] for loader in others], CAPACITY)


def halves(ranks: list[Iterator[np.ndarray]], steps: int) -> Served:
    return Served([list(itertools.islice(rank, steps)) for rank in ranks], CAPACITY)


def distributed(count: int, world: int, rank: int) -> list[int]:
    """The samples of a rank in its order, by what Accelerate and PyTorch make of a map-style dataset."""
    from torch.utils.data import DistributedSampler

    return list(DistributedSampler(range(count), world, rank, seed=1))  # type: ignore[arg-type]


class Trl:
    """``pack_dataset``, and its packs dealt to ranks."""

    package = "trl"
    strategy = "bfd"
    resumes = "no: it counts steps"

    @classmethod
    def serve(cls, folder: pathlib.Path, world: int) -> Served:
        datasets, trl = importlib.import_module("datasets"), importlib.import_module("trl")
        dataset = datasets.Dataset(documents()).shuffle(seed=1)
        packed = trl.pack_dataset(dataset, CAPACITY, cls.strategy).with_format("numpy")
        ranks = [[packed[i]["input_ids"] for i in distributed(len(packed), world, rank)] for rank in range(world)]
        return Served(ranks, CAPACITY)


class TrlSplit(Trl):
    """With ``strategy="bfd_split"``."""

    strategy = "bfd_split"


class Flattening:
    """Hugging Face's ``DataCollatorWithFlattening``: as many rows as fill a pack on average."""

    package = "transformers"
    resumes = Trl.resumes

    @staticmethod
    def serve(folder: pathlib.Path, world: int) -> Served:
        datasets, transformers = importlib.import_module("datasets"), importlib.import_module("transformers")
        dataset = datasets.Dataset(documents())
        collate = transformers.DataCollatorWithFlattening(return_tensors="np")
        size = round(CAPACITY / lengths_of().mean())
        ranks = []
        for rank in range(world):
            own = distributed(len(dataset), world, rank)
            batches = [own[start : start + size] for start in range(0, len(own), size)]
            ranks.append([collate([dataset[row] for row in batch])["input_ids"][0] for batch in batches])
        return Served(ranks, 0)


class Grain:
    """``FirstFitPackIterDataset`` over the slice of each rank; longer rows are cut, as MaxText does."""

    package = "grain"
    packer = "FirstFitPackIterDataset"

    @classmethod
    def dataset(cls, rank: int, world: int) -> Any:
        grain = importlib.import_module("grain")
        column = documents()["input_ids"].chunk(0)
        values, ends = column.values.to_numpy(), column.offsets.to_numpy()
        rows = grain.MapDataset.range(len(column)).shuffle(seed=1)[rank::world]
        cut = rows.map(lambda row: {"input_ids": values[ends[row] : min(ends[row + 1], ends[row] + CAPACITY)]})
        reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        pack = getattr(grain.experimental, cls.packer)
        return pack(
            cut.to_iter_dataset(reading), length_struct={"input_ids": CAPACITY}, num_packing_bins=BINS
        )

    @staticmethod
    def tokens(packs: Iterable[Any]) -> Iterator[np.ndarray]:
        for pack in packs:
            pack = pack[0] if isinstance(pack, tuple) else pack
            yield pack["input_ids"][pack["input_ids"] != 0]

    @classmethod
    def serve(cls, folder: pathlib.Path, world: int) -> Served:
        return Served([list(cls.tokens(cls.dataset(rank, world))) for rank in range(world)], CAPACITY)

    @classmethod
    def resume(cls, folder: pathlib.Path) -> tuple[Served, Served]:
        own = [iter(cls.dataset(rank, WORLD)) for rank in range(WORLD)]
        steps = int(lengths_of().sum()) // CAPACITY // WORLD // 2
        before = halves([cls.tokens(rank) for rank in own], steps)
        others = [iter(cls.dataset(rank, OTHER_WORLD)) for rank in range(OTHER_WORLD)]
        for rank, other in enumerate(others):
            other.set_state(own[rank].get_state())
        return before, Served([list(cls.tokens(rank)) for rank in others], CAPACITY)


class GrainBestFit(Grain):
    packer = "BestFitPackIterDataset"


class Lance:
    """``pack_sequences`` of its ``StreamingDataset``, with as many blocks an epoch as all tokens fill, and splits that
    both numbers of ranks divide."""

    package = "lancedb.streaming"

    @staticmethod
    def prepare(folder: pathlib.Path) -> None:
        importlib.import_module("lancedb").connect(str(folder / "lance")).create_table("train", documents())

    @staticmethod
    def dataset(folder: pathlib.Path, rank: int, world: int) -> Any:
        database = importlib.import_module("lancedb").connect(str(folder / "lance"))
        streaming, splits = importlib.import_module("lancedb.streaming"), WORLD * OTHER_WORLD
        # An end is added to each document, and is no token of its own.
        blocks = -(-int(lengths_of().sum() + ROWS) // CAPACITY // splits) * splits
        return streaming.StreamingDataset(
            database.open_table("train"), columns=["input_ids"], shuffle_seed=1, rank=rank, world_size=world,
            num_splits=splits, pack_sequences=CAPACITY, eos_id=-1, pad_id=0, blocks_per_epoch=blocks,
        )  # fmt: skip

    @staticmethod
    def tokens(packs: Iterable[Any]) -> Iterator[np.ndarray]:
        for pack in packs:
            found = pack["input_ids"].numpy()
            yield found[found > 0]

    @classmethod
    def serve(cls, folder: pathlib.Path, world: int) -> Served:
        return Served([list(cls.tokens(cls.dataset(folder, rank, world))) for rank in range(world)], CAPACITY)

    @classmethod
    def resume(cls, folder: pathlib.Path) -> tuple[Served, Served]:
        own = [cls.dataset(folder, rank, WORLD) for rank in range(WORLD)]
        # A state is of whole cycles, in which each split of a rank has served a pack.
        steps = int(lengths_of().sum()) // CAPACITY // WORLD // 2 // OTHER_WORLD * OTHER_WORLD
        before = halves([cls.tokens(iter(rank)) for rank in own], steps)
        state = type(own[0]).merge_state_dicts([rank.state_dict() for rank in own])
        others = [cls.dataset(folder, rank, OTHER_WORLD) for rank in range(OTHER_WORLD)]
        for other in others:
            other.load_state_dict(state)
        return before, Served([list(cls.tokens(rank)) for rank in others], CAPACITY)


PEERS: dict[str, Any] = {
    "rowdex": Rowdex, "trl": Trl, "trl-split": TrlSplit, "flattening": Flattening, "lance": Lance,
    "grain-first-fit": Grain, "grain-best-fit": GrainBestFit,
}  # fmt: skip


def counted(*parts: Served) -> tuple[int, int]:
    """How many tokens were never served, and how many again."""
    times = np.zeros(int(lengths_of().sum()) + 1, np.int64)
    for step in (step for part in parts for rank in part.ranks for step in rank):
        np.add.at(times, step, 1)
    times = times[1:]
    return int((times == 0).sum()), int((times[times > 1] - 1).sum())


def packs(name: str) -> dict[str, Any]:
    """What a peer serves, in this process."""
    peer, total = PEERS[name], int(lengths_of().sum())
    documents()
    importlib.import_module(peer.package)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        pq.write_table(documents(), folder / "train.parquet", row_group_size=1000)
        if hasattr(peer, "prepare"):
            peer.prepare(folder)
        times = []
        for _ in range(TIMES):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            served = peer.serve(folder, WORLD)
            times.append(resource.getrusage(resource.RUSAGE_SELF).ru_utime - before)
        sizes = [len(step) for rank in served.ranks for step in rank]
        lost, again = counted(served)
        told = {
            "steps": [min(map(len, served.ranks)), max(map(len, served.ranks))],
            "lost": lost / total,
            "again": again / total,
            "fill": sum(sizes) / len(sizes) / (served.room or max(sizes)),
            "seconds": statistics.median(times) / total * 1e6,
            "resume": getattr(peer, "resumes", None),
        }
        if told["resume"] is None:
            try:
                lost, again = counted(*peer.resume(folder))
                told["resume"] = f"{lost / total:.3%} of the tokens never, {again / total:.3%} again"
            except Exception as error:
                told["resume"] = f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
        return told


def line(name: str, told: dict[str, Any]) -> str:
    least, most = told["steps"]
    steps = f"{least}" if least == most else f"**{least} to {most}**"
    numbers = f"{told['lost']:.3%} | {told['again']:.3%} | {told['fill']:.2%}"
    return f"| {name} | {steps} | {numbers} | {told['resume']} | {told['seconds']:.3f} |"


def main(names: list[str]) -> None:
    total = int(lengths_of().sum())
    print(f"{ROWS} documents, {total} tokens, packs of {CAPACITY}, {WORLD} ranks, {OTHER_WORLD} after a resume\n")
    print("| peer | steps of a rank | never served | served again | fill | resumed | CPU s by million tokens |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in names or PEERS:
        # A process of its own, because libraries leave threads and memory behind.
        command = [sys.executable, __file__, "--peer", name]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment)
        except subprocess.TimeoutExpired:
            print(f"| {name} | no answer within {SECONDS} seconds | | | | | |", flush=True)
            continue
        answer = done.stdout.strip().splitlines()
        if done.returncode == 0 and answer:
            print(line(name, json.loads(answer[-1])), flush=True)
        else:
            print(f"| {name} | {(done.stderr.strip().splitlines() or ['no answer'])[-1]} | | | | | |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peer"]:
        print("\n" + json.dumps(packs(sys.argv[2])), flush=True)
        # Some leave threads behind.
        os._exit(0)
    main(sys.argv[1:])
