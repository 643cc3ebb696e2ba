"""A dataloader for torchtitan, of rows that are sequences of tokens.

::

    from rowdex.torchtitan import TokenDataLoader

    Trainer.Config(
        dataloader=TokenDataLoader.Config(dataset_path="/data/train.rdx", column="tokens", seed=42),
        ...
    )

It has the interface of torchtitan 0.3: ``Config.build(dp_world_size=, dp_rank=, tokenizer=, seq_len=,
local_batch_size=)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from .dataset import Dataset
from .errors import SchemaError
from .loader import Loader
from .native.columns import Ragged

_FITS = (
    "rowdex.torchtitan is written for torchtitan 0.3, and the dataloaders of the one that is installed are others: "
    "pip install torchtitan==0.3.0"
)
try:
    from torchtitan.components.dataloader import BaseDataLoader
except ImportError as error:
    if not (error.name or "").startswith("torchtitan."):
        raise
    raise ImportError(_FITS, name=error.name) from error
if not hasattr(BaseDataLoader, "Config"):
    raise ImportError(_FITS)

IGNORE_INDEX = -100
"""Labels that torchtitan's loss leaves out."""


class TokenDataLoader(BaseDataLoader):
    """Batches of a :class:`rowdex.Loader` as torchtitan trains on them: ``({"input": …, "positions": …}, labels)``,
    of shape ``(local_batch_size, seq_len)`` each, int64.

    A row is a list of up to ``seq_len + 1`` tokens: inputs are all but the last one, labels all but the first. Shorter
    ones are filled up, with ``pad_token`` and labels that do not count. Batches are always full.

    The state is the same on all ranks, so a distributed checkpoint has it once, and goes on exactly, also with another
    number of data-parallel ranks if the batch of all ranks together stays.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        column: str = "tokens"
        """The column of token lists. ``dataset_path`` is the path or URL of the index."""

        seed: int = 0
        """The same on all ranks."""

        shuffle: bool = True
        """Whether rows are shuffled, anew in each epoch."""

        epochs: int | None = None
        """How many epochs there are. Default: no end."""

        memory: str | None = None
        """How much decoded rows may take in each process, such as ``"4GiB"``. Default: 1 GiB."""

        threads: int | None = None
        """Threads that read ahead. Default: 2."""

        pad_token: int = 0
        """The input after the end of a short row."""

        truncate: bool = False
        """Whether rows that are too long are cut. Otherwise they are an error."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int,
        local_batch_size: int,
        tokenizer: Any = None,
        **others: Any,
    ) -> None:
        if not config.dataset_path:
            raise ValueError("dataset_path: give it the path or URL of an index, which `rowdex build` writes")
        self._config, self._seq_len = config, seq_len
        self._loader = Loader(
            Dataset(config.dataset_path, columns=[config.column]),
            batch_size=local_batch_size,
            num_replicas=dp_world_size,
            rank=dp_rank,
            seed=config.seed,
            shuffle=config.shuffle,
            memory=config.memory,
            threads=config.threads,
            drop_last_batch=True,
        )
        if len(self._loader) == 0:
            raise ValueError(
                f"{len(self._loader.dataset)} rows are fewer than one batch of {local_batch_size} rows for each of "
                f"{dp_world_size} ranks"
            )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        epochs = self._config.epochs
        while epochs is None or self._loader.epoch < epochs:
            for batch in self._loader:
                yield self._example(batch[self._config.column])

    def _example(self, tokens: Any) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        width = self._seq_len + 1
        if isinstance(tokens, Ragged) and isinstance(tokens.values, torch.Tensor) and tokens.values.ndim == 1:
            lengths = tokens.offsets[1:] - tokens.offsets[:-1]
            if self._config.truncate and int(lengths.max()) > width:
                kept = torch.arange(len(tokens.values)) - tokens.offsets[:-1].repeat_interleave(lengths) < width
                lengths = lengths.clamp(max=width)
                ends = torch.zeros(len(lengths) + 1, dtype=torch.int64)
                ends[1:] = lengths.cumsum(0)
                tokens = Ragged(tokens.values[kept], ends)
        elif isinstance(tokens, torch.Tensor) and tokens.ndim == 2:
            tokens = tokens[:, :width] if self._config.truncate else tokens
            lengths = torch.full((len(tokens),), tokens.shape[1])
        else:
            lengths = None
        values = tokens.values if isinstance(tokens, Ragged) else tokens
        if lengths is None or values.is_floating_point():
            raise SchemaError(
                f"column {self._config.column!r} has no lists of integers: name the column of tokens (column=)",
                column=self._config.column,
            )
        if int(lengths.max()) > width:
            raise ValueError(
                f"a row of {int(lengths.max())} tokens is longer than seq_len + 1 = {width}: raise seq_len, cut the "
                "rows when they are written, or set truncate=True"
            )
        whole = torch.full((len(lengths), width), self._config.pad_token, dtype=torch.int64)
        there = torch.arange(width) < lengths[:, None]
        whole[there] = values.reshape(-1).to(torch.int64)
        labels = whole[:, 1:].masked_fill(~there[:, 1:], IGNORE_INDEX)
        positions = torch.arange(self._seq_len).repeat(len(whole), 1)
        return {"input": whole[:, :-1].contiguous(), "positions": positions}, labels

    def state_dict(self) -> dict[str, Any]:
        """After the last batch that was handed out; the same on all ranks."""
        return dict(self._loader.state_dict())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on from a state. One without anything, as a checkpoint without a dataloader has it, changes nothing."""
        if state_dict:
            self._loader.load_state_dict(state_dict)

    def close(self) -> None:
        """Ends the threads of the loader."""
        self._loader.close()


__all__ = ["TokenDataLoader"]
