"""Damaged files, and stores that fail."""

from __future__ import annotations

import http.server
import os
import pathlib
import pickle
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
import rowdex

from .conftest import ROWS


@pytest.fixture()
def damaged(folder: pathlib.Path, tmp_path: pathlib.Path) -> rowdex.Dataset:
    """The dataset, with the last of its three files damaged."""
    for path in folder.glob("*.parquet"):
        shutil.copy2(path, tmp_path)
    rowdex.build(tmp_path, tmp_path / "train.rdx")
    path = tmp_path / "part-2.parquet"
    data = bytearray(path.read_bytes())
    data[4 : len(data) - 8000] = bytes(len(data) - 8004)
    path.write_bytes(data)
    return rowdex.Dataset(tmp_path / "train.rdx", ["id", "name"], check="off")


def test_rows_of_a_damaged_file_are_substituted_and_reported(damaged: rowdex.Dataset) -> None:
    options: dict[str, Any] = {"batch_size": 50, "seed": 1}
    with pytest.raises(rowdex.errors.FormatError, match="part-2.parquet"):
        list(rowdex.Loader(damaged, output="arrow", **options))
    loaders = [
        rowdex.Loader(damaged, output="arrow", on_error="substitute", threads=threads, **options)
        for threads in (0, 2)
    ]
    planned = list(rowdex.DistributedSampler(damaged, **options).batches())
    for loader in loaders:
        batches = list(loader)
        assert len(batches) == len(planned)
        for batch, plan in zip(batches, planned):
            assert batch["id"].tolist() == batch.row_ids
            ids = list(batch.row_ids)
            for place, lost in batch.substituted:
                ids[place] = lost
            assert ids == plan.row_ids
        lost = [lost for batch in batches for _, lost in batch.substituted]
        groups = loader.lost_groups
        assert len(lost) > 100 and min(lost) >= 670 and loader.stats.substituted >= len(lost)
        assert {group.row_group for group in groups} <= set(range(8, 12)) and groups
        assert all(group.error.file == "part-2.parquet" for group in groups)
    arrays = rowdex.Loader(damaged, output="numpy", on_error="substitute", row_ids="row", **options)
    for arrays_batch, batch in zip(
        arrays, rowdex.Loader(damaged, output="arrow", on_error="substitute", **options), strict=True
    ):
        assert arrays_batch["row"].tolist() == batch.row_ids


@pytest.mark.parametrize("threads", [0, 2])
def test_an_error_comes_at_the_same_step_whatever_the_output(damaged: rowdex.Dataset, threads: int) -> None:
    planned = [batch.row_ids for batch in rowdex.DistributedSampler(damaged, shuffle=False, batch_size=7).batches()]
    bad = next(step for step, rows in enumerate(planned) if max(rows) >= 900)
    outputs: tuple[Any, ...] = ("arrow", "numpy", "python")
    for output in outputs:
        loader = rowdex.Loader(damaged, output=output, shuffle=False, batch_size=7, threads=threads)
        served = []
        with pytest.raises(rowdex.errors.FormatError, match="part-2.parquet"):
            for batch in loader:
                served.append(list(batch["id"]))
        assert served == planned[: len(served)] and loader.steps_left == len(planned) - len(served)
        # The state is after the last batch that was served, and the error is told again: no epoch is empty.
        assert loader.state_dict() == rowdex.DistributedSampler(damaged, shuffle=False, batch_size=7).state_after(
            0, len(served) - 1
        )
        for _ in range(2):
            with pytest.raises(rowdex.errors.FormatError, match="part-2.parquet"):
                list(loader)
        if output == "arrow":
            first_bad = len(served)
        assert len(served) == first_bad <= bad


def test_options_that_cannot_be_right_are_refused(dataset: Any) -> None:
    wrong: list[dict[str, Any]] = [
        {"on_error": "ignore"}, {"strings": "other"}, {"row_ids": "id"}, {"row_ids": "r", "output": "arrow"},
    ]  # fmt: skip
    for options in wrong:
        with pytest.raises(ValueError):
            rowdex.Loader(dataset, batch_size=5, **options)


