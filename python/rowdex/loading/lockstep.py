"""Batches of several datasets side by side, from loaders in lockstep."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

from .. import native
from ..batch import Batch
from ..errors import InternalError, ZipError
from ..native import values as _values
from ..native.imports import loaded
from ..schema import Schema, side_by_side
from .engine import LibraryLoader


class SideBySide(NamedTuple):
    """Datasets side by side."""

    parts: list[Any]
    """The datasets, with the columns that are read."""
    columns: list[tuple[str, int, int]]
    """What goes before the name of each column served, of which dataset it is, and its place there."""
    key: str | None
    """The column that must be equal in all of them."""

    def schema(self, each: Sequence[Any]) -> Schema:
        """The columns served of what has those of the datasets."""
        return side_by_side((prefix, each[part].schema, place) for prefix, part, place in self.columns)

    def check_keys(self, batches: Sequence[Batch]) -> None:
        """Refuses batches whose rows have different keys.

        Raises:
            ZipError: naming the first of these rows.
        """
        if self.key is None:
            return
        first, *others = [batch.to_pydict([self.key])[self.key] for batch in batches]
        for part, other in zip(self.parts[1:], others):
            if first == other:
                continue
            row, one, two = next(row for row in zip(batches[0].row_ids, first, other) if row[1] != row[2])
            here, there = self.parts[0]._location(row), part._location(row)
            raise ZipError(
                f"row id {row} has {self.key} {one!r} in {here.file}, row group {here.row_group}, row {here.row}, and "
                f"{two!r} in {there.file}, row group {there.row_group}, row {there.row}: the rows do not belong "
                "together; write one of the files again in the order of the other",
                file=here.file,
                row_group=here.row_group,
                column=self.key,
            )


class ZippedBatch(Batch):
    """The same rows of several batches, side by side."""

    __slots__ = ("_batches", "_beside")

    def __init__(self, batches: Sequence[Batch], schema: Schema, beside: SideBySide) -> None:
        super().__init__(batches[0]._handle, schema)
        self._batches, self._beside = batches, beside
        if len(set(map(_rows, batches))) > 1:
            raise InternalError("loaders of zipped datasets have served different rows")

    def sequences(self, **options: Any) -> dict[str, Any]:
        """Not there: zipped rows are in no packs."""
        raise TypeError("the rows of zipped datasets are in no packs: use pad= of the Loader for lists of tokens")

    def to_arrow(self) -> Any:
        """The rows as a ``pyarrow.RecordBatch``, without a copy."""
        arrow = loaded("pyarrow")
        parts = [arrow.record_batch(batch) for batch in self._batches]
        columns = [parts[part].column(place) for _, part, place in self._beside.columns]
        return arrow.RecordBatch.from_arrays(columns, schema=arrow.schema(self.schema))

    def _checked(self) -> Batch:
        self._beside.check_keys(self._batches)
        return self

    def _export(self) -> Any:
        if self._exported is None:
            self._checked()
            exports = [batch._export() for batch in self._batches]
            pointers = [exports[part].array.children[place] for _, part, place in self._beside.columns]
            children = (ctypes.POINTER(native.ArrowArray) * len(pointers))(*pointers)
            array = native.ArrowArray(length=self.num_rows, n_children=len(pointers), children=children)
            self._exported = SimpleNamespace(array=array, keeps=exports)
        return self._exported

    def __arrow_c_array__(self, requested_schema: object | None = None) -> Any:
        """``arrow_schema`` and ``arrow_array`` capsules, by way of pyarrow."""
        return self.to_arrow().__arrow_c_array__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> Any:
        """An ``arrow_array_stream`` capsule, of one array, by way of pyarrow."""
        return self.to_arrow().__arrow_c_stream__()


def _rows(batch: Batch) -> tuple[Any, ...]:
    """Which rows a batch has, of which step."""
    ids = bytes(_values.raw_at(batch._info.row_ids, 8 * batch.num_rows))
    return ids, batch.num_pads, batch.epoch, batch.step


def summed(each: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first of several reports, with the numbers of all added up."""
    names = [name for name, value in each[0].items() if isinstance(value, (int, float))]
    return {**each[0], **{name: sum(one[name] for one in each) for name in names}}


class Lockstep(LibraryLoader):
    """A loader for each of several datasets, which serve the same rows. The first has the state."""

    def __init__(self, loaders: Sequence[LibraryLoader], beside: SideBySide) -> None:
        super().__init__(loaders[0]._handle, beside.schema(loaders))
        self._loaders, self._beside = loaders, beside

    def told(self) -> dict[str, Any]:
        """What they did, added up."""
        return summed([loader.told() for loader in self._loaders])

    def begin_epoch(self, epoch: int | None) -> native.LoaderInfo:
        begun = self._loaders[0].begin_epoch(epoch)
        for loader in self._loaders[1:]:
            loader.begin_epoch(int(begun.epoch))
        return begun

    def seek(self, epoch: int, step: int) -> None:
        for loader in self._loaders:
            loader.seek(epoch, step)

    def resume(self, state: bytes) -> None:
        for loader in self._loaders:
            loader.resume(state)

    def peek(self, epoch: int, step: int, most: int) -> Batch | None:
        batches = [loader.peek(epoch, step, most) for loader in self._loaders]
        # Several steps come at once where they lie together in memory.
        rows = {len(batch) for batch in batches if batch is not None}
        if len(rows) > 1:
            batches = [loader.peek(epoch, step, min(rows)) for loader in self._loaders]
        return self._zipped(batches)

    def advance(self, epoch: int, step: int) -> None:
        # The first comes last: if this is interrupted, the batch was not handed out.
        for loader in reversed(self._loaders):
            loader.advance(epoch, step)

    def next(self) -> Batch | None:
        return self._zipped([loader.next() for loader in self._loaders])

    def _zipped(self, batches: list[Any]) -> Batch | None:
        return None if None in batches else ZippedBatch(batches, self.schema, self._beside)

    def reopened(self) -> LibraryLoader:
        return Lockstep([loader.reopened() for loader in self._loaders], self._beside)

    def close(self) -> None:
        for loader in self._loaders:
            loader.close()
