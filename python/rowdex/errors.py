"""What can go wrong. Every exception is an :class:`Error` and one of Python's own, so both kinds of ``except`` work."""

from __future__ import annotations

from typing import Any

from .native import Status


class Error(Exception):
    """What went wrong, where, and what to do about it.

    Attributes:
        file: The file that it happened in, if known.
        row_group: The row group, by its place in the file, if known.
        column: The column, by its dotted path, if known.
        hint: What to do about it, if known. It is a part of the message, too.
    """

    def __init__(
        self,
        message: str = "",
        *,
        file: str | None = None,
        row_group: int | None = None,
        column: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.row_group = row_group
        self.column = column
        self.hint = hint


class IoError(Error, OSError):
    """The operating system or the store failed a read, a write or a request."""


class NotFoundError(IoError, FileNotFoundError):
    """A file that should be there is not."""


class AlreadyExistsError(IoError, FileExistsError):
    """A file is there already, and the call does not replace it."""


class FormatError(Error, ValueError):
    """An index or a Parquet file is damaged, or needs something that this version cannot read."""


class SchemaError(Error, ValueError):
    """Two files do not have the same columns, or a column cannot be brought to the asked type."""


class StaleError(Error, OSError):
    """A file is not the one that was indexed, or an index not the one that was opened."""


class OutOfRangeError(Error, IndexError):
    """A row id, row group, position or step beyond the end."""


class ArgumentError(Error, ValueError):
    """An argument that can never be right, such as a batch size of 0."""


class TooLargeError(Error, MemoryError):
    """Decoding would take more memory than the limit allows."""


class StateError(Error, ValueError):
    """A saved state belongs to another order, number of rows or seed."""


class ClosedError(Error, ValueError, RuntimeError):
    """The object was closed before, or meanwhile by another thread."""


class TransformError(Error, RuntimeError):
    """A function that a loader was given failed. Its own exception is the ``__cause__``.

    Attributes:
        row_ids: The rows that it failed for; all of the batch, if it is a function of batches.
        epoch, step: Where the batch is in the run.
    """

    def __init__(self, message: str = "", *, row_ids: list[int] | None = None, **known: Any) -> None:
        super().__init__(message, **known)
        self.row_ids = row_ids or []
        self.epoch = self.step = 0


class ZipError(Error, ValueError):
    """The rows of zipped datasets do not belong together: they have different keys. It names file and row group of the
    first dataset; the message names those of both, the row id and the keys.
    """


class InternalError(Error, RuntimeError):
    """A defect of rowdex; please report it."""


BY_STATUS: dict[int, type[Error]] = {
    Status.IO: IoError,
    Status.NOT_FOUND: NotFoundError,
    Status.ALREADY_EXISTS: AlreadyExistsError,
    Status.INVALID_INDEX: FormatError,
    Status.UNSUPPORTED_INDEX: FormatError,
    Status.INVALID_PARQUET: FormatError,
    Status.UNSUPPORTED_PARQUET: FormatError,
    Status.SCHEMA: SchemaError,
    Status.STALE: StaleError,
    Status.OUT_OF_RANGE: OutOfRangeError,
    Status.INVALID_ARGUMENT: ArgumentError,
    Status.TOO_LARGE: TooLargeError,
    Status.STATE_MISMATCH: StateError,
    Status.INTERNAL: InternalError,
    Status.CLOSED: ClosedError,
}
