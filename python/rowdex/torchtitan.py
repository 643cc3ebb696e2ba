"""A dataloader for torchtitan, of rows that are sequences of tokens.

::

    from rowdex.torchtitan import TokenDataLoader

    Trainer.Config(
        dataloader=TokenDataLoader.Config(dataset_path="/data/train.rdx", column="tokens", seed=42, pack=True),
        ...
    )

It has the interface of the torchtitan that is installed. That of 0.3 builds it with ``seq_len`` and
``local_batch_size``, and trains on rows of tokens; torchtitan since August 2026 builds it with ``max_context_length``
and ``num_tokens_per_batch``, and trains on flat batches, which are always of packs.
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
from .packing import Pack

_FITS = (
    "rowdex.torchtitan is written for torchtitan 0.3 and for its main branch since August 2026, and the dataloaders of "
    "the one that is installed are others: pip install torchtitan==0.3.0"
)
_FLAT = True
try:
    from torchtitan.components.data.loader import BaseDataLoader
except ImportError as _none:
    if not (_none.name or "").startswith("torchtitan."):
        raise
    _FLAT = False
if not _FLAT:
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
    int64. For torchtitan 0.3 each is of shape ``(local_batch_size, seq_len)``; later ones have flat batches, of shape
    ``(num_tokens_per_batch,)``.

    With ``pack`` a batch is made of packs of ``seq_len`` or ``max_context_length`` tokens: see :class:`rowdex.Pack`.
    Positions restart where a piece of a row begins, and torchtitan keeps attention within them. Nothing is lost, and
    ranks take equal steps in each epoch.

    Without it, which is for 0.3 alone, a row is a list of up to ``seq_len + 1`` tokens: inputs are all but the last
    one, labels all but the first. Shorter ones are filled up, with ``pad_token`` and labels that do not count. Batches
    are always full.

    The state is the same on all ranks, so a distributed checkpoint has it once, and goes on exactly, also with another
    number of data-parallel ranks; without ``pack`` if the batch of all ranks together stays.
    """

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        dataset_path: str | None = None
        """The path or URL of the index."""

        column: str = "tokens"
        """The column of token lists."""

        seed: int = 0
        """The same on all ranks."""

        shuffle: bool = True
        """Whether rows are shuffled, anew in each epoch."""

        epochs: int | None = None
        """How many epochs there are. Default: what ``infinite`` says."""

        infinite: bool = True
        """Whether epochs have no end, unless ``epochs`` says how many there are; otherwise there is one. The validator
        of torchtitan sets it: one epoch for ``steps=-1``."""

        memory: str | None = None
        """How much decoded rows may take in each process, such as ``"4GiB"``. Default: 1 GiB."""

        threads: int | None = None
        """Threads that read ahead. Default: 2."""

        pad_token: int = 0
        """The input where there is no token."""

        pack: bool = _FLAT
        """Whether rows are packed, by the lengths that are noted of the column. Flat batches always are."""

        overflow: str = "split"
        """What becomes of rows that are longer than a pack, as :class:`rowdex.Pack` has it."""

        algorithm: str = "bfd"
        """How rows are packed, as :class:`rowdex.Pack` has it: ``"concat"`` cuts the stream of all rows."""

        truncate: bool = False
        """Without ``pack``: whether rows that are too long are cut. Otherwise they are an error."""

    def __init__(
        self,
        config: Config,
        *,
        dp_world_size: int,
        dp_rank: int,
        seq_len: int | None = None,
        local_batch_size: int | None = None,
        max_context_length: int | None = None,
        num_tokens_per_batch: int | None = None,
        tokenizer: Any = None,
        **others: Any,
    ) -> None:
        if not config.dataset_path:
            raise ValueError("dataset_path: give it the path or URL of an index, which `rowdex build` writes")
        self._flat = num_tokens_per_batch is not None
        if num_tokens_per_batch is not None:
            seq_len, local_batch_size = _packs_of(max_context_length, num_tokens_per_batch)
        if seq_len is None or local_batch_size is None:
            raise TypeError("give it seq_len and local_batch_size, or max_context_length and num_tokens_per_batch")
        options: dict[str, Any] = {}
        if config.pack:
            if config.truncate:
                raise ValueError("truncate=True with packs: use overflow='truncate'")
            packing: Any = {"overflow": config.overflow, "algorithm": config.algorithm, "pad": config.pad_token}
            options["pack"] = Pack(config.column, capacity=seq_len, layout="rows", **packing)
        elif self._flat:
            raise ValueError("pack=False: flat batches are made of packs; leave it out")
        elif (config.overflow, config.algorithm) != ("split", "bfd"):
            raise ValueError("overflow and algorithm are of packs: set pack=True, or leave them out")
        self._config, self._seq_len, self._batch_size = config, seq_len, local_batch_size
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
            **options,
        )
        if len(self._loader) == 0:
            raise ValueError(
                f"{len(self._loader.dataset)} rows are fewer than one batch of {local_batch_size} "
                f"{'packs' if config.pack else 'rows'} for each of {dp_world_size} ranks"
            )

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        epochs = self._config.epochs
        if epochs is None and not self._config.infinite:
            epochs = 1
        while epochs is None or self._loader.epoch < epochs:
            for batch in self._loader:
                yield self._packed(batch) if self._config.pack else self._example(batch[self._config.column])

    def _packed(self, batch: dict[str, Any]) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        places = [batch[name].long() for name in (self._config.column, "position_ids", "labels")]
        tokens, positions, labels = (found.reshape(-1) for found in places) if self._flat else places
        return {"input": tokens, "positions": positions}, labels

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


def _packs_of(context: int | None, tokens: int) -> tuple[int, int]:
    """The capacity and the number of the packs that a flat batch is made of."""
    capacity = tokens if context is None else min(context, tokens)
    if capacity < 1 or tokens % capacity:
        raise ValueError(
            f"num_tokens_per_batch={tokens} is no multiple of max_context_length={context}, and a batch is whole packs "
            "of as many tokens: change one of them"
        )
    return capacity, tokens // capacity


__all__ = ["TokenDataLoader"]
