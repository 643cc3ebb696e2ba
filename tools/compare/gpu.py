#!/usr/bin/env python3
"""How busy a loader keeps a GPU: python tools/compare/gpu.py DATA [--sets flux packs] [--seconds 0 0.01 ...]

Needs PyTorch with an accelerator. A step is products of matrices, as many as take the seconds asked for. While the
device computes, the next batch is made, and copied on a stream of its own.

    flux    the samples of tools/compare/utilisation.py: 2.16 MB of floats each, 48 a batch
    packs   documents of 1 to 2,000 tokens, in packs of 8192 tokens, 16 a batch

    page-locked   `Loader(output="torch", pin_memory=True)`, copied beside the computing
    pageable      the same without `pin_memory`: the copy of a batch waits for itself, and the loop with it

    utilisation = seconds of computing / seconds on the clock, of all steps behind the first ones

Rows are in a global shuffle, with memory for a part of the decoded data (`--percent`). Before anything is measured, the
tensors of an epoch on the device are compared with those that the same loader serves as arrays of numpy.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import pathlib
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import rowdex
import shapes
import utilisation

PACK, PACKS = 8192, 16
# The matrices of a step: large enough that the device is full, and small enough to count the products.
SIDE = 4096
FIRST = 8


def flux(folder: pathlib.Path) -> dict[str, Any]:
    if not folder.exists():
        utilisation.write(folder)
    return {"batch_size": utilisation.BATCH}


def packs(folder: pathlib.Path) -> dict[str, Any]:
    if not folder.exists():
        shapes.write(folder, "ragged")
    return {"batch_size": PACKS, "pack": rowdex.Pack("tokens", capacity=PACK), "columns": ["tokens"]}


SETS = {"flux": flux, "packs": packs}
WAYS: dict[str, dict[str, Any]] = {"page-locked": {"pin_memory": True, "threads": 2}, "pageable": {}}


def tensors(batch: Any) -> dict[str, Any]:
    """The parts of a batch that a device takes."""
    return {name: value for name, value in batch.items() if hasattr(value, "shape")}


def size(batch: dict[str, Any]) -> int:
    return sum(value.numel() * value.element_size() for value in batch.values())


class Device:
    """What computes, and a stream that copies beside it."""

    def __init__(self) -> None:
        self.device = torch.device("cuda")
        self.copying = torch.cuda.Stream()
        self.factor = torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=self.device)
        self.compute(50)
        torch.cuda.synchronize()
        began = time.perf_counter()
        self.compute(200)
        torch.cuda.synchronize()
        self.product = (time.perf_counter() - began) / 200

    def compute(self, products: int) -> None:
        for _ in range(products):
            torch.mm(self.factor, self.factor)

    def ahead(self, batches: Iterator[Any]) -> Iterator[dict[str, Any]]:
        """Batches on the device; the next one is copied while one is used."""
        coming: dict[str, Any] | None = None
        for batch in batches:
            with torch.cuda.stream(self.copying):
                there = {name: value.to(self.device, non_blocking=True) for name, value in tensors(batch).items()}
            if coming is not None:
                yield coming
            torch.cuda.current_stream().wait_stream(self.copying)
            for value in there.values():
                value.record_stream(torch.cuda.current_stream())
            coming = there
        if coming is not None:
            yield coming


def measure(device: Device, loader: Any, seconds: float, limit: float) -> dict[str, Any]:
    """Epochs until the time is over."""
    products = round(seconds / device.product)
    events: list[tuple[Any, Any]] = []
    moved = steps = 0
    began = time.perf_counter()

    def endless() -> Iterator[Any]:
        while True:
            yield from loader

    for number, batch in enumerate(device.ahead(endless())):
        if number == FIRST:
            torch.cuda.synchronize()
            began, cpu = time.perf_counter(), time.process_time()
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        device.compute(products)
        after.record()
        if number >= FIRST:
            events.append((before, after))
            moved, steps = moved + size(batch), steps + 1
            if time.perf_counter() - began > limit:
                break
        # A training loop looks at its loss now and then, so it is not far ahead of its device.
        if len(events) > 1:
            events[-2][1].synchronize()
    torch.cuda.synchronize()
    wall = time.perf_counter() - began
    busy = sum(before.elapsed_time(after) for before, after in events) / 1000
    return {
        "steps": steps, "step_ms": 1000 * busy / steps, "utilisation": busy / wall, "gb_a_second": moved / wall / 1e9,
        "mb_a_batch": moved / steps / 1e6, "cpu_s_a_gb": (time.process_time() - cpu) / moved * 1e9,
    }  # fmt: skip


def check(device: Device, make: Any) -> int:
    """Every tensor of an epoch that reached the device; how many bytes they have."""
    found = 0
    with make(output="torch", pin_memory=True) as pinned, make(output="numpy") as plain:
        for batch, arrays in zip(device.ahead(iter(pinned)), plain, strict=True):
            for name, value in batch.items():
                np.testing.assert_array_equal(value.cpu().numpy(), np.asarray(arrays[name]))
                found += value.numel() * value.element_size()
    assert found
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seconds", type=float, nargs="+", default=[0, 0.005, 0.02, 0.05, 0.1])
    parser.add_argument("--percent", type=int, nargs="+", default=[25, 110])
    parser.add_argument("--limit", type=float, default=4, help="seconds to measure for")
    parser.add_argument("--threads", type=int, default=min(8, len(os.sched_getaffinity(0))))
    given = parser.parse_args()
    given.data.mkdir(parents=True, exist_ok=True)
    device = Device()
    name = torch.cuda.get_device_name()
    print(json.dumps({"device": name, "cores": len(os.sched_getaffinity(0)), "torch": torch.__version__}), flush=True)
    for chosen in given.sets:
        folder = given.data / chosen
        options = SETS[chosen](folder)
        columns = options.pop("columns", None)
        with tempfile.TemporaryDirectory(dir=given.data) as place:
            index = pathlib.Path(place) / "train.rdx"
            lengths = {"lengths": ["tokens"]} if "pack" in options else {}
            rowdex.build(folder, index, progress=False, **lengths)
            dataset = rowdex.Dataset(index, columns=columns)

            def make(percent: int = 25, **how: Any) -> Any:
                memory = dataset.decoded_bytes * percent // 100
                return rowdex.Loader(dataset, seed=1, memory=memory, threads=given.threads, **options, **how)

            print(json.dumps({"set": chosen, "compared_bytes": check(device, make)}), flush=True)
            for percent, seconds, (way, how) in itertools.product(given.percent, given.seconds, WAYS.items()):
                with make(percent, output="torch", **how) as loader:
                    if percent > 100:
                        # An epoch to decode what is held from then on.
                        for _ in loader:
                            pass
                    found = measure(device, loader, seconds, given.limit)
                what = {"set": chosen, "percent": percent, "way": way, "asked_ms": 1000 * seconds}
                print(json.dumps({**what, **found}), flush=True)


if __name__ == "__main__":
    main()
