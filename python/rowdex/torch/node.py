"""A loader as a node of ``torchdata.nodes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torchdata.nodes import BaseNode

from ..loader import Loader


class Node(BaseNode[Any]):
    """The batches of a :class:`rowdex.Loader` as a source of ``torchdata.nodes``: each ``reset()`` is the next epoch.

    Its state is that of the loader, and the same on all ranks, so that a run goes on with another number of them. It
    takes no time to go on, wherever that is::

        node = rowdex.torch.Node(rowdex.Loader(dataset, batch_size=256, seed=42))
        loader = torchdata.nodes.Loader(torchdata.nodes.Prefetcher(node, prefetch_factor=2))
    """

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self._loader = loader
        self._batches: Iterator[Any] | None = None
        self._left: int | None = None

    def reset(self, initial_state: dict[str, Any] | None = None) -> None:
        super().reset(initial_state)
        self._batches = self._left = None
        if initial_state is not None:
            self._loader.load_state_dict(initial_state["loader"])
            if initial_state["ended"]:
                # Nothing is left of the epoch, and the next one begins with the next reset.
                self._left = 0

    def next(self) -> Any:
        if self._left is None:
            # The loader counts the steps of the next epoch once that has begun.
            self._batches = iter(self._loader)
            self._left = self._loader.steps_left
            if self._left == 0:
                # A state may have nothing left of its epoch, which ends so.
                next(self._batches, None)
        if self._left == 0 or self._batches is None:
            raise StopIteration
        batch = next(self._batches)
        self._left -= 1
        return batch

    def get_state(self) -> dict[str, Any]:
        return {"loader": self._loader.state_dict(), "ended": self._left == 0}


__all__ = ["Node"]
