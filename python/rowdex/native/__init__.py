"""The C API: what ``include/rowdex.h`` declares, and the one place that loads the library.

The conventions of the header hold. ``declarations`` is written by ``tools/python/declarations.py``.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

from .declarations import *
from .declarations import ABI_VERSION, FUNCTIONS


def _candidates() -> list[str]:
    name = "librowdex.dylib" if sys.platform == "darwin" else "librowdex.so"
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    named = os.environ.get("ROWDEX_LIBRARY")
    if named is not None:
        return [named]
    return [os.path.join(package, name), os.path.join(package, "..", "..", "target", "release", name)]


def load() -> Any:
    """The library, whose functions lack ``rowdex_`` in their names.

    Raises:
        ImportError: if it is missing, cannot be loaded, or is of another ABI version.
    """
    candidates = _candidates()
    path = next((path for path in candidates if os.path.isfile(path)), None)
    if path is None:
        raise ImportError(
            f"the rowdex library is missing: no {' or '.join(candidates)}; "
            "install the package again (pip install ./python), or set ROWDEX_LIBRARY to the library"
        )
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"the rowdex library cannot be loaded: {error}; install the package again") from error
    try:
        version = library.rowdex_abi_version
    except AttributeError:
        raise ImportError(f"{path} is not the rowdex library: it has no rowdex_abi_version") from None
    version.restype = ctypes.c_uint32
    if version() != ABI_VERSION:
        raise ImportError(
            f"{path} has version {version()} of the C API and this package needs version {ABI_VERSION}; "
            "install package and library together (pip install ./python)"
        )
    for name, (result, arguments) in FUNCTIONS.items():
        try:
            function = getattr(library, f"rowdex_{name}")
        except AttributeError:
            raise ImportError(
                f"{path} has no rowdex_{name}: it is older than this package; install both together (pip install "
                "./python)"
            ) from None
        function.restype, function.argtypes = result, arguments
        setattr(library, name, function)
    return library
