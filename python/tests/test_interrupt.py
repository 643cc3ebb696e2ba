"""Ctrl-C while a store does not answer."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

# What the store may take, and what Ctrl-C may: far less, and still far more than it does.
DEADLINE, PATIENCE = 300, 60


class Silent:
    """Takes connections, and answers as many requests as it is told with the bytes of a file, then none."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.silent = threading.Event()
        self.asked = threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        head = b""
        with client:
            while b"\r\n\r\n" not in head:
                piece = client.recv(65536)
                if not piece:
                    return
                head += piece
            if self.silent.is_set():
                self.asked.set()
                client.recv(1)
                return
            method, target = head.decode().split(" ")[:2]
            data = (self.folder / target.lstrip("/")).read_bytes()
            size = len(data)
            wanted = re.search(r"range: bytes=(\d*)-(\d*)", head.decode(), re.IGNORECASE)
            lines = [f"etag: \"{size}\"", "connection: close"]
            status = 200
            if wanted:
                start = int(wanted[1]) if wanted[1] else max(0, size - int(wanted[2]))
                end = min(size, int(wanted[2]) + 1) if wanted[1] and wanted[2] else size
                status, data = 206, data[start:end]
                lines.append(f"content-range: bytes {start}-{end - 1}/{size}")
            lines.append(f"content-length: {len(data)}")
            answer = "\r\n".join([f"HTTP/1.1 {status} Yes", *lines]) + "\r\n\r\n"
            client.sendall(answer.encode() + (data if method == "GET" else b""))


@pytest.fixture
def store(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for number, rows in enumerate((600, 400)):
        table = pa.table({"id": range(1000 * number, 1000 * number + rows), "text": [f"row {i}" for i in range(rows)]})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=50)
    server = Silent(folder)
    yield server
    server.socket.close()


OPTIONS = rowdex.StoreOptions(deadline=DEADLINE)


def urls(store):
    return [f"{store.url}/{path.name}" for path in sorted(store.folder.glob("*.parquet"))]


# What waits, of a dataset that is open and the folder for what it writes.
CALLS = {
    "build": lambda dataset, out: rowdex.build(urls_of(dataset), out, store=OPTIONS),
    "build with a function": lambda dataset, out: rowdex.build(
        urls_of(dataset), out, store=OPTIONS, progress=lambda *_: None
    ),
    "update": lambda dataset, out: rowdex.build(urls_of(dataset), dataset.index.path, update=True, store=OPTIONS),
    "Index": lambda dataset, out: rowdex.Index(urls_of(dataset)[0], store=OPTIONS),
    "Dataset": lambda dataset, out: rowdex.Dataset(urls_of(dataset)[0], store=OPTIONS),
    "take a row": lambda dataset, out: dataset.take([3]),
    "take all": lambda dataset, out: dataset.take(range(len(dataset))),
    "a row": lambda dataset, out: dataset[3],
    "plan": lambda dataset, out: dataset.prefetch(range(len(dataset))).take([0, 1]),
    "to_arrow": lambda dataset, out: dataset.to_arrow(),
    "lengths": lambda dataset, out: rowdex.Index(dataset.index.path, store=OPTIONS).note_lengths(["id"]),
    "digest": lambda dataset, out: rowdex.rows_digest(dataset),
    "labels": lambda dataset, out: dataset.labels("id"),
    "counts": lambda dataset, out: dataset.counts("id"),
    "weights": lambda dataset, out: dataset.weights("id"),
    "where": lambda dataset, out: len(rowdex.order.IdSet.where(dataset, "id % 7 = 3")),
    "select": lambda dataset, out: rowdex.select(
        dataset.index, out, where="id % 7 = 3", store=OPTIONS
    ),
    "verify": lambda dataset, out: dataset.verify("footer", progress=lambda *_: None),
    "loader": lambda dataset, out: next(iter(rowdex.Loader(dataset, batch_size=8, seed=1))),
}


def urls_of(dataset):
    return [f"{dataset.index.root.rstrip('/')}/{file.path}" for file in dataset.index.files]


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_every_call_that_waits_for_a_store(store, tmp_path, name):
    index, out = tmp_path / "i.rdx", tmp_path / "out.rdx"
    rowdex.build(urls(store), index, store=OPTIONS, progress=False)
    before = index.read_bytes()
    dataset = rowdex.Dataset(index, store=OPTIONS)
    store.silent.set()

    def press() -> None:
        # The store was asked, so that the call waits for it.
        if store.asked.wait(PATIENCE):
            os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press)
    pressing.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        CALLS[name](dataset, out)
    assert time.monotonic() - began < PATIENCE
    pressing.join()
    # Whatever goes on, what is read works again, and nothing is written any more.
    store.silent.clear()
    assert dataset.take([3]).to_pylist() == rowdex.Dataset(index, store=OPTIONS).take([3]).to_pylist()
    assert not out.exists() and index.read_bytes() == before


def test_a_handler_that_does_not_raise_leaves_the_call_alone(store, tmp_path):
    index = tmp_path / "i.rdx"
    rowdex.build(urls(store), index, store=OPTIONS, progress=False)
    dataset = rowdex.Dataset(index, store=rowdex.StoreOptions(deadline=1))
    store.silent.set()
    seen = []

    def press() -> None:
        if store.asked.wait(PATIENCE):
            os.kill(os.getpid(), signal.SIGUSR1)

    earlier = signal.signal(signal.SIGUSR1, lambda *_: seen.append(signal.SIGUSR1))
    try:
        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(rowdex.errors.IoError, match="timed out|gave up after 1 s"):
            dataset.take([3])
        pressing.join()
    finally:
        signal.signal(signal.SIGUSR1, earlier)
    assert seen == [signal.SIGUSR1]


def test_a_program_ends_after_ctrl_c_whatever_still_waits(store, tmp_path):
    rowdex.build(urls(store), tmp_path / "i.rdx", store=OPTIONS, progress=False)
    store.silent.set()
    program = f"""
import rowdex
dataset = rowdex.Dataset({str(tmp_path / "i.rdx")!r}, store=rowdex.StoreOptions(deadline={DEADLINE}))
try:
    dataset.verify("footer", progress=lambda *_: None)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
    default = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)  # noqa: E731
    running = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=default, text=True
    )
    try:
        assert store.asked.wait(PATIENCE)
        running.send_signal(signal.SIGINT)
        said, failed = running.communicate(timeout=PATIENCE)
    finally:
        running.kill()
    assert (running.returncode, said, failed) == (0, "interrupted\n", "")
