"""What a loader tells of: what it will do, and what it could not read."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import Error, TransformError


class LostGroup(NamedTuple):
    """A row group that a loader could not read."""

    row_group: int
    """Its number, counted over the whole index."""
    error: Error
    """Why it could not be read; names file, row group and column where they are known."""


class LostRow(NamedTuple):
    """A row of which a loader could not decode a value."""

    row_id: int
    """Its row id."""
    error: TransformError
    """Why; names file, row group and column."""


class Prediction(NamedTuple):
    """What a loader will do."""

    first_passes: float
    """Decodes of each row group in the first epoch, on average."""
    passes: float
    """Decodes of each row group in every later epoch, on average."""
    decodes: float
    """Row groups decoded in every later epoch."""
    first_batch_decodes: int
    """Row groups decoded before the first batch is there."""
    peak_bytes: int
    """The most bytes held."""
    first_decodes: float
    """Row groups decoded in the first epoch."""
    first_bytes_read: int
    """Bytes read in the first epoch."""
    bytes_read: int
    """Bytes read in every later epoch."""
    first_requests: int
    """Requests to a store in the first epoch; 0 for local files."""
    requests: int
    """Requests to a store in every later epoch."""
    units: int
    """Units that row groups are read, decoded and held in: one for each, or for several small ones of a file."""
    bookkeeping_bytes: int
    """How many of ``peak_bytes`` are not rows: what is known of row groups, and of rows that are looked ahead at."""
    least_memory: int
    """The least ``memory`` that a loader takes."""
