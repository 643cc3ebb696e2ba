"""How object stores are talked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .native.library import described


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


def store_fields(options: StoreOptions | None) -> dict[str, Any] | None:
    """What a description has of them."""
    if options is not None and not isinstance(options, StoreOptions):
        # Not what it is, which may have secrets.
        raise TypeError(f"store is a {type(options).__name__}: give rowdex.StoreOptions(config={{…}})")
    if options is None:
        return None
    return {name: value for name, value in options._asdict().items() if value is not None}


def store_text(options: StoreOptions | None) -> bytes | None:
    """What a call is given that takes them alone."""
    fields = store_fields(options)
    return None if fields is None else described(**fields)


__all__ = ["StoreOptions"]
