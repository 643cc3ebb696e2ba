"""Which packages a test needs."""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import pathlib
import sys
from typing import Any

import pytest

LEFT_OUT = ("nvidia.dali",)
"""What ``tools/python/frameworks.txt`` leaves out, for hundreds of megabytes for GPUs: never required.
"""


def need(*names: str) -> Any:
    """Imports these modules and returns the first of them.

    Where one is missing, the test, or the whole file if this is called at its top, is skipped. With
    ``ROWDEX_FRAMEWORKS=required`` in the environment it fails instead.
    """
    found = []
    for name in names:
        try:
            found.append(importlib.import_module(name))
        except ModuleNotFoundError as error:
            if os.environ.get("ROWDEX_FRAMEWORKS") == "required" and not name.startswith(LEFT_OUT):
                raise
            pytest.skip(f"{name} is not installed ({error})", allow_module_level=True)
    return found[0]


def need_peer(name: str) -> str:
    """The folder where ``tools/python/peers.txt`` is installed, for programs that import this module of it; or skips or
    fails as :func:`need` does.
    """
    folder = str(pathlib.Path(sys.prefix, "peers"))
    if importlib.machinery.PathFinder.find_spec(name, [folder]) is None:
        if os.environ.get("ROWDEX_FRAMEWORKS") == "required":
            raise ModuleNotFoundError(f"{name} is not in {folder}, where tools/python/setup.sh installs it")
        pytest.skip(f"{name} is not in {folder}")
    return folder
