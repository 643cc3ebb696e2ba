"""Reports how far a build, a check or a condition has come."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

from . import native
from .native.imports import loaded

Function = Callable[[int, int, int], None]
"""Is called with files done, files in all, and rows so far, by one thread at a time. For a condition these are rows
decided, rows in all, and 0."""
Progress = Function | bool | None
"""``None`` shows a bar if tqdm is installed, in a notebook or a terminal, ``True`` shows one in any case, ``False``
never, and a function is called."""


@contextlib.contextmanager
def told(progress: Progress, what: str, unit: str = "files", beside: str = "rows") -> Iterator[Any]:
    """What the library calls while something is done; leaving raises what ``progress`` raised."""
    if progress is False or (progress is None and not _bar_wanted()):
        yield native.Progress()
        return
    if progress is not None and progress is not True and not callable(progress):
        raise TypeError(f"progress={progress!r}: use True, False, None or a function of files done, files and rows")
    raised: list[BaseException] = []
    over = False
    with contextlib.ExitStack() as stack:
        function = progress if callable(progress) else stack.enter_context(_bar(what, unit, beside))

        def tell(_: Any, done: int, files: int, rows: int) -> None:
            if not raised and not over:
                try:
                    function(done, files, rows)
                except BaseException as error:  # Must not leave the callback.
                    raised.append(error)

        try:
            yield native.Progress(tell)
        finally:
            # A call that was told to stop may have more to tell, and the bar is closed.
            over = True
        if raised:
            raise raised[0]


def _bar_wanted() -> bool:
    # A notebook shows bars, though its standard error is no terminal.
    shows = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    return shows and importlib.util.find_spec("tqdm") is not None


@contextlib.contextmanager
def _bar(what: str, unit: str, beside: str) -> Iterator[Function]:
    try:
        tqdm = loaded("tqdm.auto").tqdm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("progress=True needs tqdm: install it, or give a function") from error
    with tqdm(desc=what, unit=f" {unit}", dynamic_ncols=True) as bar:

        def show(done: int, total: int, rows: int) -> None:
            bar.total = total
            if rows:
                bar.set_postfix_str(f"{rows:,} {beside}", refresh=False)
            # Threads finish some at once, and may tell of them the other way round.
            bar.update(max(done - bar.n, 0))

        yield show
        bar.refresh()


__all__ = ["Function", "Progress"]
