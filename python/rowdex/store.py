"""How object stores are talked to."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import native
from .native.library import count, no_nul


class StoreOptions(NamedTuple):
    """How an object store is talked to, where an index or the data is in one (``s3://``, ``gs://``, ``az://``,
    ``hf://``, ``https://``).

    What a store needs to know comes from the environment, under the names that the stores' own tools use; ``config``
    goes before it. A dataset's options are pickled with it, so workers get the values, secrets among them;
    a token of the Hugging Face hub is therefore refused here: set ``HF_TOKEN``.
    """

    concurrency: int | None = None
    """How many requests may be under way at once. Default: 64."""
    deadline: float | None = None
    """How many seconds a request may take with all of its retries. Default: 120."""
    retries: int | None = None
    """How often a request is sent again after a fault that may pass. Default: 10."""
    config: Mapping[str, str] | None = None
    """Options of the store by the name that the environment variable has, in any case:
    ``{"aws_endpoint_url": "http://localhost:9000"}``.
    """

    def __repr__(self) -> str:
        # Values may be secrets.
        names = sorted(self.config or {})
        limits = f"concurrency={self.concurrency}, deadline={self.deadline}, retries={self.retries}"
        return f"StoreOptions({limits}, config={names})"

    def _struct(self) -> native.StoreOptions:
        if self.deadline is not None and not 0 < self.deadline < 1e12:
            raise ValueError(f"a deadline of {self.deadline}: use a number of seconds above 0")
        if self.concurrency is not None and self.concurrency < 1:
            raise ValueError(f"concurrency is {self.concurrency}: use 1 or more")
        config = [
            native.StoreConfig(no_nul(name.encode(), "name"), no_nul(value.encode(), "value"))
            for name, value in (self.config or {}).items()
        ]
        return native.StoreOptions(
            concurrency=count(self.concurrency, "concurrency"),
            deadline_ms=0 if self.deadline is None else max(round(self.deadline * 1000), 1),
            retries=count(self.retries, "retries"),
            config=(native.StoreConfig * len(config))(*config),
            num_config=len(config),
        )


def store_pointer(options: StoreOptions | None) -> Any:
    """What the library is told: a pointer, or nothing."""
    if options is not None and not isinstance(options, StoreOptions):
        # Not what it is, which may have secrets.
        raise TypeError(f"store is a {type(options).__name__}: give rowdex.StoreOptions(config={{…}})")
    return None if options is None else ctypes.pointer(options._struct())


__all__ = ["StoreOptions"]
