"""A bucket of an S3 server on this machine."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import subprocess
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import rowdex

from .conftest import REPOSITORY

KEY, SECRET = "a-key-of-the-tests", "a-secret-of-the-tests"


class Bucket(NamedTuple):
    url: str
    folder: pathlib.Path
    """A file put there is an object."""
    options: rowdex.StoreOptions


def server_program() -> str:
    made = subprocess.run(["sh", str(REPOSITORY / "tools/stores/setup.sh")], capture_output=True, text=True)
    if made.returncode != 0:
        if os.environ.get("ROWDEX_STORES") in ("required", "all"):
            pytest.fail(f"no S3 server: {made.stderr}")
        pytest.skip("no S3 server can be had")
    return made.stdout.strip()


def _started(program: str, folder: pathlib.Path) -> tuple[subprocess.Popen[bytes], int]:
    """The server, and its port. Another program may have the port: then the server ends, and another is tried."""
    for _ in range(20):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        where = ["--host", "127.0.0.1", "--port", str(port), "--access-key", KEY, "--secret-key", SECRET]
        server = subprocess.Popen([program, *where, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while server.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                time.sleep(0.1)
                if server.poll() is None:
                    return server, port
            time.sleep(0.01)
        server.kill()
        server.wait()
    raise AssertionError("the server does not start")


@contextlib.contextmanager
def bucket(folder: pathlib.Path) -> Iterator[Bucket]:
    """A server that keeps its objects in this folder, until the block ends."""
    program, inside = server_program(), folder / "bucket"
    inside.mkdir(parents=True)
    server, port = _started(program, folder)
    config = {
        "aws_endpoint_url": f"http://127.0.0.1:{port}", "aws_allow_http": "true", "aws_region": "us-east-1",
        "aws_access_key_id": KEY, "aws_secret_access_key": SECRET,
    }  # fmt: skip
    try:
        yield Bucket("s3://bucket", inside, rowdex.StoreOptions(config=config))
    finally:
        server.kill()
        server.wait()
