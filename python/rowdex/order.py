"""Orders that are more than a name, for ``DistributedSampler(order=...)`` and everything that takes its arguments.

The names ``"global"``, ``"sequential"``, ``"torch"`` and ``"blocks(8)"`` are orders, too, wherever one is asked for. Orders are made of each other::

    from rowdex.order import IdSet, Resized, Subset

    train = IdSet.split(dataset, "train", fraction=0.1)
    loader = rowdex.Loader(dataset, batch_size=256, seed=42, order=Resized(Subset("global", train), size=1_000_000))

The seed of the sampler is that of all its orders. Orders are pickled, and equal if they serve the same rows; long lists travel to other processes of the machine in a
temporary file. ``docs/orders.md`` says exactly what each serves.
"""

from __future__ import annotations

import array
import ctypes
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

from . import _ffi
from ._library import Handle, PerProcess, call, library, no_nul, path_bytes
from ._numbers import Numbers
from .index import Index, Path

if TYPE_CHECKING:
    from .dataset import Dataset, Labels

Side = Literal["train", "validation"]


class Context(NamedTuple):
    """What orders are opened over."""

    dataset: Dataset | None
    """Whose rows they are; ``None`` if only their number is known."""
    rows: int
    seed: int

    def group_rows(self) -> array.array[int]:
        """How many rows each row group has; all rows are one, if nothing is known of row groups."""
        parts = () if self.dataset is None else self.dataset._parts
        if not parts:
            return array.array("Q", [self.rows])
        groups = array.array("Q")
        info = _ffi.RowGroupInfo()
        for part in parts:
            index = part.index
            pointer = index._handle.get()
            for group in range(index.num_row_groups):
                call(library.index_get_row_group, pointer, group, ctypes.byref(info))
                groups.append(info.rows)
        return groups


class Orders:
    """Which row comes at which position, in every epoch."""

    _parts: tuple[Any, ...]

    def _open(self, context: Context) -> Handle:
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._parts))

    def __reduce__(self) -> Any:
        return _again, (type(self), self._parts)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parts))})"


Order = Union[str, Orders]


def _again(kind: type[Any], parts: tuple[Any, ...]) -> Any:
    made = object.__new__(kind)
    made._parts = parts
    return made


def open_order(order: Order, context: Context) -> Handle:
    """A ``rowdex_orders`` handle."""
    if isinstance(order, Orders):
        return order._open(context)
    spec = _spec(order)
    dataset = context.dataset
    if dataset is not None and len(dataset._parts) == 1:
        index = dataset._parts[0].index._handle.get()
        return _orders(library.orders_for_index, spec, index, context.seed)
    groups = context.group_rows() if spec.startswith(b"blocks") else array.array("Q", [context.rows])
    return _orders(library.orders_for_groups, spec, _u64(groups), len(groups), context.seed)


def _orders(function: Any, *arguments: Any) -> Handle:
    return Handle(library.orders_free, function, *arguments)


def _spec(order: str) -> bytes:
    return no_nul(order.encode(), "order")


def _u64(numbers: array.array[int]) -> Any:
    return ctypes.cast(numbers.buffer_info()[0], ctypes.POINTER(ctypes.c_uint64))


def _checked(order: Order) -> Order:
    if not isinstance(order, (str, Orders)):
        raise TypeError(f"order={order!r}: use a name such as 'global', or one of rowdex.order")
    return order


def _size(size: int | None) -> int | None:
    if size is not None and not 0 <= size < 2**63:
        raise ValueError(f"size is {size}: use 0 or more")
    return size


class Explicit(Orders):
    """A list of row ids, in this order in every epoch: what another program decided. Rows may repeat and be left out.

    Args:
        ids: Row ids: a sequence of integers, or an array of one dimension.
        file: Instead of these, a file of them as little-endian 64-bit integers, ``numpy.asarray(ids, "<u8").tofile(path)``: it is mapped, so that all
            processes of a machine share it.
        permutation: Refuses what has not every row of the dataset exactly once.
    """

    def __init__(self, ids: Any = None, *, file: Path | None = None, permutation: bool = False) -> None:
        if (ids is None) == (file is None):
            raise ValueError("give either ids or a file")
        self._parts = (None if ids is None else Numbers("Q", ids), None if file is None else os.path.abspath(file), permutation)

    def _open(self, context: Context) -> Handle:
        ids, file, permutation = self._parts
        if ids is not None and ids._values is None and sys.byteorder == "little":
            # From another process: share its file.
            file = ids._path
        if file is not None:
            orders = _orders(library.orders_from_file, path_bytes(file), context.rows)
        else:
            orders = _orders(library.orders_explicit, *ids.values.buffer_info(), context.rows)
        if permutation:
            call(library.orders_check_permutation, orders)
        return orders


