"""Writes sets with the shapes of files that people have: python tools/compare/shapes.py DATA [SHAPE ...]

Each becomes a folder of DATA; a folder that is there is left alone. The same seed gives the same values. The sets are
small enough for a machine of 16 GiB, and large enough that nothing of them stays in a core's cache.

    wide      200 columns of float32, 20,000 rows a row group
    ragged    lists of 1 to 2,000 tokens, nullable strings and a struct, zstd, 7,000 rows a row group
    parallel  two lists of the same length, 200 to 1,500, and a dictionary column, zstd, 2,500 rows a row group
    small     4 narrow columns, 100 rows a row group
    mixed     5 narrow columns, row groups of 1, 50,000, 300, 200,000 and 7 rows in turn
    text      crawled text: strings of 0.1 to 20 KB, an id, a URL, a language with nulls, two numbers; zstd, 1,000 rows
    hub_images  as the hub's library writes images: a struct of a JPEG's bytes and a path, a label; snappy, 100 rows
    tab       ten narrow columns, 100,000 rows a row group
    tok       an id and 512 tokens, zstd, 4,000 rows a row group
    img       a blob of 8 to 40 KB, a label and a key; the blobs have no dictionary and no codec, 500 rows a row group
"""

from __future__ import annotations

import io
import pathlib
import sys
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Generator = np.random.Generator


def tokens(random: Generator, count: int) -> np.ndarray:
    """Token ids as frequent as words are: a few of them make most of a text."""
    return (np.minimum(random.zipf(1.15, count), 50257) - 1).astype(np.int32)


def lists(lengths: np.ndarray, values: np.ndarray) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))


def words(random: Generator, count: int, letters: int) -> list[str]:
    drawn = random.integers(97, 123, (count, letters), dtype=np.uint8)
    return [row.tobytes().decode() for row in drawn]


def wide(random: Generator) -> Iterator[pa.Table]:
    for _ in range(10):
        yield pa.table({f"f{column:03}": random.standard_normal(20_000, dtype=np.float32) for column in range(200)})


def ragged(random: Generator) -> Iterator[pa.Table]:
    for group in range(8):
        rows = 7_000
        lengths = random.integers(1, 2_001, rows)
        known = words(random, 2_000, 11)
        texts = [
            None if null else known[word]
            for null, word in zip(random.random(rows) < 0.1, random.integers(0, 2_000, rows))
        ]
        source = pa.StructArray.from_arrays(
            [pa.array(random.integers(0, 50, rows)), pa.array(random.standard_normal(rows))], names=["shard", "score"]
        )
        yield pa.table(
            {
                "id": pa.array(np.arange(group * rows, (group + 1) * rows)),
                "tokens": lists(lengths, tokens(random, int(lengths.sum()))),
                "text": pa.array(texts, pa.string()),
                "source": source,
            }
        )


def parallel(random: Generator) -> Iterator[pa.Table]:
    kinds = pa.array([f"cell type {kind}" for kind in range(60)])
    for _ in range(24):
        rows = 2_500
        lengths = random.integers(200, 1_501, rows)
        items = int(lengths.sum())
        genes = random.integers(0, 25_000, items).astype(np.int32)
        expression = np.log1p(random.poisson(1.5, items)).astype(np.float32)
        kind = pa.DictionaryArray.from_arrays(pa.array(random.integers(0, 60, rows).astype(np.int32)), kinds)
        yield pa.table({"genes": lists(lengths, genes), "expression": lists(lengths, expression), "kind": kind})


def narrow(random: Generator, first: int, rows: int) -> dict[str, np.ndarray]:
    return {
        "id": np.arange(first, first + rows, dtype=np.int64),
        "x": random.standard_normal(rows, dtype=np.float32),
        "y": random.standard_normal(rows),
        "label": random.integers(0, 1_000, rows).astype(np.int32),
    }


def small(random: Generator) -> Iterator[pa.Table]:
    for group in range(40_000):
        yield pa.table(narrow(random, group * 100, 100))


def mixed(random: Generator) -> Iterator[pa.Table]:
    first = 0
    for _ in range(4):
        for rows in [1, 50_000, 300, 200_000, 7]:
            text = pa.array([f"row {row}" for row in range(first, first + rows)])
            yield pa.table({**narrow(random, first, rows), "text": text})
            first += rows


