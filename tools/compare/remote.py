"""Reading over a distance, in turns: python tools/compare/remote.py DATA [SET ...]

DATA holds the sets `tab`, `tok` and `img` as folders of Parquet files. nginx serves them under the URLs of a bucket,
and each answer begins `LATENCY` milliseconds (30 unless the environment sets another) after its request. It sends files
from the page cache without touching their bytes, so
that on one machine little time is taken from those who read. Everybody who reads has 2 threads for decoding. For each
set:

- all row groups in the files' order, beside the same of local files, and beside pyarrow's S3 reader: `read_row_group`
  with `pre_buffer`, by one thread or several, and the scanner of a dataset; rowdex has a quarter of the data in memory
- a global shuffle with a quarter of the data in memory, beside the same of local files
- local files are read once from the page cache, and once from a copy in the temporary folder (which should be on a
  disk) that is dropped from the page cache all the time, as data would be that is larger than the machine's memory
- what `object_store` alone fetches of the files, 16 requests of 8 MiB at once, and what of that rate rowdex came to

Medians are printed, of rates and of ratios within a turn. First

    cargo build --release -p rowdex --features cli,object-store --example rowdex_side
    cargo build --release -p rowdex-io --features object-store --example store_plain
    apt-get install nginx-light libnginx-mod-http-echo
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as fs
import pyarrow.parquet as pq
from compare import BATCH, REPOSITORY, Rowdex

SETS = ("tab", "tok", "img")
ROUNDS = 9
LATENCY = int(os.environ.get("LATENCY", "30"))
ECHO = pathlib.Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def serve(scratch: pathlib.Path, port: int) -> subprocess.Popen[bytes]:
    """A server of what lies in `scratch`, which answers late."""
    if not ECHO.is_file():
        sys.exit(__doc__)
    folders = "".join(
        f"{kind}_temp_path {scratch / kind};" for kind in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    )
    (scratch / "nginx.conf").write_text(
        f"""load_module {ECHO}; daemon off; master_process off; pid {scratch}/pid; error_log stderr; events {{}}
http {{
    access_log off; sendfile on; tcp_nopush on; sendfile_max_chunk 1m; keepalive_requests 1000000; {folders}
    server {{
        listen 127.0.0.1:{port};
        location / {{ echo_sleep {LATENCY / 1000}; echo_exec @files; }}
        location @files {{ root {scratch}; }}
    }}
}}
"""
    )
    path = os.environ["PATH"] + ":/usr/sbin"
    server = subprocess.Popen(["nginx", "-c", scratch / "nginx.conf", "-e", "stderr"], env=os.environ | {"PATH": path})
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return server
        except OSError:
            time.sleep(0.02)
    server.kill()
    sys.exit("the server does not start")


class RowGroups:
    """pyarrow reads all row groups, so many at once."""

    def __init__(self, store: fs.S3FileSystem, paths: list[str], threads: int) -> None:
        self.name = (
            f"pyarrow, {threads} row groups at once" if threads > 1 else "pyarrow, one row group after the other"
        )
        self.store, self.pool = store, ThreadPoolExecutor(threads)
        # Footers are read beforehand, as an index has them.
        self.metadata = {path: pq.ParquetFile(store.open_input_file(path)).metadata for path in paths}
        self.groups = [(path, group) for path in paths for group in range(self.metadata[path].num_row_groups)]
        # Opening a file takes a request, so each thread keeps its own open.
        self.opened = threading.local()

    def read(self, place: tuple[str, int]) -> int:
        path, group = place
        files = self.opened.__dict__
        if path not in files:
            files[path] = pq.ParquetFile(
                self.store.open_input_file(path), metadata=self.metadata[path], pre_buffer=True
            )
        return files[path].read_row_group(group).num_rows

    def burst(self) -> tuple[float, float]:
        start = time.perf_counter()
        rows = sum(self.pool.map(self.read, self.groups))
        return rows, time.perf_counter() - start


class Scanner:
    """pyarrow reads all of a dataset."""

    name = "pyarrow, scanner of a dataset"

    def __init__(self, store: fs.S3FileSystem, paths: list[str]) -> None:
        self.dataset = ds.dataset(paths, filesystem=store, format="parquet")

    def burst(self) -> tuple[float, float]:
        start = time.perf_counter()
        rows = sum(batch.num_rows for batch in self.dataset.to_batches())
        return rows, time.perf_counter() - start


def in_turns(sides: dict[str, Callable[[], tuple[float, float]]]) -> dict[str, list[float]]:
    """The rates of every side, a list with one for each turn."""
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(ROUNDS + 1):
        for name, burst in sides.items():
            rows, seconds = burst()
            if turn > 0:  # The first turn warms everybody up.
                rates[name].append(rows / seconds)
    return rates


@contextlib.contextmanager
def out_of_memory(folder: pathlib.Path) -> Iterator[None]:
    """Drops the files from the page cache, ten times a second. What is being read is hardly ever among that."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(file.open("rb")) for file in folder.iterdir()]

        def drop() -> None:
            for file in files:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

        def go_on() -> None:
            while not done.wait(0.1):
                drop()

        for file in files:
            os.fsync(file)
        drop()
        done = threading.Event()
        thread = threading.Thread(target=go_on)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def link(root: str, keys: list[str]) -> float:
    """Bytes a second that the store's client alone gets."""
    program = REPOSITORY / "target/release/examples/store_plain"
    done = subprocess.run([program, root, str(8 << 20), "16", *keys], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[0]) * 1e6