@pytest.mark.parametrize("output", ["arrow", "python", "numpy"])
def test_views_have_the_same_values(dataset: Any, output: Any) -> None:
    plain, viewed = (
        rowdex.Loader(dataset, batch_size=64, seed=2, output=output, nulls="fill", strings=strings)
        for strings in ("list", "views")
    )
    assert (
        pa.schema(viewed.schema).field("name").type == pa.string_view()
        and pa.schema(plain.schema).field("name").type == pa.string()
    )
    for ours, theirs in zip(plain, viewed, strict=True):
        if output == "arrow":
            found = pa.table(theirs)
            assert (
                found["name"].type == pa.string_view()
                and found["name"].to_pylist() == pa.table(ours)["name"].to_pylist()
            )
        else:
            assert theirs["name"] == ours["name"] and list(theirs["id"]) == list(ours["id"])


class Server(http.server.ThreadingHTTPServer):
    """Serves a folder, by ranges; of each two requests it fails so many of the first."""

    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder, self.faults, self.failed = folder, 0, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.server.faults > 0:
            self.server.faults -= 1
            self.server.failed += 1
            return self.answer(503, b"", {})
        path = self.server.folder / self.path.lstrip("/")
        if not path.is_file():
            return self.answer(404, b"", {})
        data = path.read_bytes()
        headers = {"ETag": f'"{len(data)}"', "Last-Modified": self.date_time_string(int(os.stat(path).st_mtime))}
        wanted = self.headers.get("Range")
        if wanted is None:
            return self.answer(200, data, headers)
        first, last = wanted.removeprefix("bytes=").split("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        self.answer(206, data[start:end], {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(data)}"})

    do_HEAD = do_GET

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture()
def server(folder: pathlib.Path) -> Iterator[Server]:
    with Server(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_index_and_data_in_a_store_are_read_as_its_options_say(
    server: Server, table: pa.Table, tmp_path: pathlib.Path
) -> None:
    files = [f"{server.url}/part-{i}.parquet" for i in range(3)]
    eager = rowdex.StoreOptions(concurrency=2, retries=3, deadline=30, config={"allow_http": "true"})
    server.faults = 1
    report = rowdex.build(files, tmp_path / "web.rdx", store=eager)
    assert server.failed == 1 and report.requests > 3 and report.rows == ROWS
    # Without retries, the first fault is an error; with them it costs a request.
    once = rowdex.StoreOptions(retries=0)
    server.faults = 1
    with pytest.raises(rowdex.errors.IoError, match="503"):
        rowdex.Index(f"{server.url}/train.rdx", store=once)
    server.faults = 1
    index = rowdex.Index(f"{server.url}/train.rdx", store=eager)
    assert len(index) == ROWS and index.path == f"{server.url}/train.rdx" and server.faults == 0
    assert len(pickle.loads(pickle.dumps(index))) == ROWS
    for dataset in (
        rowdex.Dataset(index),
        pickle.loads(pickle.dumps(rowdex.Dataset(tmp_path / "web.rdx", store=eager))),
    ):
        server.faults = 1
        assert pa.table(dataset[100:200]).equals(table.slice(100, 100))
        assert server.faults == 0 and dataset.counters.requests >= 2
    server.faults = 1
    with pytest.raises(rowdex.errors.IoError, match="503"):
        rowdex.Dataset(tmp_path / "web.rdx", store=once)[0]
    loader = rowdex.Loader(
        rowdex.Dataset(tmp_path / "web.rdx", ["id"], store=eager), batch_size=100, output="numpy"
    )
    assert sorted(row for batch in loader for row in batch["id"].tolist()) == list(range(ROWS))


def test_store_options_keep_secrets_to_themselves() -> None:
    options = rowdex.StoreOptions(config={"aws_secret_access_key": "hush"})
    assert "hush" not in repr(options) and "aws_secret_access_key" in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options
    for wrong in (rowdex.StoreOptions(deadline=0), rowdex.StoreOptions(concurrency=0), rowdex.StoreOptions(retries=-1)):
        with pytest.raises(ValueError):
            rowdex.Index("x.rdx", store=wrong)
    with pytest.raises(ValueError, match="NUL"):
        rowdex.Index("x.rdx", store=rowdex.StoreOptions(config={"a": "\0"}))
