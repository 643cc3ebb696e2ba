"""Forks children while a thread uses something for the first time: python fork_program.py CALL FOLDER CHILDREN SEED.

Every child uses what it inherited, and one that it makes itself. Those that do not end are killed and counted.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pathlib
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import rowdex
from rowdex import order

PATIENCE = float(os.environ.get("ROWDEX_PATIENCE", "40"))
"""Seconds for a child. One that hangs does so for ever."""

folder = sys.argv[2] if __name__ == "__main__" else ""
path = f"{folder}/train.rdx"
where = "label in (1, 2) and name like 'row 1%' and x * 2 < 900.0 and maybe is not null"


def dataset(**options: Any) -> rowdex.Dataset:
    return rowdex.Dataset(path, **options)


def sampler(**options: Any) -> rowdex.DistributedSampler:
    return rowdex.DistributedSampler(dataset(), 2, 1, batch_size=16, **options)


def loader(**options: Any) -> rowdex.Loader:
    return rowdex.Loader(dataset(), batch_size=64, output="python", **options)


def kept() -> rowdex.Dataset:
    return dataset(disk_cache=rowdex.DiskCache(f"{folder}/disk_cache", 1 << 24))


def sets(of: rowdex.Dataset) -> Any:
    return (order.IdSet.split(of, "train", by="name") & order.IdSet(len(of), range(100))).ids()


def some(batches: Any) -> list[Any]:
    return [batch for batch, _ in zip(batches, range(6))]


def built(_: Any) -> int:
    out = pathlib.Path(folder) / f"built-{os.getpid()}-{threading.get_ident()}.rdx"
    with contextlib.suppress(FileNotFoundError):
        out.unlink()
    return rowdex.build(folder, out, progress=False).rows


def selected(_: Any) -> int:
    out = pathlib.Path(folder) / f"view-{os.getpid()}-{threading.get_ident()}.rdx"
    with contextlib.suppress(FileNotFoundError):
        out.unlink()
    return rowdex.select(path, out, where=where, progress=False).rows


def refused(_: Any) -> str:
    store = rowdex.StoreOptions(retries=0)
    try:
        rowdex.Index("https://127.0.0.1:9/train.rdx", store=store)
    except rowdex.Error as error:
        return type(error).__name__
    return "opened"


def planned(of: rowdex.Dataset) -> list[Any]:
    with of.prefetch(range(0, 900, 7)) as rows:
        return [rows.take(range(0, 224, 7)).to_pydict()["id"], rows.stats.prefetched]


def positions(orders: Any) -> Callable[[rowdex.Dataset], Any]:
    """The rows of an order, and where the run goes on."""

    def use(of: rowdex.Dataset) -> Any:
        served = rowdex.DistributedSampler(of, 1, 0, batch_size=32, order=orders(of))
        state = served.state_after(0, 3)
        rows = [list(served), list(served)]
        served.load_state_dict(state)
        return [*rows, list(served)]

    return use


def nothing() -> None:
    return None


CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "take": (dataset, lambda of: of.take(range(0, 1003, 9)).to_pydict()),
    "get": (dataset, lambda of: [of[i]["name"] for i in (1, 500, 1002)]),
    "iterate": (dataset, lambda of: some(of)),
    "numpy": (dataset, lambda of: of.take([5, 900, 30]).to_numpy(["id", "x"])["x"].tolist()),
    "frame": (dataset, lambda of: of.select(["id", "x"]).to_pandas().shape),
    "frame of a batch": (dataset, lambda of: of.take([1, 2]).to_pandas().shape),
    "digest": (dataset, rowdex.rows_digest),
    "stream": (dataset, lambda of: of.schema.__arrow_c_schema__() is of.__arrow_c_stream__()),
    "follow": (dataset, planned),
    "labels": (dataset, lambda of: [of.labels("label").classes, of.counts("name", None)["row 7"]]),
    "weights": (dataset, lambda of: of.weights("x").tolist()),
    "facts": (dataset, lambda of: [of.decoded_bytes, len(of), of.column_names, of.verify("deep", progress=False).rows]),
    "index": (lambda: rowdex.Index(path), lambda of: [of.fingerprint, of.locate(700), len(of.files), of.schema.names]),
    "filter": (dataset, lambda of: len(order.IdSet.where(of, where))),
    "another condition": (dataset, lambda of: len(order.IdSet.where(of, "regexp_replace(name, '1', '2') = 'row 22'"))),
    "sets": (dataset, sets),
    "select": (nothing, selected),
    "count": (nothing, lambda _: rowdex.count(path, where="label > 2")),
    "build": (nothing, built),
    "store": (nothing, refused),
    "sampler": (sampler, lambda of: [list(of), len(of), of.steps, some(of.batches()), of.batch(0, 1)]),
    "explicit": (dataset, positions(lambda of: order.Explicit(range(len(of) - 1, -1, -1)))),
    "weighted": (dataset, positions(lambda of: order.Weighted([1.0 + i % 3 for i in range(len(of))]))),
    "torch order": (dataset, positions(lambda of: "torch")),
    "blocks": (dataset, positions(lambda of: "blocks(4)")),
    "mixed": (lambda: rowdex.MixedDataset([dataset(), dataset()]), lambda of: of.take([3, 1500]).to_pydict()),
    "zipped": (lambda: rowdex.Zipped({"a": dataset(), "b": dataset()}), some),
    "loader of zipped": (lambda: rowdex.Loader(rowdex.Zipped([dataset()]), batch_size=64, output="arrow"), some),
    "loader": (loader, lambda of: len(some(of))),
    "loader's facts": (lambda: loader(strings="views", on_error="substitute"), lambda of: [
        len(of), of.estimate(), of.schema.names, of.state_dict(), of.stats["rows"] >= 0, of.lost_groups,
    ]),
    "transforms": (lambda: loader(map=len, threads=2), lambda of: len(some(of))),
    "disk_cache": (kept, lambda of: of.take([1, 900]).to_pydict()),
}  # fmt: skip


def child(make: Callable[[], Any], use: Callable[[Any], Any], inherited: Any) -> None:
    faulthandler.dump_traceback_later(PATIENCE * 0.9)
    code = 1
    try:
        use(inherited)
        use(make())
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def ended(children: set[int], failed: list[int], until: float) -> None:
    """Takes note of children that have ended, and kills those that have not by then."""
    while children:
        for pid in list(children):
            if time.monotonic() > until:
                os.kill(pid, signal.SIGKILL)
                failed.append(pid)
                os.waitpid(pid, 0)
                children.discard(pid)
                continue
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                children.discard(pid)
                if status:
                    failed.append(pid)
        time.sleep(0.002)


def main() -> int:
    make, use = CALLS[sys.argv[1]]
    number, choose = int(sys.argv[3]), random.Random(sys.argv[4])
    begun: list[BaseException] = []
    failed: list[int] = []
    while number > 0:
        inherited = make()

        def work() -> None:
            try:
                use(inherited)
            except BaseException as error:
                begun.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        children: set[int] = set()
        while number > 0 and len(children) < 5:
            number -= 1
            # What is made at first use is made early, and takes between microseconds and a tenth of a second.
            time.sleep(10 ** choose.uniform(-5, -1.5))
            pid = os.fork()
            if pid == 0:
                child(make, use, inherited)
            children.add(pid)
        thread.join()
        ended(children, failed, time.monotonic() + PATIENCE)
    if begun:
        raise begun[0]
    print(len(failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
