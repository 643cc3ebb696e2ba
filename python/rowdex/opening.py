"""A dataset of files whose index nobody has built yet."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from .building import reported, several
from .dataset import Dataset
from .index import Path
from .native.library import Operands, is_remote, waiting
from .progress import Progress, told
from .store import StoreOptions, store_fields


def open(
    data: Path | Iterable[Path],
    *,
    index: Path | Literal[False] | None = None,
    schema: Literal["strict", "union"] = "strict",
    rename: Mapping[str, str] | None = None,
    lengths: Iterable[str] = (),
    progress: Progress = None,
    store: StoreOptions | None = None,
    **dataset: Any,
) -> Dataset:
    """Opens the dataset of Parquet files, whose index is found or built::

        dataset = rowdex.open("data/")      # or "s3://bucket/data/", "hf://datasets/owner/name", "train.rdx"

    The index is in the cache folder of the user: ``$ROWDEX_CACHE``, ``$XDG_CACHE_HOME/rowdex`` or ``~/.cache/rowdex``.
    One process builds it, and others that ask for it at the same time wait. When files were added, removed or changed,
    another one is built; a line on standard error says so. Ranks of a PyTorch process group compare their indexes
    before the first batch. Costs a listing of the data each time.

    Args:
        data: Files, folders, patterns or URLs, as for :func:`rowdex.build`; or the path of an index.
        index: Where the index is, or is to be, instead of in the cache folder. ``False`` builds none.
        schema, rename, lengths, progress: As for :func:`rowdex.build`.
        store: How the object store is talked to, if the data is in one.
        dataset: ``columns``, ``cache`` and all else that :class:`Dataset` takes.

    Raises:
        NotFoundError: if there is no data, or with ``index=False`` no index of it.
        Error: those of building and of opening.
    """
    data = several(data)
    build = dict(
        files=data,
        output=None if index is False else index,
        find="only" if index is False else "or_build",
        schema=schema,
        rename=rename,
        lengths=[lengths] if isinstance(lengths, str) else lengths,
        store=store_fields(store),
    )
    with told(progress, "indexing") as tell:
        found = waiting(is_remote(*data, index or None), lambda: Operands().run(tell, build=build))
    if found["built"]:
        reported(found["built"], 3)
    if found["built"] and progress is not False:
        again = " again, because they changed" if found["is_rebuilt"] else ""
        print("rowdex: indexed {files} files with {rows} rows".format(**found["built"]) + again, file=sys.stderr)
    opened = Dataset(found["index"], store=store, **dataset)
    opened._arguments["found"] = True
    return opened


__all__ = ["open"]