class Weighted(Orders):
    """Rows drawn by weight.

    Args:
        weights: For each row a number that is finite and not negative, such as :meth:`Dataset.weights` reads.
        size: How many positions an epoch has. Default: as many as there are rows; without replacement, as have a weight above 0.
        replacement: Whether a row may be drawn again in an epoch.
    """

    def __init__(self, weights: Any, size: int | None = None, *, replacement: bool = True) -> None:
        self._parts = (Numbers("d", weights), _size(size), replacement)

    def _open(self, context: Context) -> Handle:
        weights, size, replacement = self._parts
        _as_many(weights, context, "weights")
        if size is None:
            size = len(weights) if replacement else sum(weight > 0 for weight in weights.values)
        function = library.orders_weighted_with_replacement if replacement else library.orders_weighted_without_replacement
        return _orders(function, *weights.values.buffer_info(), size, context.seed)


class Balanced(Orders):
    """Classes equally often, or by proportion: rows of small classes repeat, and all rows of a class come equally often.

    Args:
        labels: The class of each row: what :meth:`Dataset.labels` reads, or numbers from 0 on.
        size: How many positions an epoch has. Default: as many as there are rows.
        proportions: For each class a number, or a dict of numbers by the text of the class; a class of 0 is left out. Default: all the same.
    """

    def __init__(
        self, labels: Labels | Any, size: int | None = None, *, proportions: Sequence[float] | Mapping[str, float] | None = None
    ) -> None:
        from .dataset import Labels

        classes = labels.classes if isinstance(labels, Labels) else None
        if isinstance(proportions, Mapping):
            unknown = [name for name in proportions if classes is None or name not in classes]
            if unknown:
                raise ValueError(f"no class is called {unknown[0]!r}" + ("" if classes is None else f"; there are {', '.join(classes)}"))
            assert classes is not None
            proportions = [proportions.get(name, 0) for name in classes]
        codes = labels.codes if isinstance(labels, Labels) else labels
        self._parts = (Numbers("I", codes), _size(size), None if proportions is None else tuple(map(float, proportions)))

    def _open(self, context: Context) -> Handle:
        labels, size, proportions = self._parts
        _as_many(labels, context, "labels")
        numbers = array.array("d", proportions or ())
        size = len(labels) if size is None else size
        return _orders(library.orders_balanced, *labels.values.buffer_info(), *numbers.buffer_info(), size, context.seed)


def _as_many(numbers: Numbers, context: Context, what: str) -> None:
    if len(numbers) != context.rows:
        raise ValueError(f"{len(numbers)} {what} for {context.rows} rows")


class Mixed(Orders):
    """Several datasets by exact proportion: for a :class:`rowdex.MixedDataset`, whose row ids it serves.

    Args:
        proportions: For each dataset how often it comes, which counts against the others.
        size: How many positions an epoch has. Default: as many as there are rows in all.
        orders: The order of each dataset's rows, or one for all. The order of dataset ``i`` has the seed of the sampler plus ``i + 1``.
    """

    def __init__(self, proportions: Sequence[float], size: int | None = None, *, orders: Order | Sequence[Order] = "global") -> None:
        each = [orders] * len(proportions) if isinstance(orders, (str, Orders)) else list(orders)
        if len(each) != len(proportions):
            raise ValueError(f"{len(proportions)} proportions and {len(each)} orders")
        self._parts = (tuple(map(float, proportions)), _size(size), tuple(map(_checked, each)))

    def _open(self, context: Context) -> Handle:
        proportions, size, orders = self._parts
        datasets = () if context.dataset is None else context.dataset._parts
        if len(datasets) != len(proportions):
            raise ValueError(f"{len(proportions)} proportions for {len(datasets)} datasets: use a rowdex.MixedDataset of as many")
        opened = [
            open_order(order, Context(dataset, len(dataset), (context.seed + i) % 2**64))
            for i, (order, dataset) in enumerate(zip(orders, datasets), 1)
        ]
        parts = (_ffi.MixedPart * len(opened))(
            *(
                _ffi.MixedPart(handle.address, len(dataset), proportion)
                for handle, dataset, proportion in zip(opened, datasets, proportions)
            )
        )
        return _orders(library.orders_mixed, parts, len(parts), context.rows if size is None else size, context.seed)


