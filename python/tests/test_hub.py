"""Datasets of the Hugging Face hub, from a server that answers as the hub does."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import pathlib
import pickle
import threading
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

TOKEN, COMMIT, ROWS = "hf_canaryOfTheTest", "0123456789abcdef0123456789abcdef01234567", 700
Answer = tuple[int, dict[str, str], bytes]


class Server:
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


class Hub:
    """A private dataset ``o/n`` with the files of a folder, on a hub and a store behind it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder, self.signature, self.good, self.limited = folder, 0, 0, 0
        self.store = Server(self.stored)
        self.hub = Server(self.answered)

    def answered(self, path: str, headers: dict[str, str]) -> Answer:
        if headers.get("authorization") != f"Bearer {TOKEN}":
            return 401, {"X-Error-Code": "RepoNotFound"}, b""
        if self.limited:
            self.limited -= 1
            return 429, {"Retry-After": "1"}, b""
        path, _, query = urllib.parse.unquote(path).partition("?")
        if path == "/api/datasets/o/n/revision/main":
            return 200, {}, json.dumps({"sha": COMMIT}).encode()
        if path == f"/api/datasets/o/n/tree/{COMMIT}":
            files = sorted(file.name for file in self.folder.iterdir())
            at = int(dict(urllib.parse.parse_qsl(query)).get("cursor", 0))
            link = f'<{self.hub.place}{path}?recursive=true&cursor={at + 1}>; rel="next"'
            page = [self.entry(name) for name in files[at : at + 1]]
            return 200, {"Link": link} if at + 1 < len(files) else {}, json.dumps(page).encode()
        name = path.removeprefix(f"/datasets/o/n/resolve/{COMMIT}/")
        entry, self.signature = self.entry(name), self.signature + 1
        told = {
            "Location": f"{self.store.place}/{name}?Signature={self.signature}",
            "X-Linked-ETag": f'"{entry["lfs"]["oid"]}"',
            "X-Linked-Size": str(entry["size"]),
        }
        return 302, told, b""

    def entry(self, name: str) -> Any:
        data = (self.folder / name).read_bytes()
        return {"type": "file", "path": name, "size": len(data), "lfs": {"oid": hashlib.sha256(data).hexdigest()}}

    def stored(self, path: str, headers: dict[str, str]) -> Answer:
        name, _, signature = path.lstrip("/").partition("?Signature=")
        if "authorization" in headers or "if-match" in headers or int(signature) < self.good:
            return 403, {}, b""
        data = (self.folder / name).read_bytes()
        first, _, last = headers["range"].removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        return 206, {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}", "ETag": '"other"'}, data[start:end]


@pytest.fixture()
def hub(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    folder = tmp_path / "files"
    folder.mkdir()
    for part in range(3):
        first, end = part * ROWS // 3, (part + 1) * ROWS // 3
        rows = [{"bytes": os.urandom(300), "path": f"{row}"} for row in range(first, end)]
        table = pa.table({"id": range(first, end), "image": rows})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=100)
    (folder / "README.md").write_text("no data")
    found = Hub(folder)
    for name in ("HF_HUB_OFFLINE", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_ENDPOINT", found.hub.place)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "nobody"))
    yield found
    found.hub.close()
    found.store.close()


def test_a_dataset_of_the_hub_is_built_and_trained_from_without_a_download(hub: Hub, tmp_path: pathlib.Path) -> None:
    report = rowdex.build("hf://datasets/o/n", tmp_path / "i.rdx")
    assert (report.rows, report.files) == (ROWS, 3)
    wanted = pq.read_table(hub.folder / "part-0.parquet").to_pylist()
    with rowdex.Dataset(tmp_path / "i.rdx", cache=1) as dataset:
        assert f"hf://datasets/o/n@{COMMIT}/" in dataset.index.root
        assert pa.table(dataset.take(range(len(wanted)))).to_pylist() == wanted
        hub.good = hub.signature + 1
        assert pa.table(dataset.take(range(len(wanted)))).to_pylist() == wanted
        hub.limited = 1
        hub.good = hub.signature + 1
        with rowdex.Loader(dataset, batch_size=64, output="arrow", memory="64KiB") as loader:
            seen = [row for batch in loader for row in pa.table(batch)["id"].to_pylist()]
        assert sorted(seen) == list(range(ROWS))
        told = pickle.dumps(dataset) + repr(dataset).encode() + (tmp_path / "i.rdx").read_bytes()
        assert TOKEN.encode() not in told
        again = pickle.loads(pickle.dumps(dataset))
        assert again[3]["id"] == 3
    assert not any("authorization" in headers for _, headers in hub.store.heard)
    assert all(headers["authorization"] == f"Bearer {TOKEN}" for _, headers in hub.hub.heard)


def test_offline_and_without_a_token_errors_say_what_to_set(
    hub: Hub, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rowdex.build("hf://datasets/o/n@main", tmp_path / "i.rdx")
    tier = rowdex.DiskCache(tmp_path / "tier", 1 << 30)
    with rowdex.Dataset(tmp_path / "i.rdx", disk_cache=tier) as dataset:
        wanted = pa.table(dataset.take(range(ROWS)))
    heard = len(hub.hub.heard)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with rowdex.Dataset(tmp_path / "i.rdx", disk_cache=tier) as dataset:
        assert pa.table(dataset.take(range(ROWS))) == wanted
    with rowdex.Dataset(tmp_path / "i.rdx") as dataset, pytest.raises(rowdex.Error, match="HF_HUB_OFFLINE is set"):
        dataset.take([0])
    assert len(hub.hub.heard) == heard
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(rowdex.Error, match="or it is private.*set HF_TOKEN"):
        rowdex.build("hf://datasets/o/n", tmp_path / "other.rdx")
    store = rowdex.StoreOptions(config={"hf_token": TOKEN})
    with pytest.raises(rowdex.Error, match="from the environment only") as refused:
        rowdex.build("hf://datasets/o/n", tmp_path / "other.rdx", store=store)
    assert TOKEN not in str(refused.value)
