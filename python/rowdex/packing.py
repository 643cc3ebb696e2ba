"""Batches that are planned by how long rows are, for ``DistributedSampler(pack=...)`` and all that takes its arguments.

The lengths are noted in the index: ``rowdex.build(..., lengths=["tokens"])`` or :meth:`Index.note_lengths`.
``docs/sequences.md`` has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Union

from .native.library import token, whole
from .schema import column_list

_MOST = {"max_pieces": 2**32, "max_rows": 2**32}


@dataclass(frozen=True)
class Pack:
    """Rows in packs of a number of tokens, with which every rank takes as many steps, and no token is lost.

    Args:
        lengths: The name that the lengths are noted by, mostly the column of tokens.
        capacity: Tokens of a pack: at most 4,194,304 times ``multiple``.
        overflow: Rows that are longer than a pack can hold: ``"split"`` into pieces, ``"truncate"``, ``"drop"``, or
            ``"error"``.
        algorithm: ``"bfd"``, best-fit decreasing, which cuts no row that fits a pack; or ``"concat"``: row after row,
            cut where a pack is full.
        extra: Tokens that each piece takes beside its own, such as those of ``bos`` and ``eos``.
        multiple: What a piece takes is rounded up to a multiple of this.
        max_pieces: The most pieces of a pack.
        block: How many positions of the order are packed together.
        empty: Rows without tokens: ``"skip"``, or ``"keep"`` as pieces without tokens.
        cost: Deals the packs of a step so that ranks have about as much to do: ``linear * L + quadratic * sum(l * l)``
            of a pack of ``L`` tokens with pieces of ``l``. A model of 7 billion parameters has about ``(24576, 1)``.
        bos, eos: The tokens that a loader puts before each row and after it. They are counted with ``extra``.
        labels: Whether a loader makes labels of the tokens where no column has them.
        layout: What a loader makes of the packs of a batch: ``"flat"``, one after the other, or ``"rows"`` of
            ``capacity`` places each, filled up.
        pad: The token that fills up.
        with_columns: Columns of lists with an item for each token, such as weights: they are cut as the tokens are, and
            lie where the labels do. ``labels``, ``completion_mask`` and ``assistant_masks`` beside the tokens need no
            mention.
        tokens: The column that a loader takes the tokens from, or the path of a field of a struct, ``"doc.tokens"``.
            Default: the one whose items were counted for the lengths.
    """

    lengths: str
    capacity: int
    overflow: Literal["split", "truncate", "drop", "error"] = "split"
    algorithm: Literal["bfd", "concat"] = "bfd"
    extra: int = 0
    multiple: int = 1
    max_pieces: int | None = None
    block: int = 2**17
    empty: Literal["skip", "keep"] = "skip"
    cost: tuple[int, int] | None = None
    bos: int | None = None
    eos: int | None = None
    labels: bool = True
    layout: Literal["flat", "rows"] = "flat"
    pad: int = 0
    with_columns: Sequence[str] = ()
    tokens: str | None = None

    def __post_init__(self) -> None:
        _check(self)
        if self.algorithm not in ("bfd", "concat"):
            raise ValueError(f"algorithm={self.algorithm!r}: use 'bfd' or 'concat'; rowdex.Budget has whole rows")
        if self.layout not in ("flat", "rows"):
            raise ValueError(f"layout={self.layout!r}: use 'flat' or 'rows'")
        _check_added(self)

    def _text(self) -> str:
        return _text(self, self.capacity, algorithm=self.algorithm, max_pieces=self.max_pieces)


@dataclass(frozen=True)
class Budget:
    """Batches of whole rows of like lengths with at most so many tokens each. A batch of a rank is ``batch_size`` of
    them: use 1.

    Args:
        lengths: The name that the lengths are noted by.
        capacity: Tokens of a batch.
        padded: Counts the padding to the longest row: the number of rows times that is at most ``capacity``.
        overflow: Rows that are longer than that: ``"truncate"``, ``"drop"``, or ``"error"``.
        extra: Tokens that each row takes beside its own.
        multiple: What a row takes is rounded up to a multiple of this.
        max_rows: The most rows of a batch.
        block: How many positions of the order are sorted together.
        empty: Rows without tokens: ``"skip"``, or ``"keep"``.
        cost, with_columns, tokens: As for :class:`Pack`.
    """

    lengths: str
    capacity: int
    padded: bool = False
    overflow: Literal["truncate", "drop", "error"] = "error"
    extra: int = 0
    multiple: int = 1
    max_rows: int | None = None
    block: int = 2**17
    empty: Literal["skip", "keep"] = "skip"
    cost: tuple[int, int] | None = None
    with_columns: Sequence[str] = ()
    tokens: str | None = None

    def __post_init__(self) -> None:
        _check(self)

    def _text(self) -> str:
        return _text(self, self.capacity, algorithm="padded" if self.padded else "budget", max_pieces=self.max_rows)


@dataclass(frozen=True)
class Buckets:
    """Batches of ``batch_size`` whole rows of like lengths: every row is served, but for what the tail ``drop`` or
    ``drop_last="batch"`` leave out. The batches of a step are neighbours in length on all ranks. Steps are shuffled.

    Args:
        lengths: The name that the lengths are noted by.
        within: How many positions of the order are sorted together, rounded to a multiple of the rows of a step on all
            ranks. More of them make lengths more alike, and batches less random.
        capacity: The most tokens of a row; ``None`` if there is no limit.
        overflow: Rows that are longer than that: ``"truncate"``, or ``"error"`` when they are due.
        extra: Tokens that each row takes beside its own, such as those of ``bos`` and ``eos``.
        multiple: What a row takes is rounded up to a multiple of this.
        layout: What a loader makes of the tokens of a batch: ``"rows"``, an array of ``batch_size`` rows that are
            filled up to the longest one; ``"flat"``, one after the other; or ``None``, the column as it is.
        bos, eos, labels, pad: As for :class:`Pack`, for these layouts.
        with_columns, tokens: As for :class:`Pack`.
    """

    lengths: str
    within: int = 2**14
    capacity: int | None = None
    overflow: Literal["truncate", "error"] = "error"
    extra: int = 0
    multiple: int = 1
    layout: Literal["flat", "rows"] | None = None
    bos: int | None = None
    eos: int | None = None
    labels: bool = True
    pad: int = 0
    with_columns: Sequence[str] = ()
    tokens: str | None = None

    def __post_init__(self) -> None:
        _check(self)
        if self.layout not in ("flat", "rows", None):
            raise ValueError(f"layout={self.layout!r}: use 'flat' or 'rows', or None for columns as they are")
        if self.overflow not in ("truncate", "error"):
            raise ValueError(f"overflow={self.overflow!r}: use 'truncate' or 'error': each row is served once")
        _check_added(self)

    def _text(self) -> str:
        return _text(self, "buckets", capacity=self.capacity, block=self.within)


Packing = Union[Pack, Budget, Buckets]


def default_tail(packing: Packing | None) -> str:
    """What becomes of what does not divide evenly, unless something else is asked for."""
    return "even" if isinstance(packing, (Pack, Budget)) else "wrap"


def _check_added(packing: Pack | Buckets) -> None:
    added = (packing.bos is not None) + (packing.eos is not None)
    if added > packing.extra:
        raise ValueError(f"bos and eos add {added} tokens to a piece, and extra={packing.extra}: use extra={added}")


def _check(packing: Any) -> None:
    """Refuses what the library could not even be told, and makes numbers whole that are floats."""
    for field in fields(packing):
        value = getattr(packing, field.name)
        if field.name == "cost":
            _check_cost(value)
        elif field.name == "with_columns":
            object.__setattr__(packing, field.name, tuple(column_list(value)))
        elif field.name in ("bos", "eos", "pad") and value is not None:
            object.__setattr__(packing, field.name, token(value, field.name))
        elif "int" in str(field.type) and value is not None:
            most = _MOST.get(field.name, 2**64)
            # 0 has the default in C.
            least = 0 if field.name == "extra" or (field.name == "capacity" and "None" not in str(field.type)) else 1
            number = whole(value, field.name)
            if not least <= number < most:
                raise ValueError(f"{field.name}={value}: use {least} or more")
            object.__setattr__(packing, field.name, number)
        elif "int" in str(field.type) and "None" not in str(field.type):
            raise TypeError(f"{field.name}=None: use a whole number")
        elif str(field.type) == "str" and not isinstance(value, str):
            raise TypeError(f"{field.name}={value!r}: name the lengths that are noted, such as 'tokens'")


def _check_cost(cost: Any) -> None:
    if cost is None:
        return
    if not isinstance(cost, Sequence) or len(cost) != 2:
        raise TypeError(f"cost={cost!r}: use two whole numbers, (linear, quadratic)")
    for number in cost:
        if not 0 <= whole(number, "cost") < 2**64:
            raise ValueError(f"cost={cost!r}: use two whole numbers from 0 on")


def _text(packing: Any, size: int | str, **more: Any) -> str:
    """A packing as the library and the command take it."""
    names = ("overflow", "extra", "multiple", "block", "empty", "cost")
    options = {name: getattr(packing, name) for name in names if hasattr(packing, name)} | more
    if options.get("cost") is not None:
        options["cost"] = "{}-{}".format(*(whole(number, "cost") for number in options["cost"]))
    said = [f"{name}={value}" for name, value in options.items() if value is not None]
    return ",".join([f"{packing.lengths}:{size}", *said])
