"""What declared structs have beside their fields."""

from __future__ import annotations

import ctypes
from typing import Any


class Versioned(ctypes.Structure):
    """A struct that begins with its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(ctypes.sizeof(type(self)), **fields)
