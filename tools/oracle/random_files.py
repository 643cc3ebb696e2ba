"""Writes Parquet files of random types: random_files.py SEED COUNT OUT.

Each has a few columns of types that are nested at random, with nulls at every level or at none, in row groups of random
size, written with random options. The same files for the same seed.
"""

import random
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from expect import REFUSALS, read, write
from generate import CODECS, FAMILIES, value

# Parquet has no seconds, so those would come back as another type than was written.
LEAVES = [
    data_type
    for family in ["bool", "int", "float", "decimal", "time", "timestamp", "bytes"]
    for data_type in FAMILIES[family]
    if getattr(data_type, "unit", None) != "s" or pa.types.is_duration(data_type)
]
KEYS = [pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.int64()]
# pyarrow cannot write dictionaries of views.
WORDS = [leaf for leaf in LEAVES if not pa.types.is_string_view(leaf) and not pa.types.is_binary_view(leaf)]


def field(rng: random.Random, name: str, depth: int) -> pa.Field:
    return pa.field(name, random_type(rng, depth), nullable=rng.random() < 0.6)


def random_type(rng: random.Random, depth: int) -> pa.DataType:
    how = rng.random()
    if depth == 0 or how < 0.2:
        return rng.choice(LEAVES)
    if how < 0.3:
        return pa.dictionary(rng.choice(KEYS), rng.choice(WORDS + [pa.string()] * len(WORDS)))
    if how < 0.55:
        return pa.struct([field(rng, f"f{i}", depth - 1) for i in range(rng.randint(1, 3))])
    if how < 0.75:
        return pa.list_(field(rng, "item", depth - 1))
    if how < 0.85:
        return pa.large_list(field(rng, "item", depth - 1))
    if how < 0.92:
        return pa.list_(field(rng, "item", depth - 1), rng.randint(1, 3))
    return pa.map_(rng.choice([pa.string(), pa.int32()]), field(rng, "value", depth - 1))


def random_value(rng: random.Random, of: pa.Field, nulls: float) -> Any:
    """A value of a field; its words are few, so that they repeat."""
    t, types = of.type, pa.types
    if of.nullable and rng.random() < nulls:
        return None
    if types.is_struct(t):
        return {inner.name: random_value(rng, inner, nulls) for inner in t}
    if types.is_fixed_size_list(t):
        return [random_value(rng, t.value_field, nulls) for _ in range(t.list_size)]
    if types.is_list(t) or types.is_large_list(t):
        return [random_value(rng, t.value_field, nulls) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
    if types.is_map(t):
        keys = {value(rng, t.key_type) for _ in range(rng.choice([0, 1, 3]))}
        return [(key, random_value(rng, t.item_field, nulls)) for key in sorted(keys)]
    return value(rng, t)


def random_column(rng: random.Random, name: str, rows: int) -> tuple[pa.Field, pa.Array]:
    """One that pyarrow can write."""
    while True:
        of = field(rng, name, rng.randint(0, 4))
        nulls = rng.choice([0.0, 0.1, 0.5])
        try:
            array = pa.array([random_value(rng, of, nulls) for _ in range(rows)], of.type)
            # Where all structs are null, a dictionary below them has no value, and its indices refer to one.
            array.validate(full=True)
            # Some types pyarrow cannot write, others it cannot cut into row groups.
            table = pa.table([array], schema=pa.schema([of]))
            pq.write_table(table, pa.BufferOutputStream(), row_group_size=1 + rows // 3)
            return of, array
        except REFUSALS:
            continue


def random_file(rng: random.Random, path: Path) -> None:
    """One that pyarrow can write."""
    while True:
        rows = rng.choice([1, 20, 150, 400])
        columns = [random_column(rng, f"c{place}", rows) for place in range(rng.randint(1, 4))]
        fields, arrays = zip(*columns, strict=True)
        table = pa.Table.from_arrays(list(arrays), schema=pa.schema(fields))
        options: dict[str, Any] = {
            "row_group_size": rng.choice([1, 7, 64, 400]) if rows < 400 else rng.choice([7, 64, 400]),
            "compression": rng.choice(CODECS),
            "use_dictionary": rng.random() < 0.7,
            "dictionary_pagesize_limit": rng.choice([64, 1 << 20]),
            "data_page_version": rng.choice(["1.0", "2.0"]),
            "data_page_size": rng.choice([64, 1 << 20]),
            "write_page_index": rng.random() < 0.5,
            "store_schema": rng.random() < 0.9,
        }
        try:
            pq.write_table(table, path, **options)
        except REFUSALS:
            # Some columns it cannot cut into row groups of this size.
            continue
        try:
            sound = read(path).num_rows == rows
        except REFUSALS:
            sound = False
        if not sound:
            # What was written stands for what pyarrow cannot read back. Its types are in the file only if they are
            # stored there.
            pq.write_table(table, path, **{**options, "store_schema": True})
            write(table, path)
        return


def main(seed: int, count: int, out: Path) -> None:
    out.mkdir(parents=True)
    for number in range(count):
        random_file(random.Random(f"{seed} {number}"), out / f"{seed}-{number:04}.parquet")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
