"""A disk without room: the error names the file, and nothing is left behind."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest

from .conftest import run_python

# A limit of the size of files fails a write in the middle, as a full disk does, and needs no rights.
LIMIT = """
import errno, os, pathlib, pickle, resource, sys
import rowdex
resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))
"""


@pytest.mark.parametrize(
    "numbers", ["Explicit(range(100_000))", "Weighted([0.5] * 100_000)", "Balanced([1] * 100_000)"]
)
def test_a_list_that_does_not_fit_leaves_no_file_and_names_it(tmp_path: pathlib.Path, numbers: str) -> None:
    program = f"""{LIMIT}
order = rowdex.order.{numbers}
for attempt in range(2):
    try:
        pickle.dumps(order)
    except rowdex.errors.IoError as error:
        assert error.file.startswith(os.environ["TMPDIR"] + "/rowdex-") and error.file in str(error), error
        assert "File too large" in str(error) and "TMPDIR" in error.hint and error.hint in str(error), error
        assert isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EFBIG
    else:
        raise AssertionError("it was written")
assert os.listdir(os.environ["TMPDIR"]) == [], os.listdir(os.environ["TMPDIR"])
"""
    done = run_python(program, TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
