"""Buckets of the Hugging Face hub: what its own client lists, rowdex lists."""

from __future__ import annotations

import hashlib
import json
import pathlib
import threading
import urllib.parse

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from ..test_faults import Handler, Server
from .need import need

NAMES = ("a/1.parquet", "a/2 #%.parquet", "a/b/x=1,y@z+w.parquet", "ab/é.parquet", "a b/c.parquet", "d.parquet")


class Bucket(Handler):
    """A bucket ``o/n`` of the hub, in pages of two files; by another name it is the store that has the files."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        self.path, folder = urllib.parse.unquote(path), self.server.folder
        if self.headers["Host"].startswith("localhost"):
            return super().do_GET()
        files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in sorted(folder.rglob("*.parquet"))}
        if (name := self.path.removeprefix("/buckets/o/n/resolve/")) in files:
            signed = f"http://localhost:{self.server.server_address[1]}/{urllib.parse.quote(name)}?X-Amz-Signature=1"
            return self.answer(302, b"", {"Location": signed, "X-Xet-Hash": hashlib.sha256(files[name]).hexdigest()})
        if name != self.path:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        if self.path == "/api/buckets/o/n":
            info = {"id": "o/n", "private": True, "createdAt": "2026-01-01T00:00:00.000Z", "size": 0, "totalFiles": 0}
            return self.answer(200, json.dumps(info).encode(), {})
        # As text, whatever the folders.
        prefix = self.path.removeprefix("/api/buckets/o/n/tree").removeprefix("/")
        found = [
            {"type": "file", "path": name, "size": len(data), "xetHash": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
            if name.startswith(prefix)
        ]
        end = int(dict(urllib.parse.parse_qsl(query)).get("cursor", "0")) + 2
        link = f'<{self.server.url}{path}?recursive=true&cursor={end}>; rel="next"'
        self.answer(200, json.dumps(found[end - 2 : end]).encode(), {"Link": link} if end < len(found) else {})


def test_a_bucket_is_listed_as_huggingface_hub_lists_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, data = need("huggingface_hub"), tmp_path / "data"
    monkeypatch.setenv("ROWDEX_CACHE", str(tmp_path / "cache"))
    for number, name in enumerate(NAMES):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), data / name)
    with Server(data) as hub:
        hub.RequestHandlerClass = Bucket
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        store = rowdex.StoreOptions(config={"hf_endpoint": hub.url, "hf_hub_offline": "0"})
        system = client.HfFileSystem(endpoint=hub.url, token=False)
        for folder in ("", "a", "a/b", "ab", "a b"):
            index = rowdex.open(f"hf://buckets/o/n/{folder}", store=store).index
            ours = {f"{index.root.removesuffix('/')}/{file.path}": file.size for file in index.files}
            found = system.find(f"buckets/o/n/{folder}", detail=True)
            assert ours and ours == {f"hf://{name}": entry["size"] for name, entry in found.items()}
        # Another content of the same size has another index.
        for first in (0, 7):
            pq.write_table(pa.table({"id": [first]}), data / NAMES[0])
            assert sorted(rowdex.open("hf://buckets/o/n", store=store)[:]["id"]) == sorted([first, 1, 2, 3, 4, 5])
        hub.shutdown()
