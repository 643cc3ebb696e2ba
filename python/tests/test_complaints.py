"""What users of data loaders complain of, by name. docs/comparison.md lists the complaints, and the tests of each."""

from __future__ import annotations

import collections
import http.server
import itertools
import json
import os
import pathlib
import re
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
import rowdex.order

from .conftest import REPOSITORY, ROWS, run_python, table_of
from .test_faults import Server, server  # noqa: F401

COMPLAINTS = REPOSITORY / "docs/comparison.md"
KILLED = pathlib.Path(__file__).with_name("killed_worker_program.py")


def test_every_test_that_the_page_of_complaints_names_is_there() -> None:
    section = COMPLAINTS.read_text().split("\n## What users complain of", 1)[1].split("\n## ", 1)[0]
    named = re.findall(r"`([a-z_/]+\.(?:py|rs))`: ((?:`[a-z_0-9]+`(?:, )?)+)", section)
    assert len(named) >= 9
    for path, names in named:
        text = (REPOSITORY / path).read_text()
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"(def|fn) {name}\(", text), (path, name)


def mapped(batch: dict[str, Any]) -> dict[str, Any]:
    return {"id": batch["id"] + 0, "twice": batch["x"] * 2}


def stages(index: str, folder: pathlib.Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """What stands between files and batches in a run: a dataset, and arguments of its loader."""
    view, other = folder / "view.rdx", folder / "other.rdx"
    rowdex.select(index, view, where="label <> 3")
    pq.write_table(table_of(ROWS, 500), folder / "other.parquet", row_group_size=50)
    rowdex.build(folder / "other.parquet", other)
    columns = ["id", "x", "label"]
    train = rowdex.order.IdSet.split(rowdex.Index(index), "train", validation_fraction=0.6)
    kept = rowdex.order.Subset("global", train)
    mixed = rowdex.MixedDataset([rowdex.Dataset(index, columns), rowdex.Dataset(other, columns)])
    return {
        "rows": (rowdex.Dataset(index, columns), {}),
        "map": (rowdex.Dataset(index, columns), {"map": mapped, "threads": 3}),
        "filter": (rowdex.Dataset(view, columns), {}),
        "subset": (rowdex.Dataset(index, columns), {"order": kept}),
        "mixture": (mixed, {"order": rowdex.order.Mixed([0.7, 0.3], size=900)}),
        "map of a mixture": (mixed, {"order": rowdex.order.Mixed([0.7, 0.3], size=900), "map": mapped}),
    }


@pytest.mark.parametrize("stage", ["rows", "map", "filter", "subset", "mixture", "map of a mixture"])
def test_a_run_that_is_resumed_twice_by_other_ranks_serves_the_rest_of_its_epoch_once(
    index: str, tmp_path: pathlib.Path, stage: str
) -> None:
    dataset, options = stages(index, tmp_path)[stage]

    def ranks(world: int, batch: int) -> list[Any]:
        shared = {"batch_size": batch, "seed": 5, "output": "numpy", "tail": "uneven", "num_replicas": world, **options}
        return [rowdex.Loader(dataset, rank=rank, **shared) for rank in range(world)]

    def ids(batches: Any) -> list[int]:
        return [row for batch in batches for row in batch["id"].tolist()]

    whole = ranks(1, 32)[0]
    wanted = [collections.Counter(ids(whole)) for _ in range(2)]
    assert sum(wanted[0].values()) > 300
    found: list[int] = []
    state = None
    for world, batch, steps in ((2, 16, 4), (3, 10, 5), (1, 32, 1), (2, 24, None)):
        states = set()
        for rank, loader in enumerate(ranks(world, batch)):
            if state is not None:
                loader.load_state_dict(state)
            found += ids(itertools.islice(loader, steps))
            after = loader.state_dict()
            states.add(str(sorted(after.items())))
            if steps is None and rank == 0:
                # What follows is a whole epoch, and the next one.
                following = rowdex.Loader(
                    dataset, batch_size=32, seed=5, output="numpy", tail="uneven", num_replicas=1, rank=0, **options
                )
                following.load_state_dict(after)
                assert collections.Counter(ids(following)) == wanted[1]
        assert len(states) == 1, "all ranks have one state"
        state = after
    assert collections.Counter(found) == wanted[0]


def test_a_worker_that_is_killed_is_an_error_and_the_run_goes_on_from_its_state(index: str) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    done = run_python(KILLED.read_text(), index, timeout=120)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert re.search("DataLoader worker|exited unexpectedly|^Connection|^EOFError", told["error"])
    assert sorted(told["served"]) == list(range(ROWS))


def test_one_fault_of_a_store_in_an_epoch_costs_a_request_and_no_batch(
    server: Server,  # noqa: F811
    tmp_path: pathlib.Path,
) -> None:
    files = [f"{server.url}/part-{i}.parquet" for i in range(3)]
    rowdex.build(files, tmp_path / "web.rdx")
    loader = rowdex.Loader(
        rowdex.Dataset(tmp_path / "web.rdx", ["id", "name"]), batch_size=50, seed=3, output="arrow", memory="16KiB"
    )
    undisturbed = [pa.table(batch) for batch in loader]
    loader.set_epoch(0)
    failed = []
    for step, batch in enumerate(loader):
        assert pa.table(batch).equals(undisturbed[step])
        if step == 5:
            server.faults = 1
        failed.append(server.failed)
    assert len(failed) == len(undisturbed) and failed[5] == 0
    # All that was left of the epoch may have been read ahead already.
    for _ in loader:
        if server.failed:
            break
    assert server.failed == 1


@pytest.mark.parametrize("how", ["renamed", "overwritten"])
def test_a_file_that_is_replaced_while_it_is_trained_on_is_never_served(tmp_path: pathlib.Path, how: str) -> None:
    for part in range(8):
        pq.write_table(table_of(part * 200, 200), tmp_path / f"part-{part}.parquet", row_group_size=100)
    rowdex.build(tmp_path, tmp_path / "train.rdx")
    # So little memory that each row group is decoded many times, also after the file is another one.
    loader = rowdex.Loader(
        rowdex.Dataset(tmp_path / "train.rdx", ["id"]), batch_size=20, seed=1, output="numpy", memory="1KiB"
    )
    changed = tmp_path / "part-3.parquet"
    seen: list[int] = []

    def train() -> None:
        for epoch in range(2):
            for step, batch in enumerate(loader):
                seen.extend(batch["id"].tolist())
                if (epoch, step) == (0, 9):
                    new = changed if how == "overwritten" else tmp_path / "new"
                    pq.write_table(pa.table({"id": range(-200, 0)}), new, row_group_size=100)
                    new.rename(changed)

    if how == "renamed":
        # The file that was opened is still there, without a name, and is read on.
        train()
        assert sorted(seen) == sorted(2 * list(range(1600)))
    else:
        with pytest.raises(rowdex.errors.StaleError, match="write data to new files while others are read") as raised:
            train()
        assert raised.value.file and raised.value.file.endswith(changed.name) and min(seen) >= 0
    # Whoever opens it now is told, however it came there.
    with pytest.raises(rowdex.errors.StaleError, match="part-3.parquet.*build the index again"):
        rowdex.Dataset(tmp_path / "train.rdx", ["id"]).take([700])


ENDS = """
import sys, threading, rowdex
dataset = rowdex.Dataset(sys.argv[1], columns=["id"])
loader = rowdex.Loader(dataset, batch_size=8, output="numpy", threads=2)
batches = iter(loader)
print(len(next(batches)["id"]))
"""
KEEPS = {
    "alone": "",
    "thread": """
begun = threading.Event()
def forever():
    while True:
        for batch in loader:
            begun.set()
threading.Thread(target=forever, daemon=True).start()
begun.wait()
""",
    "functions": """
mapped = rowdex.Loader(dataset, batch_size=8, output="numpy", map=dict, threads=4)
next(iter(mapped))
""",
    "circle": "loader.itself = loader; batches_of_all = [batches]; dataset.loader = loader",
    "error": "sys.excepthook = lambda *_: None; raise SystemExit(0)",
    "workers": """
import torch, rowdex.torch
rows = rowdex.torch.Dataset(sys.argv[1], columns=["id"])
sampler = rowdex.torch.BatchSampler(rows, 8)
kept = iter(torch.utils.data.DataLoader(rows, batch_sampler=sampler, num_workers=2, persistent_workers=True))
next(kept)
""",
}


@pytest.mark.parametrize("how", KEEPS)
def test_an_interpreter_ends_with_a_loader_alive(index: str, how: str) -> None:
    if how == "workers":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    done = run_python(ENDS + KEEPS[how], index)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


Answer = tuple[int, dict[str, str], bytes]


class Answers:
    """Answers on a port of its own, and what it heard: the path and the header of each request."""

    def __init__(self, answer: Callable[[str, dict[str, str]], Answer]) -> None:
        heard: list[tuple[str, dict[str, str]]] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                headers = {name.lower(): value for name, value in self.headers.items()}
                heard.append((self.path, headers))
                status, told, body = answer(self.path, headers)
                self.send_response(status)
                for name, value in {**told, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body)

            do_HEAD = do_GET

            def log_message(self, *_: Any) -> None:
                pass

        self.heard = heard
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.place = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Bucket:
    """A bucket with one Parquet file under many keys, on a server that counts how often it is listed."""

    def __init__(self, body: bytes, keys: int, page: int) -> None:
        self.body, self.keys, self.page = body, keys, page
        self.server = Answers(self.answer)

    def answer(self, path: str, headers: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        path, _, query = path.partition("?")
        asked = dict(urllib.parse.parse_qsl(query))
        if "list-type" in asked:
            return 200, {"Content-Type": "application/xml"}, self.listed(int(asked.get("continuation-token", 0)))
        first, _, last = headers.get("range", "bytes=0-").removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(self.body) - int(last), 0)
        end = min(int(last) + 1, len(self.body)) if first and last else len(self.body)
        told = {"ETag": '"one"', "Last-Modified": "Tue, 01 Sep 2026 00:00:00 GMT"}
        return 206, {**told, "Content-Range": f"bytes {start}-{end - 1}/{len(self.body)}"}, self.body[start:end]

    def listed(self, first: int) -> bytes:
        last = min(first + self.page, self.keys)
        told = f'<LastModified>2026-09-01T00:00:00.000Z</LastModified><ETag>"one"</ETag><Size>{len(self.body)}</Size>'
        keys = "".join(f"<Contents><Key>d/{key:07}.parquet</Key>{told}</Contents>" for key in range(first, last))
        more = f"<NextContinuationToken>{last}</NextContinuationToken>" if last < self.keys else ""
        truncated = "true" if more else "false"
        return f"<ListBucketResult><IsTruncated>{truncated}</IsTruncated>{more}{keys}</ListBucketResult>".encode()

    def listings(self) -> int:
        return sum("list-type" in path for path, _ in self.server.heard)


@pytest.fixture()
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"x": pa.array([1, 2], pa.int64())}), sink)
    keys, page = (1_000_000, 1_000) if os.environ.get("ROWDEX_LONG") == "1" else (2_000, 100)
    found = Bucket(sink.getvalue().to_pybytes(), keys, page)
    monkeypatch.setenv("AWS_ENDPOINT_URL", found.server.place)
    for name in ("AWS_ALLOW_HTTP", "AWS_SKIP_SIGNATURE"):
        monkeypatch.setenv(name, "true")
    monkeypatch.setenv("AWS_REGION", "none")
    yield found
    found.server.close()


def test_many_files_are_listed_once_when_they_are_indexed_and_never_again(
    bucket: Bucket, tmp_path: pathlib.Path
) -> None:
    report = rowdex.build("s3://bucket/d/", tmp_path / "many.rdx", progress=False)
    assert (report.files, report.rows) == (bucket.keys, 2 * bucket.keys)
    assert bucket.listings() == bucket.keys // bucket.page
    served = 0
    for rank in range(2):
        dataset = rowdex.Dataset(tmp_path / "many.rdx")
        loader = rowdex.Loader(dataset, batch_size=64, seed=1, num_replicas=2, rank=rank, output="numpy")
        served += sum(len(batch["x"]) for batch in itertools.islice(loader, 3))
    assert served == 2 * 3 * 64
    # No rank and no epoch lists anything.
    assert bucket.listings() == bucket.keys // bucket.page
