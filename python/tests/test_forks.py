"""Children that are forked while another thread uses something for the first time."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from . import fork_program
from .conftest import REPOSITORY

EACH = 8
"""Children of a process, in which statics are made once."""
PROCESSES = 10 if os.environ.get("ROWDEX_LONG") == "1" else 1
"""For each call: more than 2,000 children in all, or more than 200."""


@pytest.mark.parametrize("call", fork_program.CALLS)
def test_no_child_waits_for_what_a_thread_of_its_parent_was_about_to_make(
    call: str, folder: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    shutil.copytree(folder, tmp_path / "data")
    program = [sys.executable, str(REPOSITORY / "python" / "tests" / "fork_program.py"), call, str(tmp_path / "data")]
    for seed in range(PROCESSES):
        done = subprocess.run([*program, str(EACH), str(seed)], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr
