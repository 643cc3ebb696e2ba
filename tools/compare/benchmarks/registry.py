"""Which libraries there are, and where they are installed."""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import pathlib
import sys
from typing import Any

Told = dict[str, Any]

PEERS = {
    "rowdex": ("rowdex", "Rowdex"),
    "rowdex-10": ("rowdex", "Shared10"),
    "rowdex-25": ("rowdex", "Shared"),
    "rowdex-100": ("rowdex", "Shared100"),
    "rowdex-blocks": ("rowdex", "Blocks"),
    "hf-mapped": ("hugging_face", "Mapped"),
    "hf-streaming": ("hugging_face", "Streaming"),
    "lancedb": ("lancedb", "Lance"),
    "litdata": ("litdata", "LitData"),
    "litdata-whole": ("litdata", "Whole"),
    "litdata-parquet": ("litdata", "Parquet"),
    "mosaicml": ("mosaicml", "Mosaic"),
    "grain": ("grain", "Grain"),
    "grain-even": ("grain", "Even"),
    "rowdex-mixed": ("rowdex", "Mixed"),
    "rowdex-staged": ("rowdex", "Staged"),
    "hf-mapped-mixed": ("hugging_face", "MappedMixed"),
    "hf-streaming-mixed": ("hugging_face", "StreamingMixed"),
    "litdata-mixed": ("litdata", "Mixed"),
    "mosaicml-mixed": ("mosaicml", "Mixed"),
    "grain-mixed": ("grain", "Mixed"),
    "torch-dataloader-utils": ("row_groups", "TorchDataloaderUtils"),
    "petastorm": ("row_groups", "Petastorm"),
    "row-groups": ("row_groups", "RowGroups"),
}
"""The file of this folder and the class of a peer."""

TABLES = {
    "shuffle": [
        "rowdex-10", "rowdex-25", "rowdex-100", "hf-mapped", "lancedb", "rowdex-blocks", "hf-streaming", "litdata",
        "litdata-parquet", "mosaicml",
    ],
    "ranks": [
        "rowdex", "hf-mapped", "hf-streaming", "lancedb", "litdata", "litdata-whole", "litdata-parquet", "mosaicml",
        "grain", "grain-even", "torch-dataloader-utils", "petastorm", "row-groups",
    ],
    "resume": ["rowdex", "hf-mapped", "hf-streaming", "lancedb", "litdata", "litdata-parquet", "mosaicml", "grain"],
    "mixtures": [
        "rowdex-mixed", "rowdex-staged", "hf-mapped-mixed", "hf-streaming-mixed", "litdata-mixed", "mosaicml-mixed",
        "grain-mixed",
    ],
}  # fmt: skip
"""Who is in which table."""

PACKAGES = {"hugging_face": "datasets", "mosaicml": "streaming", "row_groups": "pyarrow"}
"""What a file imports, where it is not named like it."""


def peer(name: str) -> Any:
    """The class of a peer, which imports its library."""
    module, kind = PEERS[name]
    return getattr(importlib.import_module(f"benchmarks.{module}"), kind)


def package(name: str) -> str:
    module, _ = PEERS[name]
    return PACKAGES.get(module, module)


def peers_folder(wanted: str | None) -> str | None:
    """Where tools/python/setup.sh installs what does not fit beside other packages, if this one is only there."""
    folder = str(pathlib.Path(sys.prefix, "peers"))
    if wanted is None or importlib.machinery.PathFinder.find_spec(wanted) is not None:
        return None
    return folder if importlib.machinery.PathFinder.find_spec(wanted, [folder]) else None


def versions(names: list[str]) -> dict[str, str]:
    """The versions of distributions that are installed."""
    places = [*sys.path, str(pathlib.Path(sys.prefix, "peers"))]
    found = {}
    for name in names:
        for distribution in importlib.metadata.distributions(name=name, path=places):
            found[name] = distribution.version
            break
        else:
            # What is imported from its sources says so itself.
            version = getattr(sys.modules.get(name), "__version__", None)
            found |= {name: version} if version else {}
    return found
