"""Orders that are more than a name, for ``DistributedSampler(order=...)`` and everything that takes its arguments.

The names ``"global"``, ``"sequential"``, ``"torch"`` and ``"blocks(8)"`` are orders, too, wherever one is asked for.
Orders are made of each other::

    from rowdex.order import IdSet, Resized, Subset

    train = IdSet.split(dataset, "train", fraction=0.1)
    loader = rowdex.Loader(dataset, batch_size=256, seed=42, order=Resized(Subset("global", train), size=1_000_000))

The seed of the sampler is that of all its orders. Orders are pickled, and equal if they serve the same rows; long lists
travel to other processes of the machine in a temporary file. ``docs/orders.md`` says exactly what each serves.
"""

from __future__ import annotations

import array
import ctypes
import operator
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Union

from . import native
from ._library import Handle, PerProcess, call, library, no_nul, optional_set, path_bytes, text_bytes, waiting
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


class Options:
    """A ``rowdex_order_options``, and all that it points to."""

    def __init__(self, **fields: Any) -> None:
        self.struct = native.OrderOptions(**fields)
        self._kept: list[Any] = []

    def array(self, field: str, count: str, values: array.array[Any]) -> Options:
        """Points to numbers. A list without any is a list, too."""
        address, length = values.buffer_info()
        return self.point(field, address if length else ctypes.addressof(_NOTHING), values, count, length)

    def point(self, field: str, pointer: Any, owner: Any, count: str | None = None, length: int = 0) -> Options:
        """Points to what the owner has, which therefore must live as long."""
        setattr(self.struct, field, pointer)
        if count is not None:
            setattr(self.struct, count, length)
        self._kept.append(owner)
        return self

    def inside(self, options: Options) -> Options:
        """Takes another order in the place of a name."""
        return self.point("inner", ctypes.pointer(options.struct), options)

    def over(self, context: Context) -> Options:
        """Says of which rows these orders are."""
        self.struct.seed = context.seed
        parts = () if context.dataset is None else context.dataset._parts
        if not parts:
            return self.array("group_rows", "num_groups", array.array("Q", [context.rows]))
        handles = [part.index._handle.get() for part in parts]
        pointers = (ctypes.c_void_p * len(handles))(*(handle.address for handle in handles))
        return self.point("indexes", pointers, handles, "num_indexes", len(handles))


_NOTHING = (ctypes.c_uint64 * 1)()
_NO_RANGES = (native.Range * 1)()


def new_set(listed: Any = None, **fields: Any) -> Handle:
    """A ``rowdex_id_set`` as the fields of its options describe it; ``listed`` is told of a list."""
    # The handles are in ``fields`` until the set is made.
    given = {name: value.address if isinstance(value, Handle) else value for name, value in fields.items()}
    options = native.IdSetOptions(**given)
    return Handle(library.id_set_free, library.id_set_new, ctypes.byref(options), listed)


class Orders:
    """Which row comes at which position, in every epoch."""

    _parts: tuple[Any, ...]

    def _options(self) -> Options:
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
    """A ``rowdex_order`` handle."""
    options = _options(order).over(context)
    return Handle(library.order_free, library.order_new, ctypes.byref(options.struct))


def _options(order: Order) -> Options:
    if isinstance(order, Orders):
        return order._options()
    return Options(order=no_nul(order.encode(), "order"))


def _checked(order: Order) -> Order:
    if not isinstance(order, (str, Orders)):
        raise TypeError(f"order={order!r}: use a name such as 'global', or one of rowdex.order")
    return order


def _size(size: int | None) -> int | None:
    if size is not None and not 0 < size < 2**63:
        raise ValueError(f"size is {size}: use 1 or more")
    return size