class Resized(Orders):
    """Another order, in epochs of ``size`` positions: a pass over the rows goes on where the epoch before ended."""

    def __init__(self, order: Order, size: int) -> None:
        self._parts = (_checked(order), _size(size))

    def _open(self, context: Context) -> Handle:
        order, size = self._parts
        inner = open_order(order, context)
        return _orders(library.orders_resized, inner, size)


class Subset(Orders):
    """Another order, over the rows of a set: weights, labels and lists of the order inside are for those rows alone, in their order.

    Args:
        order: The order of the rows that are left.
        kept: Which these are.
    """

    def __init__(self, order: Order, kept: IdSet) -> None:
        if not isinstance(kept, IdSet):
            raise TypeError("kept: use an IdSet")
        self._parts = (_checked(order), kept)

    def _open(self, context: Context) -> Handle:
        order, kept = self._parts
        if kept.rows != context.rows:
            raise ValueError(f"a set out of {kept.rows} rows for a dataset of {context.rows}")
        dataset = context.dataset
        if isinstance(order, str) and dataset is not None and len(dataset._parts) == 1:
            index = dataset._parts[0].index._handle.get()
            return _orders(library.orders_for_subset, _spec(order), index, kept._pointer, context.seed)
        inner = open_order(order, Context(None, len(kept), context.seed))
        return _orders(library.orders_subset, inner, kept._pointer)


class Contiguous(Orders):
    """Another order, of which each of so many shards is dealt one consecutive piece: what ``partition="contiguous"`` does for the shards there are."""

    def __init__(self, order: Order, shards: int) -> None:
        if not 1 <= shards < 2**32:
            raise ValueError(f"shards is {shards}: use 1 or more")
        self._parts = (_checked(order), shards)

    def _open(self, context: Context) -> Handle:
        order, shards = self._parts
        inner = open_order(order, context)
        return _orders(library.orders_contiguous, inner, shards)


class Rotated(Orders):
    """Another order, beginning elsewhere each epoch. ``rotation`` of a sampler does this where it is needed."""

    def __init__(self, order: Order) -> None:
        self._parts = (_checked(order),)

    def _open(self, context: Context) -> Handle:
        inner = open_order(self._parts[0], context)
        return _orders(library.orders_rotated, inner)


