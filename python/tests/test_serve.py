"""A rank that `rowdex serve` reads for, under a watchdog: `tests/it/cli/share.rs` has all else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading

import pytest

from .test_share import WATCHDOG

COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
pytestmark = [
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ranks share a reader on Linux only"),
    pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it"),
]


def test_a_loader_with_defaults_is_served_by_a_server_with_as_few_options(index: str) -> None:
    name = f"test-{os.getpid()}-defaults"
    options = ["--batch-size", "256", "--seed", "42", "--job", name, "--ranks", "2", "--memory", "1GiB"]
    with subprocess.Popen([COMMAND, "serve", index, *options], stdout=subprocess.PIPE, text=True) as server:
        watchdog = threading.Timer(WATCHDOG, server.kill)
        watchdog.start()
        try:
            assert server.stdout is not None and "serving" in server.stdout.readline()
            # The first that a process makes, as a program of a rank does.
            program = (
                "import rowdex, sys, json\n"
                "dataset = rowdex.Dataset(sys.argv[1])\n"
                "rank = dict(rank=1, num_replicas=2, output='python')\n"
                "share = dict(share=rowdex.Share(job=sys.argv[2], ranks=2))\n"
                "with rowdex.Loader(dataset, batch_size=256, seed=42, **rank, **share) as shared:\n"
                "    found = list(shared)\n"
                "assert found == list(rowdex.Loader(dataset, batch_size=256, seed=42, **rank))\n"
                "print(len(found))\n"
            )
            rank = [sys.executable, "-c", program, index, name]
            assert subprocess.check_output(rank, timeout=WATCHDOG) == b"2\n"
            server.terminate()
            rest = server.stdout.read()
            assert "served" in rest and server.wait(WATCHDOG) == 0
        finally:
            watchdog.cancel()
            server.kill()