class Explicit(Orders):
    """A list of row ids, in this order in every epoch: what another program decided. Rows may repeat and be left out.

    Args:
        ids: Row ids: a sequence of integers, or an array of one dimension.
        file: Instead of these, a file of them as little-endian 64-bit integers,
            ``numpy.asarray(ids, "<u8").tofile(path)``. A file of more than 64 MiB is mapped, so that all processes of
            a machine share it; a smaller one is read.
        permutation: Refuses what has not every row of the dataset exactly once.
    """

    def __init__(self, ids: Any = None, *, file: Path | None = None, permutation: bool = False) -> None:
        if (ids is None) == (file is None):
            raise ValueError("give either ids or a file")
        self._parts = (
            None if ids is None else Numbers("Q", ids),
            None if file is None else os.path.abspath(file),
            permutation,
        )

    def _options(self) -> Options:
        ids, file, permutation = self._parts
        if ids is not None and ids._values is None and sys.byteorder == "little":
            # From another process: share its file.
            file = ids._path
        if file is not None:
            return Options(order_file=path_bytes(file), permutation=permutation)
        return Options(permutation=permutation).array("row_ids", "num_row_ids", ids.values)


class Weighted(Orders):
    """Rows drawn by weight.

    Args:
        weights: For each row a number that is finite and not negative, such as :meth:`Dataset.weights` reads.
        size: How many positions an epoch has. Default: as many as there are rows; without replacement, as have a weight
            above 0.
        replacement: Whether a row may be drawn again in an epoch.
    """

    def __init__(self, weights: Any, size: int | None = None, *, replacement: bool = True) -> None:
        self._parts = (Numbers("d", weights), _size(size), replacement)

    def _options(self) -> Options:
        weights, size, replacement = self._parts
        return Options(size=size or 0, without_replacement=not replacement).array(
            "weights", "num_weights", weights.values
        )


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
        from .dataset import Labels

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
        codes = labels.codes if isinstance(labels, Labels) else labels
        self._parts = (
            Numbers("I", codes),
            _size(size),
            None if proportions is None else tuple(map(float, proportions)),
        )

    def _options(self) -> Options:
        labels, size, proportions = self._parts
        options = Options(size=size or 0).array("labels", "num_labels", labels.values)
        if proportions is not None:
            options.array("proportions", "num_proportions", array.array("d", proportions))
        return options


class Mixed(Orders):
    """Several datasets by exact proportion: for a :class:`rowdex.MixedDataset`, whose row ids it serves.

    Args:
        proportions: For each dataset how often it comes, which counts against the others.
        size: How many positions an epoch has. Default: as many as there are rows in all.
        orders: The order of each dataset's rows, or one for all. The order of dataset ``i``, from 0 on, has the seed of
            the sampler plus ``i + 1``.
    """

    def __init__(
        self, proportions: Sequence[float], size: int | None = None, *, orders: Order | Sequence[Order] = "global"
    ) -> None:
        each = [orders] * len(proportions) if isinstance(orders, (str, Orders)) else list(orders)
        if len(each) != len(proportions):
            raise ValueError(f"{len(proportions)} proportions and {len(each)} orders")
        self._parts = (tuple(map(float, proportions)), _size(size), tuple(map(_checked, each)))

    def _options(self) -> Options:
        proportions, size, orders = self._parts
        parts = [_options(order) for order in orders]
        pointers = (ctypes.POINTER(native.OrderOptions) * max(1, len(parts)))(
            *(ctypes.pointer(part.struct) for part in parts)
        )
        options = Options(size=size or 0).array("proportions", "num_proportions", array.array("d", proportions))
        return options.point("parts", pointers, parts, "num_parts", len(parts))


class Resized(Orders):
    """Another order, in epochs of ``size`` positions: a pass over the rows goes on where the epoch before ended."""

    def __init__(self, order: Order, size: int) -> None:
        self._parts = (_checked(order), _size(size))

    def _options(self) -> Options:
        order, size = self._parts
        return Options(size=size).inside(_options(order))


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
        self._parts = (_checked(order), kept)

    def _options(self) -> Options:
        order, kept = self._parts
        options = _options(order) if isinstance(order, str) else Options().inside(_options(order))
        handle = kept._pointer
        return options.point("kept", handle.address, handle)