def text(random: Generator) -> Iterator[pa.Table]:
    drawn = random.integers(97, 123, (30_000, 12), dtype=np.uint8)
    # Words that are used often are short.
    known = [row[: 2 + min(10, rank // 40)].tobytes().decode() for rank, row in enumerate(drawn)]
    rows = 1_000
    for _ in range(100):
        sizes = np.clip(random.lognormal(7.4, 0.95, rows), 100, 20_000)
        ids = np.minimum(random.zipf(1.25, int(sizes.sum() / 4)), len(known)) - 1
        stream = " ".join([known[word] for word in ids])
        ends = np.cumsum(sizes).astype(np.int64)
        texts = [stream[end - int(size) : end] for end, size in zip(ends, sizes)]
        languages = ["en", "de", "fr", "es", "zh", None]
        yield pa.table(
            {
                "text": pa.array(texts, pa.string()),
                "id": pa.array([f"<urn:uuid:{random.bytes(16).hex()}>" for _ in range(rows)]),
                "url": pa.array([f"https://{known[k]}.example.org/{k}" for k in random.integers(40, 30_000, rows)]),
                "language": pa.array([languages[k] for k in random.integers(0, len(languages), rows)]),
                "language_score": random.random(rows),
                "token_count": pa.array((sizes / 4).astype(np.int64)),
            }
        )


def hub_images(random: Generator) -> Iterator[pa.Table]:
    from PIL import Image

    rows = 100
    for group in range(160):
        pictures = []
        for row in range(rows):
            side = int(random.integers(200, 420))
            rough = Image.fromarray(random.integers(0, 256, (24, 24, 3), dtype=np.uint8))
            kept = io.BytesIO()
            quality = int(random.integers(75, 96))
            rough.resize((side, side), Image.Resampling.BICUBIC).save(kept, "JPEG", quality=quality)
            pictures.append({"bytes": kept.getvalue(), "path": f"{group * rows + row:08}.jpg"})
        image = pa.array(pictures, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
        yield pa.table({"image": image, "label": pa.array(random.integers(0, 1_000, rows))})


def tab(random: Generator, groups: int = 10) -> Iterator[pa.Table]:
    rows = 100_000
    names = pa.array([f"category_{number:04}" for number in range(512)])
    for group in range(groups):
        yield pa.table(
            {
                "id": np.arange(group * rows, (group + 1) * rows),
                **{f"x{column}": random.random(rows, dtype=np.float32) for column in range(4)},
                "y": random.standard_normal(rows),
                "n": random.integers(0, 1_000, rows).astype(np.int32),
                "time": np.cumsum(random.integers(0, 1_000, rows)),
                "category": names.take(pa.array(random.integers(0, 512, rows))),
                "word": pa.array(words(random, rows, 11)),
            }
        )


def tok(random: Generator) -> Iterator[pa.Table]:
    rows = 4_000
    for group in range(10):
        ids = np.arange(group * rows, (group + 1) * rows)
        yield pa.table({"id": ids, "tokens": lists(np.full(rows, 512), tokens(random, rows * 512))})


def img(random: Generator) -> Iterator[pa.Table]:
    rows = 500
    for group in range(40):
        images = [random.bytes(length) for length in random.integers(8 << 10, 40 << 10, rows)]
        keys = [f"{group:04}_{row:06}" for row in range(rows)]
        labels = random.integers(0, 1_000, rows).astype(np.int32)
        yield pa.table({"image": pa.array(images, pa.binary()), "label": labels, "key": keys})


Makes = Callable[[Generator], Iterator[pa.Table]]

# What makes the row groups, how many of them a file has, and the codec.
SHAPES = {
    "wide": (wide, 5, "snappy"),
    "ragged": (ragged, 4, "zstd"),
    "parallel": (parallel, 12, "zstd"),
    "small": (small, 10_000, "snappy"),
    "mixed": (mixed, 10, "snappy"),
    "text": (text, 50, "zstd"),
    "hub_images": (hub_images, 80, "snappy"),
    "tab": (tab, 5, "snappy"),
    "tok": (tok, 5, "zstd"),
    "img": (img, 10, {"image": "none", "label": "snappy", "key": "snappy"}),
}


def write(folder: pathlib.Path, name: str) -> None:
    groups, per_file, codec = SHAPES[name]
    folder.mkdir(parents=True)
    writer = None
    for number, table in enumerate(groups(np.random.default_rng([7, *name.encode()]))):
        if number % per_file == 0:
            if writer:
                writer.close()
            path = folder / f"{number // per_file:03}.parquet"
            # A dictionary of pictures has nothing that repeats.
            has_dictionary = name != "img"
            writer = pq.ParquetWriter(
                path, table.schema, compression=codec, write_page_index=True, use_dictionary=has_dictionary
            )
        assert writer
        writer.write_table(table, row_group_size=len(table))
    if writer:
        writer.close()


def main() -> None:
    data = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or SHAPES:
        if not (data / name).exists():
            write(data / name, name)
        size = sum(file.stat().st_size for file in (data / name).iterdir())
        print(f"{name}: {size / 2**20:,.0f} MiB in files")


if __name__ == "__main__":
    main()
