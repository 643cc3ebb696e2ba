"""Digests of what rowdex makes of some Parquet files, to compare two machines by. From the repository:

    python -m tools.python.epoch_bytes --write FOLDER    writes the files: every type and codec
    python -m tools.python.epoch_bytes FOLDER            builds an index of them, and prints the digests

A line each: the bytes of the index; the digest of all rows, and of those that meet a condition; each rank's batches of
two epochs, every value in the order in which it is served; the same for packs of tokens.
"""

from __future__ import annotations

import hashlib
import pathlib
import platform
import sys
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from python.tests.random_tables import LEAVES, random_array

CODECS = ("none", "snappy", "zstd", "gzip", "lz4", "brotli")
ROWS, GROUP, WORLD = 400, 100, 2
NESTED = [
    pa.list_(pa.float32(), 3),
    pa.list_(pa.list_(pa.int16())),
    pa.struct([("a", pa.string()), ("b", pa.list_(pa.decimal128(30, 4)))]),
    pa.map_(pa.string(), pa.timestamp("us", "UTC")),
]


def write(folder: pathlib.Path) -> None:
    """A file for each codec; every other one without dictionaries, with the encodings that its types have."""
    rng = np.random.default_rng(0)
    kinds = {f"c{number}": kind for number, kind in enumerate([*LEAVES, *NESTED])} | {"tokens": pa.list_(pa.int32())}
    encodings = {name: encoding for name, kind in kinds.items() if (encoding := encoding_of(kind))}
    for number, codec in enumerate(CODECS):
        table = pa.table({name: random_array(rng, kind, ROWS, 0.1) for name, kind in kinds.items()})
        plain = {"use_dictionary": False, "column_encoding": encodings} if number % 2 else {}
        pages = {"data_page_version": "2.0" if number % 3 else "1.0", "data_page_size": 2_000, "write_batch_size": 64}
        pq.write_table(table, folder / f"{codec}.parquet", row_group_size=GROUP, compression=codec, **plain, **pages)


def encoding_of(kind: pa.DataType) -> str | None:
    """An encoding beside plain values."""
    if pa.types.is_floating(kind) and kind.bit_width >= 32 or pa.types.is_fixed_size_binary(kind):
        return "BYTE_STREAM_SPLIT"
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return "DELTA_BINARY_PACKED"
    return "DELTA_BYTE_ARRAY" if str(kind) in ("string", "binary") else None


def digests(folder: pathlib.Path) -> Iterable[tuple[str, str]]:
    """What each digest is of, and the digest."""
    # Not where files are written, which has no rowdex.
    import rowdex

    index = folder / "epoch.rdx"
    rowdex.build([folder / f"{codec}.parquet" for codec in CODECS], index, lengths=["tokens"], overwrite=True)
    yield "index", hashlib.sha256(index.read_bytes()).hexdigest()
    integer, double, text = (f"c{LEAVES.index(kind)}" for kind in (pa.int32(), pa.float64(), pa.string()))
    condition = f"abs({integer}) % 3 = 1 and ({double} < 0.5 or length({text}) > 5)"
    rowdex.select(index, folder / "view.rdx", where=condition, overwrite=True)
    for dataset in (rowdex.Dataset(folder / "view.rdx"), rowdex.Dataset(index)):
        yield f"{len(dataset)} rows", rowdex.rows_digest(dataset)
    packs = {"pack": rowdex.Pack("tokens", capacity=64), "batch_size": 4}
    for what, sampling in {"epoch": {"batch_size": 64}, "packs": packs}.items():
        for rank in range(WORLD):
            loader = rowdex.Loader(dataset, num_replicas=WORLD, rank=rank, seed=7, output="arrow", **sampling)
            for epoch in range(2):
                told, batches = hashlib.sha256(), 0
                for batches, batch in enumerate(loader, 1):
                    told.update(repr(batch.row_ids).encode())
                    told.update(pa.record_batch(batch).serialize())
                yield f"{what} {epoch}, rank {rank}, {batches} batches", told.hexdigest()


def main(arguments: list[str]) -> None:
    folder = pathlib.Path(arguments[-1])
    if arguments[0] == "--write":
        folder.mkdir(parents=True, exist_ok=True)
        write(folder)
        return
    print(f"{platform.machine()}, Python {platform.python_version()}", file=sys.stderr)
    for what, digest in digests(folder):
        print(f"{what}: {digest}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