class Contiguous(Orders):
    """Another order, of which each of so many shards is dealt one consecutive piece: what ``partition="contiguous"``
    does for the shards there are.
    """

    def __init__(self, order: Order, shards: int) -> None:
        if not 1 <= shards < 2**32:
            raise ValueError(f"shards is {shards}: use 1 or more")
        self._parts = (_checked(order), shards)

    def _options(self) -> Options:
        order, shards = self._parts
        return Options(shards=shards).inside(_options(order))


class Rotated(Orders):
    """Another order, beginning elsewhere each epoch. ``rotation`` of a sampler does this where it is needed."""

    def __init__(self, order: Order) -> None:
        self._parts = (_checked(order),)

    def _options(self) -> Options:
        return Options(rotated=1).inside(_options(self._parts[0]))


class IdSet:
    """A set of row ids, out of the rows of a dataset: for :class:`Subset`, and for reading columns of some rows.

    ``len(set)`` is how many there are, ``row in set`` whether a row is one of them; iterating gives them in order.
    ``~set`` has the other rows, ``a & b`` those of both, ``a | b`` those of either. At most 1.0625 bits for each row of
    the dataset.
    """

    _is_id_set = True

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
        """The row ids of ranges ``(start, end)``, out of ``rows`` rows; they may come in any order, overlap and be
        empty.
        """
        return IdSet._of("ranges", rows, Numbers("Q", [bound for start, end in ranges for bound in (start, end)]))

    @staticmethod
    def listed(index: Index | Dataset, rows: Path | Any) -> IdSet:
        """The rows of an index that a file or an Arrow stream lists.

        Text has a row id, a range like ``10..20`` or a place like ``a.parquet:2`` on each line. CSV, Parquet, and any
        object with ``__arrow_c_stream__`` have a column ``row_id``, or columns of files and rows as
        :func:`rowdex.select` takes them. Of a stream, the row ids are kept in memory: 8 bytes each.
        """
        index = index if isinstance(index, Index) else index.index
        if not hasattr(rows, "__arrow_c_stream__"):
            return IdSet._of("listed", index, os.path.abspath(rows))
        from .views import listed

        found, _ = listed(index._handle.get(), rows)
        made = object.__new__(IdSet)
        made._handle = PerProcess(lambda: found)
        return IdSet(len(index), made.ids())

    @staticmethod
    def view(index: Index | Dataset, view: Index | Path) -> IdSet:
        """The rows of an index that a view of the same files serves, too."""
        view = view if isinstance(view, Index) else Index(view)
        return IdSet._of("view", index if isinstance(index, Index) else index.index, view)

    @staticmethod
    def split(
        dataset: Dataset | int,
        side: Side,
        *,
        fraction: float = 0.1,
        seed: int = 0,
        by: str | None = None,
        of: IdSet | None = None,
    ) -> IdSet:
        """One side of a split into training and validation rows by a hash. A row keeps its side when files are
        appended.

        Args:
            dataset: Whose rows; or how many there are.
            side: ``"train"`` or ``"validation"``.
            fraction: The part that is for validation: of as many coin tosses.
            seed: Another seed is another split. That of a sampler has nothing to do with it.
            by: Splits by the values of this column, instead of by row id: rows with equal values are on one side. Reads
                the column.
            of: Only of these rows.
        """
        if by is not None:
            if isinstance(dataset, int):
                raise TypeError(f"by={by!r}: give the dataset, whose column is read")
            return IdSet._of("split by", dataset, by, of, side, float(fraction), seed % 2**64)
        rows = dataset if isinstance(dataset, int) else len(dataset)
        found = IdSet._of("split", rows, side, float(fraction), seed % 2**64)
        return found if of is None else found & of

    @staticmethod
    def where(dataset: Dataset | Index, condition: str, *, of: IdSet | None = None) -> IdSet:
        """The rows that meet a condition in SQL: ``"lang = 'en' and length(text) > 200"``. Null is not true.

        The columns that it needs are read once, on the dataset's threads, where the footers do not decide; they need
        not be among those served. A process that the set is sent to reads them again when it first asks the set for
        something. ``docs/select.md`` has all that a condition may say.

        Args:
            dataset: Whose rows; an index will do, whose files are where it says.
            condition: What follows ``where`` in SQL.
            of: Only of these rows.

        Raises:
            ArgumentError: What is wrong with the condition, before anything is read.
        """
        return IdSet._of("where", _readable(dataset), condition, of)

    def _set(self, recipe: tuple[Any, ...]) -> None:
        self._recipe = recipe
        self._handle = PerProcess(self._open)

    def _open(self) -> Handle:
        kind, *arguments = self._recipe

        def made(**fields: Any) -> Handle:
            # Of the datasets that some are read of.
            remote = any(getattr(argument, "_remote", False) for argument in arguments)
            return waiting(remote, lambda: new_set(**fields))

        if kind == "ids":
            rows, numbers = arguments
            address, length = numbers.values.buffer_info()
            # Without any it is a list, too.
            address = address if length else ctypes.addressof(_NOTHING)
            return made(rows=rows, ids=address, num_ids=length)
        if kind == "ranges":
            rows, numbers = arguments
            ranges = (native.Range * (len(numbers.values) // 2)).from_buffer(numbers.values)
            return made(rows=rows, ranges=ranges or _NO_RANGES, num_ranges=len(ranges))
        if kind == "listed":
            index, path = arguments
            return made(index=index._handle.get(), list_file=path_bytes(path))
        if kind == "split":
            rows, side, fraction, seed = arguments
            return made(rows=rows, split_side=text_bytes(side, "side"), split_fraction=fraction, split_seed=seed)
        if kind == "split by":
            dataset, column, of, side, fraction, seed = arguments
            return made(
                dataset=dataset._pointer, split_by=text_bytes(column, "column name"), of=optional_set(of),
                split_side=text_bytes(side, "side"), split_fraction=fraction, split_seed=seed,
            )  # fmt: skip
        if kind == "where":
            dataset, condition, of = arguments
            return made(dataset=dataset._pointer, filter=text_bytes(condition, "condition"), of=optional_set(of))
        if kind == "view":
            index, view = arguments
            return made(index=index._handle.get(), view=view._handle.get())
        if kind == "union":
            return made(set=arguments[0]._pointer, or_set=arguments[1]._pointer)
        if kind == "complement":
            return made(set=arguments[0]._pointer, complement=1)
        return made(set=arguments[0]._pointer, of=arguments[1]._pointer)

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
        if not isinstance(other, IdSet):
            return NotImplemented
        return IdSet._of("intersection", self, other)

    def __or__(self, other: IdSet) -> IdSet:
        if not isinstance(other, IdSet):
            return NotImplemented
        return IdSet._of("union", self, other)

    def _portable(self) -> tuple[Any, ...]:
        """The recipe; of a set that files were read for, its row ids, so that no other process reads them again and
        finds something else.
        """
        if self._recipe[0] in ("listed", "split by", "view"):
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


def _readable(dataset: Dataset | Index) -> Dataset:
    from .dataset import Dataset

    return Dataset(dataset) if isinstance(dataset, Index) else dataset


def _set_again(*recipe: Any) -> IdSet:
    """A set that is made when it is first asked for something: those that travel with every step mostly are not."""
    made = object.__new__(IdSet)
    made._set(recipe)
    return made


__all__ = [
    "Balanced", "Contiguous", "Explicit", "IdSet", "Mixed", "Orders", "Resized", "Rotated", "Subset", "Weighted",
]  # fmt: skip
