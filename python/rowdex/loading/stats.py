"""What a loader did, as a flat dict, and how long the loop over it waited."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator
from typing import Any


COUNTS = ("decodes", "rows", "held_bytes", "peak_bytes", "substituted", "drift", "window_bytes")
TIMES = ("planning", "decoding", "extracting", "assembling")
_WINDOW_SECONDS = 10.0
_MARK_SECONDS = 0.5


class LoaderStats(dict[str, float]):
    """What a loader did since it was started, resumed or set to another epoch, as a dict of numbers for loggers, whose
    keys are attributes, too: ``loader.stats.rows`` is ``loader.stats["rows"]``. Times are in seconds.

    ::

        wandb.log({f"data/{name}": value for name, value in loader.stats.items()})
    """

    decodes: int
    """Row groups decoded, whole or in part."""
    rows: int
    """Rows put into batches; some of them may wait to be asked for."""
    held_bytes: int
    """Bytes held now."""
    peak_bytes: int
    """The most that was ever held."""
    planning: float
    """Walking the order and deciding what to read, added up over its threads."""
    decoding: float
    """Reading and decoding, likewise."""
    extracting: float
    """Picking rows out of what was decoded, likewise."""
    assembling: float
    """Putting batches together, likewise."""
    substituted: int
    """Rows that stand in for others that could not be read."""
    drift: int
    """How many steps the rank that is farthest is ahead of the one that is last, if ranks share a reader. All of the
    above are then the reader's."""
    window_bytes: int
    """Bytes of batches that were sent to ranks and not taken yet, if ranks share a reader."""
    passes: float
    """Decodes of each row group, on average."""
    served_rows: int
    """Rows handed out since the loader was made."""
    served_batches: int
    """Batches handed out since then."""
    waited: float
    """How long the loop over the loader waited for batches since then."""
    rows_per_second: float
    """Rows handed out in a second of the last ten seconds of the loop. Pauses between iterations do not count."""
    wait_share: float
    """The part of these ten seconds that the loop waited for batches: 0.0 if they were always ready."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"LoaderStats has no {name!r}; there are {', '.join(self)}") from None


class Meter:
    """Counts what is handed out, and how long a loop waits for it. One loop at a time is measured."""

    def __init__(self) -> None:
        self.rows = self.batches = 0
        self.waited = self._worked = 0.0
        # What was counted at some moments of the last seconds, the newest last.
        self._marks: deque[tuple[float, float, int]] = deque([(0.0, 0.0, 0)])

    def counted(self, batches: Generator[tuple[Any, int], None, None]) -> Iterator[Any]:
        """The same batches, of pairs of a batch and its number of rows."""
        clock = time.perf_counter
        try:
            handed = None
            while True:
                begun = clock()
                if handed is not None:
                    self._worked += begun - handed
                found = next(batches, None)
                handed = clock()
                self.waited += handed - begun
                if found is None:
                    return
                batch, rows = found
                del found
                self.rows += rows
                self.batches += 1
                self._mark()
                yield batch
                del batch
        finally:
            batches.close()

    def _mark(self) -> None:
        now, marks = self.waited + self._worked, self._marks
        if now - marks[-1][0] >= _MARK_SECONDS:
            marks.append((now, self.waited, self.rows))
            while len(marks) > 2 and now - marks[1][0] >= _WINDOW_SECONDS:
                marks.popleft()

    def numbers(self) -> dict[str, float]:
        """What there is to log."""
        began, waited, rows = self._marks[0]
        seconds = self.waited + self._worked - began
        return {
            "served_rows": self.rows,
            "served_batches": self.batches,
            "waited": self.waited,
            "rows_per_second": (self.rows - rows) / seconds if seconds > 0 else 0.0,
            "wait_share": min((self.waited - waited) / seconds, 1.0) if seconds > 0 else 0.0,
        }