class IdSet:
    """A set of row ids, out of the rows of a dataset: for :class:`Subset`, and for reading columns of some rows.

    ``len(set)`` is how many there are, ``row in set`` whether a row is one of them; iterating gives them in order. ``~set`` has the other rows, ``a & b``
    those of both. At most 1.0625 bits for each row of the dataset.
    """

    def __init__(self, rows: int, ids: Any) -> None:
        """These row ids, out of ``rows`` rows, in any order; repeats count once."""
        self._set(("ids", rows, Numbers("Q", ids)))
        self._handle.get()

    @staticmethod
    def _of(*recipe: Any) -> IdSet:
        made = _set_again(*recipe)
        made._handle.get()
        return made

    @staticmethod
    def ranges(rows: int, ranges: Iterable[tuple[int, int]]) -> IdSet:
        """The row ids of ranges ``(start, end)``, out of ``rows`` rows; they may come in any order, overlap and be empty."""
        return IdSet._of("ranges", rows, Numbers("Q", [bound for start, end in ranges for bound in (start, end)]))

    @staticmethod
    def listed(index: Index | Dataset, path: Path) -> IdSet:
        """The rows of an index that a file lists: text with a row id, a range like ``10..20`` or a place like ``a.parquet:2`` on each line, or CSV or Parquet
        with a column ``row_id``, or columns ``file``, ``row_group`` and ``row``.
        """
        return IdSet._of("listed", index if isinstance(index, Index) else index.index, os.path.abspath(path))

    @staticmethod
    def split(
        dataset: Dataset | int, side: Side, *, fraction: float = 0.1, seed: int = 0, by: str | None = None, of: IdSet | None = None
    ) -> IdSet:
        """One side of a split into training and validation rows by a hash. A row keeps its side when files are appended.

        Args:
            dataset: Whose rows; or how many there are.
            side: ``"train"`` or ``"validation"``.
            fraction: The part that is for validation: of as many coin tosses.
            seed: Another seed is another split. That of a sampler has nothing to do with it.
            by: Splits by the values of this column, instead of by row id: rows with equal values are on one side. Reads the column.
            of: Only of these rows.
        """
        if by is not None:
            if isinstance(dataset, int):
                raise TypeError(f"by={by!r}: give the dataset, whose column is read")
            return IdSet._of("split by", dataset, by, of, side, float(fraction), seed % 2**64)
        rows = dataset if isinstance(dataset, int) else len(dataset)
        found = IdSet._of("split", rows, side, float(fraction), seed % 2**64)
        return found if of is None else found & of

    def _set(self, recipe: tuple[Any, ...]) -> None:
        self._recipe = recipe
        self._handle = PerProcess(self._open)

    def _open(self) -> Handle:
        kind, *arguments = self._recipe

        def made(function: Any, *given: Any) -> Handle:
            return Handle(library.id_set_free, function, *given)

        if kind == "ids":
            rows, numbers = arguments
            return made(library.id_set_from_ids, rows, *numbers.values.buffer_info())
        if kind == "ranges":
            rows, numbers = arguments
            address, length = numbers.values.buffer_info()
            return made(library.id_set_from_ranges, rows, address, length // 2)
        if kind == "listed":
            index, path = arguments
            return made(library.id_set_listed, index._handle.get(), path_bytes(path))
        if kind == "split":
            rows, side, fraction, seed = arguments
            return made(library.id_set_split, rows, no_nul(side.encode(), "side"), fraction, seed)
        if kind == "split by":
            dataset, column, of, side, fraction, seed = arguments
            column, side = no_nul(column.encode(), "column name"), no_nul(side.encode(), "side")
            return made(library.id_set_split_by, dataset._pointer, column, None if of is None else of._pointer, side, fraction, seed)
        if kind == "complement":
            return made(library.id_set_complement, arguments[0]._pointer)
        return made(library.id_set_intersection, arguments[0]._pointer, arguments[1]._pointer)

    @property
    def _pointer(self) -> Handle:
        return self._handle.get()

    @property
    def rows(self) -> int:
        """Out of how many rows."""
        return int(library.id_set_rows(self._pointer))

    def __len__(self) -> int:
        return int(library.id_set_len(self._pointer))

    def __contains__(self, row: object) -> bool:
        number = operator.index(row)  # type: ignore[arg-type]
        return 0 <= number < 2**64 and bool(library.id_set_contains(self._pointer, number))

    def __iter__(self) -> Iterator[int]:
        first = 0
        while rows := self._ids(first, 4096):
            yield from rows
            first += len(rows)

    def _ids(self, first: int, most: int) -> array.array[int]:
        rows = array.array("Q", bytes(8 * most))
        filled = ctypes.c_size_t()
        call(library.id_set_fill, self._pointer, first, *rows.buffer_info(), ctypes.byref(filled))
        return rows[: filled.value]

    def ids(self) -> array.array[int]:
        """All of them, ascending. Shape ``(len(set),)``, uint64."""
        return self._ids(0, len(self))

    def __invert__(self) -> IdSet:
        return IdSet._of("complement", self)

    def __and__(self, other: IdSet) -> IdSet:
        return IdSet._of("intersection", self, other)

    def _portable(self) -> tuple[Any, ...]:
        """The recipe; of a set that files were read for, its row ids, so that no other process reads them again and finds something else."""
        if self._recipe[0] in ("listed", "split by"):
            self._recipe = ("ids", self.rows, Numbers("Q", self.ids()))
        return self._recipe

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdSet) and self._portable() == other._portable()

    def __hash__(self) -> int:
        return hash(self._portable())

    def __reduce__(self) -> Any:
        return _set_again, self._portable()

    def __repr__(self) -> str:
        return f"IdSet({len(self)} of {self.rows} rows)"


def _set_again(*recipe: Any) -> IdSet:
    """A set that is made when it is first asked for something: those that travel with every step mostly are not."""
    made = object.__new__(IdSet)
    made._set(recipe)
    return made


__all__ = [
    "Balanced", "Contiguous", "Explicit", "IdSet", "Mixed", "Orders", "Resized", "Rotated", "Subset", "Weighted",
]  # fmt: skip
