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


def _program() -> str:
    made = subprocess.run(["sh", str(REPOSITORY / "tools/stores/setup.sh")], capture_output=True, text=True)
    if made.returncode != 0:
        if os.environ.get("ROWDEX_STORES") in ("required", "all"):
            pytest.fail(f"no S3 server: {made.stderr}")
        pytest.skip("no S3 server can be had")
    return made.stdout.strip()


@contextlib.contextmanager
def bucket(folder: pathlib.Path) -> Iterator[Bucket]:
    """A server that keeps its objects in this folder, until the block ends."""
    program, inside = _program(), folder / "bucket"
    inside.mkdir(parents=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [program, "--host", "127.0.0.1", "--port", port, "--access-key", KEY, "--secret-key", SECRET, str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    config = {
        "aws_endpoint_url": f"http://127.0.0.1:{port}", "aws_allow_http": "true", "aws_region": "us-east-1",
        "aws_access_key_id": KEY, "aws_secret_access_key": SECRET,
    }  # fmt: skip
    try:
        end = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", int(port)), 1):
                break
            assert server.poll() is None and time.monotonic() < end, "the server does not start"
            time.sleep(0.01)
        yield Bucket("s3://bucket", inside, rowdex.StoreOptions(config=config))
    finally:
        server.kill()
        server.wait()
