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

TOKEN = "hf_canary"
NAMES = ("a/1.parquet", "a/2 #%.parquet", "a/b/x=1,y@z+w.parquet", "ab/é.parquet", "a b/c.parquet", "d.parquet")


class Bucket(Handler):
    """A bucket ``o/n`` of the hub, in pages of two files; under another name it is the store that has the files."""

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        place, folder, port = urllib.parse.unquote(path), self.server.folder, self.server.server_address[1]
        if (self.headers["Authorization"] is None) != (is_store := self.headers["Host"].startswith("localhost")):
            return self.answer(401, b"", {"X-Error-Code": "RepoNotFound"})
        if is_store:
            self.path = place
            return super().do_GET()
        files = {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*.parquet")}
        if place == "/api/buckets/o/n":
            info = {"id": "o/n", "private": True, "createdAt": "2026-01-01T00:00:00.000Z", "size": 0, "totalFiles": 0}
            return self.answer(200, json.dumps(info).encode(), {})
        if (name := place.removeprefix("/buckets/o/n/resolve/")) in files:
            headers = {"Location": f"http://localhost:{port}/{urllib.parse.quote(name)}?X-Amz-Signature=1"}
            return self.answer(302, b"", headers | {"X-Xet-Hash": hashlib.sha256(files[name]).hexdigest()})
        prefix = path.removeprefix("/api/buckets/o/n/tree").removeprefix("/")
        if path == prefix or "/" in prefix:
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        # As text, whatever the folders.
        found = [name for name in sorted(files) if name.startswith(urllib.parse.unquote(prefix))]
        start = int(urllib.parse.parse_qs(query).get("cursor", ["0"])[0])
        page = [
            {"type": "file", "path": name, "size": len(files[name]), "xetHash": hashlib.sha256(files[name]).hexdigest()}
            for name in found[start : start + 2]
        ]
        following = f'<{self.server.url}{path}?recursive=true&cursor={start + 2}>; rel="next"'
        self.answer(200, json.dumps(page).encode(), {"Link": following} if start + 2 < len(found) else {})


def test_a_bucket_is_listed_as_huggingface_hub_lists_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, data = need("huggingface_hub"), tmp_path / "data"
    for number, name in enumerate(NAMES):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [number]}), data / name)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("ROWDEX_CACHE", str(tmp_path / "cache"))
    with Server(data) as hub:
        hub.RequestHandlerClass = Bucket
        threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        store = rowdex.StoreOptions(config={"hf_endpoint": hub.url, "hf_hub_offline": "0"})
        system = client.HfFileSystem(endpoint=hub.url, token=TOKEN)
        for folder in ("", "a", "a/b", "ab", "a b"):
            url = f"buckets/o/n/{folder}"
            rowdex.build(f"hf://{url}", tmp_path / "i.rdx", overwrite=True, store=store)
            index = rowdex.Index(tmp_path / "i.rdx")
            ours = {f"{index.root.removesuffix('/')}/{file.path}": file.size for file in index.files}
            theirs = {f"hf://{name}": entry["size"] for name, entry in system.find(url, detail=True).items()}
            assert ours == theirs and len(ours) == sum(name.startswith(f"{folder}/" if folder else "") for name in NAMES)
        assert sorted(rowdex.open("hf://buckets/o/n", store=store)[:]["id"]) == [0, 1, 2, 3, 4, 5]
        before = (data / NAMES[0]).stat().st_size
        pq.write_table(pa.table({"id": [7]}), data / NAMES[0])
        assert (data / NAMES[0]).stat().st_size == before
        assert sorted(rowdex.open("hf://buckets/o/n", store=store)[:]["id"]) == [1, 2, 3, 4, 5, 7]
        hub.shutdown()
