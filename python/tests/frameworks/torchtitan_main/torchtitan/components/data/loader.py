"""The base class of dataloaders on torchtitan's main branch since August 2026."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.distributed.checkpoint.stateful import Stateful
from torchtitan.config import Configurable


class BaseDataLoader(Stateful, ABC, Configurable):  # type: ignore[misc]
    @dataclass(kw_only=True, slots=True)
    class Config(Configurable.Config):
        pass

    @abstractmethod
    def __iter__(self) -> Iterator[tuple[dict[str, Any], Any]]: ...

    def close(self) -> None:
        pass
