"""What a loader reports: what it will do, what would help it, and what it could not read."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..errors import Error, TransformError
from ..order import plan_of
from ..sampler import DistributedSampler


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


class PackForecast(NamedTuple):
    """What an epoch of packs has, over all ranks."""

    steps: int
    """Steps of every rank."""
    packs: int
    """Packs that all ranks are served, those that come twice and opened ones included."""
    opened: int
    """Packs that were made by opening others, so that steps are equal."""
    pieces: int
    """Pieces of rows, each counted once."""
    pieces_a_pack: float
    """How many a pack has, on average."""
    fill: float
    """The part of all places that has tokens, the ``extra`` ones included. Of buckets, in batches that are padded to
    their longest row, of the steps that were looked at."""
    tokens: int
    """Tokens that all ranks are served, those that come twice counted twice."""
    tokens_truncated: int
    """Tokens that are cut off rows that are too long."""
    tokens_dropped: int
    """Tokens of rows that are left out because they are too long."""
    tokens_left_out: int
    """Tokens that the tail leaves out."""
    tokens_repeated: int
    """Tokens that the tail serves twice."""
    rows_split: int
    """Rows that are several pieces."""
    rows_truncated: int
    """Rows that are cut short."""
    rows_dropped: int
    """Rows that are left out because they are too long."""
    rows_empty: int
    """Rows without tokens, served or not."""
    cost_imbalance: float
    """What the rank with the most work has at a step, by the ``cost`` of the packs or that of a model of 7 billion
    parameters, as a multiple of the mean: on average over the steps that were looked at."""
    steps_looked_at: int
    """Steps that were looked at: 64 or a few more, evenly spread, or all."""
    seconds_to_plan: float
    """How long planning the epoch took: hardly any time where this process, or the user's cache folder, had its
    plan."""


class Estimate(NamedTuple):
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
    packs: PackForecast | None
    """What its packs have, in the loader's current epoch; ``None`` where rows are served."""
    ends: dict[str, int]
    """Of a mixture with stages, the datasets that end, and before which position they have served all they may."""


def estimated(dataset: Any, sampler: DistributedSampler, options: dict[str, Any], epoch: int) -> Estimate:
    """What a loader with these options will do, and what the packs of an epoch come to."""
    found = dataset._estimated(sampler._at(epoch), options)
    packs = found.pop("packs")
    plan = plan_of(sampler.spec.order)
    ends = {}
    if plan is not None:
        ends = {plan.sources[source]: position for source, position in sampler._info(epoch)["ends"]}
    return Estimate(**found, packs=None if packs is None else PackForecast(**packs), ends=ends)
