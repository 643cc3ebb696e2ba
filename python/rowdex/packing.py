"""Batches that are planned by how long rows are, for ``DistributedSampler(pack=...)`` and all that takes its arguments.

The lengths are recorded in the index: ``rowdex.build(..., lengths=["tokens"])`` or :meth:`Index.note_lengths`.
``docs/packs-format.md`` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .native.library import token, whole
from .schema import column_list

_OF_TOKENS = ("bfd", "concat")
_OPTIONAL = ("capacity", "max_pieces", "block", "bos", "eos")
_TOKENS = ("bos", "eos", "pad")
_SAID = ("overflow", "extra", "multiple", "max_pieces", "block", "empty")


@dataclass(frozen=True)
class Pack:
    """Rows in packs of a number of tokens: every rank takes the same number of steps, and no token is lost. With
    another ``algorithm`` these are batches of whole rows of like lengths.

    Args:
        lengths: The name that the lengths are recorded by, mostly the column of tokens. Or two names with their limits,
            ``{"tokens": 8192, "images": 16}``: no pack exceeds either, and rows stay whole.
        capacity: Tokens of a pack: at most 4,194,304 times ``multiple``. Of ``"buckets"`` the most tokens of a row;
            without it there is no limit.
        overflow: Rows that are longer than that: ``"split"`` into pieces (the default), ``"truncate"``, ``"drop"``, or
            ``"error"``. Rows that stay whole have ``"error"`` by default, and are not split; those of ``"buckets"``
            are not dropped.
        algorithm: ``"bfd"``, best-fit decreasing, which cuts no row that fits a pack; or ``"concat"``: row after row,
            cut where a pack is full. Of whole rows: ``"budget"``, batches with at most ``capacity`` tokens each;
            ``"padded"``, the same with the padding to the longest row, so the number of rows times that is at most
            ``capacity``; a batch of a rank is ``batch_size`` of these: use 1. Or ``"buckets"``, batches of
            ``batch_size`` rows: every row is served, but for what the tail ``drop`` or ``drop_last="batch"`` leave out.
            The batches of a step are neighbours in length on all ranks, and steps are shuffled.
        extra: Tokens that each piece takes in addition to its own, such as those of ``bos`` and ``eos``.
        multiple: What a piece takes is rounded up to a multiple of this.
        max_pieces: The most pieces of a pack, or rows of a batch.
        block: How many positions of the order are packed together: 131,072 by default, 16,384 of two limits. Those of
            ``"buckets"`` are sorted together, 16,384 by default, rounded to a multiple of the rows of a step on all
            ranks: more of them make lengths more alike, and batches less random.
        empty: Rows without tokens: ``"skip"`` (the default), or ``"keep"`` as pieces without tokens, as ``"buckets"``
            do.
        cost: Assigns the packs of a step so that ranks have about the same work. A pack of ``L`` tokens with pieces of
            ``l`` costs ``linear * L + quadratic * sum(l * l)``. A model of 7 billion parameters has about ``(24576,
            1)``.
        bos, eos: The tokens that a loader puts before each row and after it. They are counted with ``extra``.
        labels: Whether a loader makes labels of the tokens where no column has them.
        layout: What a loader makes of the packs of a batch: ``"flat"``, one after the other (the default), or
            ``"rows"`` of ``capacity`` places each, filled up. Of ``"buckets"``, ``"rows"`` are filled up to the longest
            one of the batch. Whole rows are served as columns by default; those of ``"budget"`` and ``"padded"``
            always.
        pad: The token that fills up.
        with_columns: Columns of lists with an item for each token, such as weights: they are cut as the tokens are, and
            lie where the labels do. ``labels``, ``completion_mask`` and ``assistant_masks`` next to the tokens need no
            mention.
        tokens: The column that a loader takes the tokens from, or the path of a field of a struct, ``"doc.tokens"``.
            Default: the one whose items were counted for the lengths.
    """

    lengths: str | Mapping[str, int]
    capacity: int | None = None
    overflow: Literal["split", "truncate", "drop", "error"] | None = None
    algorithm: Literal["bfd", "concat", "budget", "padded", "buckets"] = "bfd"
    extra: int = 0
    multiple: int = 1
    max_pieces: int | None = None
    block: int | None = None
    empty: Literal["skip", "keep"] | None = None
    cost: tuple[int, int] | None = None
    bos: int | None = None
    eos: int | None = None
    labels: bool = True
    layout: Literal["flat", "rows"] | None = None
    pad: int = 0
    with_columns: Sequence[str] = ()
    tokens: str | None = None
    second: tuple[str, int] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.lengths, Mapping) and len(self.lengths) == 2 and self.capacity is None:
            (lengths, capacity), second = self.lengths.items()
            self.__dict__.update(lengths=lengths, capacity=capacity, second=second)
        if not isinstance(self.lengths, str):
            raise TypeError(f"lengths={self.lengths!r}: name lengths that are recorded, or two with their limits")
        if self.capacity is None and not self._is_of_rows:
            raise TypeError("capacity=None: use a whole number; only 'buckets' have no limit")
        made: dict[str, Any] = {"with_columns": tuple(column_list(self.with_columns))}
        for name in ("extra", "multiple", "pad", *(name for name in _OPTIONAL if getattr(self, name) is not None)):
            made[name] = (token if name in _TOKENS else whole)(getattr(self, name), name)
            if made[name] < 0 and name not in _TOKENS:
                raise ValueError(f"{name}={made[name]}: use a number from 1 on")
        if self.layout is None and self._is_of_tokens:
            made["layout"] = "flat"
        for name, value in made.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        layouts = ("flat", "rows") if self._is_of_tokens else (None, "flat", "rows") if self._is_of_rows else (None,)
        if self.layout not in layouts:
            raise ValueError(f"layout={self.layout!r} of {self.algorithm!r}: use {' or '.join(map(repr, layouts))}")
        added = (self.bos is not None) + (self.eos is not None)
        if added > self.extra:
            raise ValueError(f"bos and eos add {added} tokens to a piece, and extra={self.extra}: use extra={added}")
        if added and self.layout is None:
            raise ValueError("bos and eos without a layout, which they are put into: use layout='rows' or 'flat'")
        if self.cost is not None and (not isinstance(self.cost, Sequence) or len(self.cost) != 2):
            raise TypeError(f"cost={self.cost!r}: use two whole numbers, (linear, quadratic)")

    @property
    def _is_of_tokens(self) -> bool:
        """Whether packs are filled with pieces of rows."""
        return self.algorithm in _OF_TOKENS

    @property
    def _is_of_rows(self) -> bool:
        """Whether every row is a separate pack, so that batches have the same number of rows."""
        return self.algorithm == "buckets"

    def _text(self) -> str:
        """The packing as the library and the command take it."""
        options = {name: getattr(self, name) for name in _SAID}
        if self._is_of_rows:
            options["capacity"] = self.capacity
        else:
            options["algorithm"] = self.algorithm
        if self.second is not None:
            options["second"] = "{}-{}".format(*self.second)
        if self.cost is not None:
            options["cost"] = "-".join(str(whole(number, "cost")) for number in self.cost)
        said = [f"{name}={value}" for name, value in options.items() if value is not None]
        return ",".join([f"{self.lengths}:{'buckets' if self._is_of_rows else self.capacity}", *said])


def default_tail(pack: Pack | None) -> str:
    """What becomes of what does not divide evenly, unless something else is asked for."""
    return "wrap" if pack is None or pack._is_of_rows else "even"
