"""Orders that are more than a name, for ``DistributedSampler(order=...)`` and everything that takes its arguments.

The names ``"global"``, ``"sequential"``, ``"torch"`` and ``"blocks(8)"`` are orders, too, wherever one is asked for.
Orders are made of each other::

    from rowdex.order import IdSet, Resized, Subset

    train = IdSet.split(dataset, "train", validation_fraction=0.1)
    loader = rowdex.Loader(dataset, batch_size=256, seed=42, order=Resized(Subset("global", train), size=1_000_000))

The seed of the sampler is that of all its orders. Orders are pickled, and equal if they serve the same rows; long lists
travel to other processes of the machine in a temporary file. ``docs/orders.md`` says exactly what each serves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Union

from .dataset import Dataset, Labels
from .id_set import IdSet
from .index import Path
from .native.library import Handle, Operands, library, local_list
from .native.numbers import Numbers
from .stages import StagePlan, Stages, numbers, pairs


class Context(NamedTuple):
    """What orders are opened over."""

    dataset: Dataset | None
    """Whose rows they are; ``None`` if only their number is known."""
    rows: int
    seed: int


class Orders:
    """Which row comes at which position, in every epoch."""

    _fields: tuple[tuple[str, Any], ...]
    """What a description has of them."""

    def _operand(self, operands: Operands) -> dict[str, Any]:
        return dict(self._fields)

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._fields))

    def __reduce__(self) -> Any:
        return _again, (type(self), self._fields)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(repr(value) for _, value in self._fields)})"


Order = Union[str, Orders]


class _Named(Orders):
    """An order that is a name."""

    def __init__(self, name: str) -> None:
        self._fields = (("order", name),)

    def __repr__(self) -> str:
        return repr(self._fields[0][1])


def _again(kind: type[Any], fields: tuple[Any, ...]) -> Any:
    made = object.__new__(kind)
    made._fields = fields
    return made


def open_order(order: Order, context: Context) -> Handle:
    """A ``rowdex_order`` handle."""
    parts = () if context.dataset is None else context.dataset._in_turn
    operands = Operands(part.index._handle.get() for part in parts)
    fields = _orders(order)._operand(operands) | {"seed": context.seed, "rows": None if parts else context.rows}
    return operands.make(library.order_new, fields)


def _orders(order: Order) -> Orders:
    if isinstance(order, str):
        return _Named(order)
    if not isinstance(order, Orders):
        raise TypeError(f"order={order!r}: use a name such as 'global', or one of rowdex.order, such as Explicit(rows)")
    return order


def _size(size: int | None) -> int | None:
    if size is not None and not 0 < size < 2**63:
        raise ValueError(f"size is {size}: use 1 or more")
    return size


class Explicit(Orders):
    """A list of row ids, in this order in every epoch: what another program decided. Rows may repeat and be left out.

    Args:
        ids: Row ids: a sequence of integers, or an array of one dimension.
        file: Instead of these, a file of this machine with them as little-endian 64-bit integers,
            ``numpy.asarray(ids, "<u8").tofile(path)``. A file of more than 64 MiB is mapped, so that all processes of
            a machine share it; a smaller one is read.
        permutation: Refuses a list that does not have every row of the dataset exactly once.
    """

    def __init__(self, ids: Any = None, *, file: Path | None = None, permutation: bool = False) -> None:
        if (ids is None) == (file is None):
            raise ValueError("give either ids or a file")
        numbers = None if ids is None else Numbers("Q", ids)
        path = None if file is None else local_list(file)
        self._fields = (("row_ids", numbers), ("file", path), ("permutation", permutation))

    def _operand(self, operands: Operands) -> dict[str, Any]:
        fields = dict(self._fields)
        ids = fields["row_ids"]
        if ids is not None and ids._values is None and sys.byteorder == "little":
            # From another process: share its file.
            fields |= {"row_ids": None, "file": ids._path}
        return fields


class Weighted(Orders):
    """Rows drawn by weight.

    Args:
        weights: For each row a number that is finite and not negative, such as :meth:`Dataset.weights` reads.
        size: How many positions an epoch has. Default: the number of rows; without replacement, that of the rows with a
            weight above 0.
        replacement: Whether a row may be drawn again in an epoch.
    """

    def __init__(self, weights: Any, size: int | None = None, *, replacement: bool = True) -> None:
        self._fields = (("weights", Numbers("d", weights)), ("size", _size(size)), ("replacement", replacement))


class Scored(Orders):
    """Rows by a score, the lowest first, in sweeps: of ``folds`` sweeps each has every ``folds``-th row, and they come
    one after the other.

    Args:
        scores: For each row a number, such as :meth:`Dataset.weights` reads, or :meth:`Index.lengths`, which are
            recorded in the index.
        folds: How many sweeps an epoch has.
        block: How many neighbours by score are shuffled among each other, again in each epoch. 1 shuffles none.
    """

    def __init__(self, scores: Any, folds: int = 1, *, block: int = 4096) -> None:
        self._fields = (("scored", (Numbers("d", scores), folds, block)),)


class Balanced(Orders):
    """Classes equally often, or by proportion: rows of small classes repeat, and all rows of a class come equally
    often.

    Args:
        labels: The class of each row: what :meth:`Dataset.labels` reads, or numbers from 0 on.
        size: How many positions an epoch has. Default: as many as there are rows.
        proportions: For each class a number, or a dict of numbers by the text of the class; a class of 0 is left out.
            Default: all the same.
    """

    def __init__(
        self,
        labels: Labels | Any,
        size: int | None = None,
        *,
        proportions: Sequence[float] | Mapping[str, float] | None = None,
    ) -> None:
        classes = labels.classes if isinstance(labels, Labels) else None
        if isinstance(proportions, Mapping):
            unknown = [name for name in proportions if classes is None or name not in classes]
            if unknown:
                raise ValueError(
                    f"no class is called {unknown[0]!r}"
                    + ("" if classes is None else f"; there are {', '.join(classes)}")
                )
            assert classes is not None
            proportions = [proportions.get(name, 0) for name in classes]
        if proportions is not None and len(proportions) == 0:
            raise ValueError("proportions=[]: give a number for each class, or leave it out")
        codes = labels.codes if isinstance(labels, Labels) else labels
        shares = None if proportions is None else tuple(map(float, proportions))
        self._fields = (("labels", Numbers("I", codes)), ("size", _size(size)), ("proportions", shares))


class Mixed(Orders):
    """Several datasets by exact proportion: for a :class:`rowdex.MixedDataset`, whose row ids it serves.

    Args:
        proportions: For each dataset how often it comes, in relation to the others. With ``stages`` its name, from
            which the seed of its order comes, so that other datasets do not change it.
        size: How many positions an epoch has. Default: as many as there are rows in all.
        orders: The order of each dataset's rows, or one for all. The order of dataset ``i``, from 0 on, has the seed of
            the sampler plus ``i + 1``.
        stages: Pairs of a position, counted over all ranks and through all epochs, and the weights from there on by
            name: ``[(0, {"web": 0.7, "code": 0.3}), (10_000, {"code": 1})]``.
        unit: Of what weights are shares: ``"rows"``, or, on average, tokens, by the name of the lengths that all
            indexes have: ``"tokens"``. Then ``"2B tokens"`` is a position, too: to within the mean length of rows.
        ramp: How weights become those of the next stage: at once (``"step"``), or over the whole stage (``"linear"``).
        repetitions: How often all rows of a dataset may be served in the run, by name.
        on_exhausted: What happens when they have been, or, of a dataset that is not in ``repetitions``, once:
            ``"renormalise"`` serves the others by the weights they have, ``"stop"`` ends the run. With ``"repeat"``
            the datasets that are not in ``repetitions`` repeat.
    """

    def __init__(
        self,
        proportions: Sequence[float] | Sequence[str],
        size: int | None = None,
        *,
        orders: Order | Sequence[Order] = "global",
        stages: Stages | None = None,
        unit: str = "rows",
        ramp: str = "step",
        repetitions: Mapping[str, float] | None = None,
        on_exhausted: str = "repeat",
    ) -> None:
        each = [orders] * len(proportions) if isinstance(orders, (str, Orders)) else list(orders)
        if len(each) != len(proportions):
            raise ValueError(f"{len(proportions)} proportions and {len(each)} orders")
        shares: tuple[str, Any]
        if stages is not None:
            names = tuple(map(str, proportions))
            most = numbers(repetitions or {}, "repetitions")
            shares = ("stages", StagePlan(names, pairs(stages), unit, ramp, on_exhausted, most))
        elif (unit, ramp, repetitions, on_exhausted) != ("rows", "step", None, "repeat"):
            raise ValueError("unit, ramp, repetitions and on_exhausted are for a mixture with stages")
        else:
            shares = ("proportions", tuple(map(float, proportions)))
        self._fields = (shares, ("size", _size(size)), ("parts", tuple(map(_orders, each))))

    @property
    def stages(self) -> list[tuple[int | str, dict[str, float]]]:
        """The stages, to add others."""
        plan = plan_of(self)
        return [] if plan is None else [(start, dict(weights)) for start, weights in plan.stages]


class Resized(Orders):
    """Another order, in epochs of ``size`` positions: a pass over the rows continues where the epoch before ended."""

    def __init__(self, order: Order, size: int) -> None:
        self._fields = (("inner", _orders(order)), ("size", _size(size)))


class Subset(Orders):
    """Another order, over the rows of a set: weights, labels and lists of the order inside are for those rows alone, in
    their order.

    Args:
        order: The order of the rows that are left.
        kept: Which these are.
    """

    def __init__(self, order: Order, kept: IdSet) -> None:
        if not isinstance(kept, IdSet):
            raise TypeError("kept: use an IdSet")
        base = _orders(order)
        self._fields = (*(base._fields if isinstance(base, _Named) else (("inner", base),)), ("kept", kept))


class Paired(Orders):
    """Another order, each epoch of which comes twice: forwards, and in the next epoch backwards.

    It saves no decodes: of any order, a loader keeps rows at the end of an epoch that the next one begins with.
    """

    def __init__(self, order: Order) -> None:
        self._fields = (("inner", _orders(order)), ("paired", True))

    def __repr__(self) -> str:
        return f"Paired({self._fields[0][1]!r})"


class Contiguous(Orders):
    """Another order, of which each of so many shards gets one consecutive piece: what ``order="blocks(8),contiguous"``
    does for the shards there are.
    """

    def __init__(self, order: Order, shards: int) -> None:
        if not 1 <= shards < 2**32:
            raise ValueError(f"shards is {shards}: use 1 or more")
        self._fields = (("inner", _orders(order)), ("shards", shards))


class Rotated(Orders):
    """Another order, beginning elsewhere each epoch. A sampler does this where it is needed."""

    def __init__(self, order: Order) -> None:
        self._fields = (("inner", _orders(order)), ("rotated", True))

    def __repr__(self) -> str:
        return f"Rotated({self._fields[0][1]!r})"


def plan_of(order: Order) -> StagePlan | None:
    """How the weights of a mixture change; ``None`` of any other order."""
    return dict(order._fields).get("stages") if isinstance(order, Mixed) else None


def with_stages(order: Order, stages: Stages | None) -> Order:
    """The order of a mixture with other stages."""
    if stages is None:
        return order
    plan = plan_of(order)
    if plan is None or isinstance(order, str):
        raise TypeError("stages= for a loader without: make it with order=rowdex.order.Mixed(names, stages=…)")
    changed: Order = _again(Mixed, (("stages", plan._replace(stages=pairs(stages))), *order._fields[1:]))
    return changed


def may_repeat(order: Order) -> bool:
    """Whether an epoch may serve a row more than once."""
    if isinstance(order, str):
        return False
    if isinstance(order, Weighted):
        return bool(dict(order._fields)["replacement"])
    inner = dict(order._fields).get("inner")
    return isinstance(order, (Balanced, Explicit, Mixed, Resized)) or inner is not None and may_repeat(inner)


__all__ = [
    "Balanced", "Contiguous", "Explicit", "IdSet", "Mixed", "Orders", "Paired", "Resized", "Rotated", "Scored",
    "Subset", "Weighted",
]  # fmt: skip
