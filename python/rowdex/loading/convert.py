"""Batches that are converted where they are asked for, several at once, and what becomes of their columns."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Literal, NamedTuple

from ..batch import Batch
from ..native.arrays import Nulls, reader, split, to_torch
from ..native.imports import loaded
from .engine import LibraryLoader
from .functions import kept

Output = Literal["torch", "numpy", "arrow", "python"]

_ROWS = 8192
"""The most rows that are converted at once, unless a batch is larger: the cost is the same for many rows as for few."""


class Added(NamedTuple):
    """The names of columns that a loader adds to those of the dataset; ``None`` for those that it does not."""

    row_ids: str | None = None
    repeated: str | None = None

    def checked(self, columns: list[str], output: str) -> Added:
        """The same, if they can be added."""
        given = [name for name in self if name is not None]
        for name in given:
            if not isinstance(name, str):
                raise TypeError(f"row_ids and repeated are names of columns to add, and {name!r} is none")
            if name in columns or given.count(name) > 1:
                raise ValueError(f"there is a column called {name!r}: choose another name")
        if any(self) and output in ("arrow", "python"):
            raise ValueError(
                f"row_ids and repeated with output={output!r}: use 'torch' or 'numpy'; a Batch has row_ids and num_pads"
            )
        return self

    def columns(self, batch: Batch, pads: int) -> dict[str, Any]:
        """These columns of a batch, whose last ``pads`` rows are repeated."""
        np = loaded("numpy")

        found: dict[str, Any] = {}
        if self.row_ids is not None:
            found[self.row_ids] = np.array(batch.row_ids, dtype=np.int64)
        if self.repeated is not None:
            found[self.repeated] = np.arange(len(batch)) >= len(batch) - pads
        return found


class Convert:
    """Batches to what a loop wants. The readers of columns are made once."""

    def __init__(
        self,
        output: str,
        nulls: Nulls,
        strings: str,
        without: frozenset[str] = frozenset(),
        added: Added = Added(),
        sequences: dict[str, Any] | None = None,
    ) -> None:
        """The columns ``without`` are left out. Of packs, ``sequences`` says what is made of the tokens."""
        if output not in ("torch", "numpy", "arrow", "python"):
            raise ValueError(f"output={output!r}: use 'torch', 'numpy', 'arrow' or 'python'")
        self.output, self.nulls, self.strings, self.without = output, nulls, strings, without
        self.added, self.sequences = added, sequences
        self._readers: list[tuple[int, str, Any]] | None = None

    def __call__(self, batch: Batch, pads: int | None = None) -> Any:
        """The batch, of which the last ``pads`` rows are repeated, unless it knows the number itself."""
        if self.output == "arrow":
            return batch._checked()
        if self.output == "python":
            return batch.to_pydict()
        made = {} if self.sequences is None else batch.sequences(**self.sequences)
        if self._readers is None:
            without = self.without.union(made)
            fields = [(i, field) for i, field in enumerate(batch.schema.fields) if field.name not in without]
            self._readers = [(i, field.name, reader(field, self.nulls, self.strings)) for i, field in fields]
        found = {**made, **batch._read(self._readers)}
        if any(self.added):
            found.update(self.added.columns(batch, batch.num_pads if pads is None else pads))
        return to_torch(found) if self.output == "torch" else found

    def __reduce__(self) -> Any:
        return Convert, (self.output, self.nulls, self.strings, self.without, self.added, self.sequences)

    def stand_in(self, lost: dict[str, Any], row: Batch) -> dict[str, Any]:
        """The columns of a row that is served in the place of another one."""
        # Not the readers of the loader, which are of its schema.
        found = Convert(self.output, self.nulls, self.strings, self.without)(row)
        assert isinstance(found, dict)
        added = self.added
        if added.row_ids is not None:
            found[added.row_ids] = lost[added.row_ids] * 0 + row.row_ids[0]
        if added.repeated is not None:
            found[added.repeated] = lost[added.repeated]
        return {name: found[name] for name in lost}


class Plain:
    """The batches of a loader without functions. An error comes at the step of its batch.

    ``size`` is how many rows a batch has, ``None`` for packs. ``one_by_one`` converts each batch by itself. ``failed``
    takes errors.
    """

    def __init__(self, size: int | None, one_by_one: bool, failed: list[Exception]) -> None:
        self._size, self._most, self._failed = size, 1 if one_by_one else _ROWS, failed

    def epoch(
        self, loader: LibraryLoader, epoch: int, step: int, make: Callable[[Batch], Any], finish: Callable[[Any], Any]
    ) -> Generator[tuple[Any, int], None, None]:
        """What ``finish`` makes of what ``make`` gives for the batches of an epoch from a step on, and how many rows
        each has.
        """
        most = self._most
        while (batch := loader.peek(epoch, step, most)) is not None:
            rows = len(batch)
            size = rows if self._size is None else self._size
            try:
                found = make(batch)
            except Exception as error:
                if rows > size:
                    # One of several steps has it. They come one by one now, and the error at its own.
                    most = 1
                    continue
                self._failed.append(kept(error))
                raise
            for part in split(found, size, rows) if rows > size else (found,):
                try:
                    part = finish(part)
                except Exception as error:
                    self._failed.append(kept(error))
                    raise
                loader.advance(epoch, step)
                step += 1
                yield part, min(rows, size)
                rows -= size
