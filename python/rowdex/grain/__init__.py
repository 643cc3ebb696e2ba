"""What Grain takes: rows by their id, rows by their place in a shuffle, and batches.

- :class:`Source` is a ``grain.sources.RandomAccessDataSource`` of rows by row id.
- :class:`Ordered` is a ``grain.MapDataset`` of rows in rowdex's order: reads that go forward are served at about the
  speed of a scan. It is shuffled, and refuses to be shuffled again.
- :class:`IterDataset` is a ``grain.IterDataset`` of the batches of a :class:`rowdex.Loader`.

Rows are dicts of numpy arrays and Python values, so Grain batches a list of a fixed size as one array. Lists of other
sizes need ``pad={"tokens": 128}``, because Grain batches arrays of one shape only. With ``nulls="mask"`` a value of a
row is a dict of ``values`` and ``valid``.
"""

from __future__ import annotations

from .batches import IterDataset
from .packs import maxtext, segments
from .shuffled import Ordered, Source

__all__ = ["IterDataset", "Ordered", "Source", "maxtext", "segments"]
