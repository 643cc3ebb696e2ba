"""Sets of row ids."""

from __future__ import annotations

import array
import ctypes
import operator
import uuid
from collections.abc import Iterable, Iterator, Sized
from typing import Any, Literal

from .dataset import Dataset
from .index import Index, Path
from .native.capsule import stream_of
from .native.library import (
    Handle,
    Operands,
    PerProcess,
    RowSet,
    call,
    library,
    local_list,
    optional_set,
    seed_number,
    told_of,
    waiting,
    whole,
)
from .native.numbers import Numbers

Side = Literal["train", "validation"]


class IdSet(RowSet):
    """A set of row ids, out of the rows of a dataset: for :class:`Subset`, and for reading columns of some rows.

    ``len(set)`` is how many there are, ``row in set`` whether a row is one of them; iterating gives them in order.
    ``~set`` has the other rows, ``a & b`` those of both, ``a | b`` those of either. At most 1.0625 bits for each row of
    the dataset.
    """

    def __init__(self, rows: int, ids: Any) -> None:
        """These row ids, out of ``rows`` rows, in any order; repeats count once."""
        self._set((("rows", _row_count(rows)), ("row_ids", Numbers("Q", ids))))
        self._handle.get()

    @staticmethod
    def _of(**recipe: Any) -> IdSet:
        made = _set_again(*recipe.items())
        made._handle.get()
        return made

    @staticmethod
    def ranges(rows: int, ranges: Iterable[tuple[int, int]]) -> IdSet:
        """The row ids of ranges ``(start, end)``, out of ``rows`` rows; they may come in any order, overlap and be
        empty.
        """
        bounds = Numbers("Q", [bound for start, end in ranges for bound in (start, end)])
        return IdSet._of(rows=_row_count(rows), ranges=bounds)

    @staticmethod
    def listed(index: Index | Dataset, rows: Path | Any) -> IdSet:
        """The rows of an index that a file of this machine or an Arrow stream lists.

        Parquet, Arrow, and any object with ``__arrow_c_stream__`` have a column ``row_id``, or ``file`` and
        ``row_in_file``, as :func:`rowdex.select` takes them; a text has a row id on each line. Of a
        stream, the row ids are kept in memory: 8 bytes each.
        """
        index = index if isinstance(index, Index) else index.index
        if not hasattr(rows, "__arrow_c_stream__"):
            return IdSet._of(indexes=(index,), list=local_list(rows))
        return IdSet(len(index), listed(index._handle.get(), rows)[0].ids())

    @staticmethod
    def view(index: Index | Dataset, view: Index | Path) -> IdSet:
        """The rows of an index that a view of the same files serves, too."""
        view = view if isinstance(view, Index) else Index(view)
        return IdSet._of(indexes=(index if isinstance(index, Index) else index.index, view), view=1)

    @staticmethod
    def split(
        dataset: Dataset | int,
        side: Side,
        *,
        validation_fraction: float = 0.1,
        seed: int = 0,
        by: str | None = None,
        of: IdSet | None = None,
    ) -> IdSet:
        """One side of a split into training and validation rows by a hash. A row keeps its side when files are
        appended.

        Args:
            dataset: Whose rows; or how many there are.
            side: ``"train"`` or ``"validation"``.
            validation_fraction: The part that is for validation, as by a coin toss for each row.
            seed: Another seed is another split. That of a sampler has nothing to do with it.
            by: Splits by the values of this column, instead of by row id: rows with equal values are on one side. Reads
                the column.
            of: Only of these rows.
        """
        split = (("side", side), ("validation_fraction", float(validation_fraction)), ("seed", seed_number(seed)))
        if by is not None:
            if not isinstance(dataset, Dataset):
                raise TypeError(f"by={by!r}: give the dataset, whose column is read")
            return IdSet._of(dataset=dataset, split=(*split, ("by", by)), of=optional_set(of))
        rows = len(dataset) if isinstance(dataset, Sized) else _row_count(dataset)
        found = IdSet._of(rows=rows, split=split)
        return found if of is None else found & of

    @staticmethod
    def where(dataset: Dataset | Index, condition: str, *, of: IdSet | None = None) -> IdSet:
        """The rows that meet a condition in SQL: ``"lang = 'en' and length(text) > 200"``. Null is not true.

        The columns that it needs are read once, on the dataset's threads, where the footers do not decide; they need
        not be among those served. A process that gets the set reads them once more when it first uses the set.
        ``docs/select.md`` has all that a condition may say.

        Args:
            dataset: Whose rows; an index will do, whose files are where it says.
            condition: What follows ``where`` in SQL.
            of: Only of these rows.

        Raises:
            ArgumentError: What is wrong with the condition, before anything is read.
        """
        read_of = Dataset(dataset, []) if isinstance(dataset, Index) else dataset
        return IdSet._of(dataset=read_of, where=condition, of=optional_set(of), name=uuid.uuid4().hex)

    def _set(self, recipe: tuple[Any, ...]) -> None:
        self._recipe = recipe
        self._handle = PerProcess(self._open)

    def _open(self) -> Handle:
        fields = dict(self._recipe)
        dataset, indexes = fields.pop("dataset", None), fields.pop("indexes", ())
        fields.pop("name", None)
        if "split" in fields:
            fields["split"] = dict(fields["split"])
        pointer = None if dataset is None else dataset._pointer
        operands = Operands((index._handle.get() for index in indexes), dataset=pointer)
        return waiting(dataset is not None and dataset._remote, lambda: operands.make(library.id_set_new, fields))

    @property
    def _pointer(self) -> Handle:
        return self._handle.get()

    @property
    def rows(self) -> int:
        """Out of how many rows."""
        return int(told_of(self._pointer)["rows"])

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
        return IdSet._of(set=self, complement=True)

    def __and__(self, other: IdSet) -> IdSet:
        if not isinstance(other, IdSet):
            return NotImplemented
        return IdSet._of(set=self, of=other)

    def __or__(self, other: IdSet) -> IdSet:
        if not isinstance(other, IdSet):
            return NotImplemented
        return IdSet._of(set=self, union=other)

    def _portable(self) -> tuple[Any, ...]:
        """The recipe; of a set that files were read for, its row ids, so that no other process reads them again and
        finds something else.
        """
        names = {name for name, _ in self._recipe}
        if "where" not in names and {"indexes", "dataset"} & names:
            self._recipe = (("rows", self.rows), ("row_ids", Numbers("Q", self.ids())))
        return self._recipe

    def _key(self) -> tuple[Any, ...]:
        """What distinguishes it from other sets. A set by a condition stays equal to itself wherever it is sent: a
        process reads the rows of the condition once, however often the set comes.
        """
        recipe = self._portable()
        return recipe[-1:] if recipe[-1][0] == "name" else recipe

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdSet) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __reduce__(self) -> Any:
        return _set_again, self._portable()

    def __repr__(self) -> str:
        return f"IdSet({len(self)} of {self.rows} rows)"


def _row_count(rows: Any) -> int:
    """Of how many rows a set is, which no order can have more of."""
    count = whole(rows, "rows")
    if not 0 <= count < 2**63:
        raise ValueError(f"rows is {count}: use a number from 0 to below 2^63")
    return count


def _set_again(*recipe: Any) -> IdSet:
    """A set that is made when it is first asked for something: those that travel with every step mostly are not."""
    made = object.__new__(IdSet)
    made._set(recipe)
    return made


def listed(index: Handle, stream: Any) -> tuple[IdSet, tuple[int, int]]:
    """The rows that an Arrow stream lists, how often any of them came again, and how many are not served."""
    owner, struct = stream_of(stream)
    found = Operands([index], stream=ctypes.pointer(struct)).make(library.id_set_new, {"stream": True})
    del owner
    made, info = object.__new__(IdSet), told_of(found)
    made._handle = PerProcess(lambda: found)
    return made, (info["repeated"], info["unserved"])