def report(rates: dict[str, list[float]], beside: str) -> None:
    print(f"| | rows/s | {beside} against it |\n| --- | --- | --- |")
    for name, each in rates.items():
        ratio = statistics.median(ours / theirs for ours, theirs in zip(rates[beside], each))
        print(f"| {name} | {statistics.median(each):,.0f} | {ratio:.2f} |")


def compare(data: pathlib.Path, name: str, endpoint: str, store: fs.S3FileSystem, scratch: str) -> None:
    files = sorted((data / name).glob("*.parquet"))
    keys = [f"{name}/{file.name}" for file in files]
    urls = [f"s3://data/{key}" for key in keys]
    size = sum(file.stat().st_size for file in files)
    copy = pathlib.Path(scratch) / "copy" / name
    shutil.copytree(data / name, copy)
    # A turn of the shuffle is as long as an epoch: less would flatter a loader, which reads ahead while others have
    # their turns.
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    for task, burst in [("sequential", 1), ("loader-25", -(-rows // BATCH))]:
        # Each builds an index of the same name.
        local = Rowdex(task, data / name, f"{scratch}/memory")
        disk = Rowdex(task, copy, f"{scratch}/disk")
        remote = Rowdex(task, urls, f"{scratch}/remote")
        read: list[float] = []

        def over() -> tuple[float, float]:
            rows, seconds, read_bytes = remote.burst(burst)
            read.append(read_bytes / seconds / link(f"{endpoint}/data/", keys))
            return rows, seconds

        def from_disk() -> tuple[float, float]:
            with out_of_memory(copy):
                return disk.burst(burst)[:2]

        sides = {"rowdex": over, "rowdex, local disk": from_disk, "rowdex, page cache": lambda: local.burst(burst)[:2]}
        if task == "sequential":
            peers = [RowGroups(store, [f"data/{key}" for key in keys], threads) for threads in (1, 2, 4, 8)]
            scanner = Scanner(store, [f"data/{key}" for key in keys])
            sides |= {peer.name: peer.burst for peer in [*peers, scanner]}
        rates = in_turns(sides)
        for side in (local, disk, remote):
            side.close()
        print(f"\n`{name}` ({size / 1e6:,.0f} MB), {task}, {LATENCY} ms\n")
        report(rates, "rowdex")
        theirs = [max(turn) for turn in zip(*(each for side, each in rates.items() if side.startswith("pyarrow")))]
        if theirs:
            best = statistics.median(a / b for a, b in zip(rates["rowdex"], theirs))
            print(f"\nrowdex against the best of pyarrow in each turn: {best:.2f}x")
        print(f"\nof what the link brings: {statistics.median(read[1:]):.2f}")


def main() -> None:
    if len(sys.argv) < 2 or any(name not in SETS for name in sys.argv[2:]):
        sys.exit(__doc__)
    data = pathlib.Path(sys.argv[1]).resolve()
    pa.set_cpu_count(2)
    pa.set_io_thread_count(64)
    with tempfile.TemporaryDirectory() as scratch:
        # The server may have another user.
        os.chmod(scratch, 0o755)
        (pathlib.Path(scratch) / "data").symlink_to(data)
        for place in ("memory", "disk", "remote"):
            (pathlib.Path(scratch) / place).mkdir()
        port = free_port()
        endpoint = f"http://127.0.0.1:{port}"
        os.environ |= {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_SKIP_SIGNATURE": "true",
            "AWS_REGION": "us-east-1",
        }
        store = fs.S3FileSystem(anonymous=True, endpoint_override=endpoint, region="us-east-1")
        server = serve(pathlib.Path(scratch), port)
        try:
            for name in sys.argv[2:] or SETS:
                compare(data, name, endpoint, store, scratch)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
