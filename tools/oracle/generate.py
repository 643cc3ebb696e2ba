"""Writes the generated corpus: generate.py OUT.

OUT/good has every type, codec, encoding, page version, null pattern and nesting that pyarrow writes, in some hundred
small files; OUT/bad has files that must be refused. The same bytes every time, but for the keys of the encrypted ones.

Where pyarrow cannot read back what it wrote, what was written lies beside the file for expect.py.
"""

import datetime
import decimal
import itertools
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

from expect import REFUSALS, read, write

ROWS = 300
PATTERNS = ["required", "none", "some", "all", "first", "last"]
CODECS = ["none", "snappy", "gzip", "brotli", "zstd", "lz4"]

# By physical type; what is not named is PLAIN.
ENCODINGS = {
    "plain": {},
    "dictionary": None,
    # The dictionary soon is full, so the pages after it are PLAIN.
    "overflow": None,
    "delta": {
        "BOOLEAN": "RLE",
        "INT32": "DELTA_BINARY_PACKED",
        "INT64": "DELTA_BINARY_PACKED",
        "BYTE_ARRAY": "DELTA_BYTE_ARRAY",
        "FIXED_LEN_BYTE_ARRAY": "DELTA_BYTE_ARRAY",
    },
    "split": {
        "BOOLEAN": "RLE",
        "INT32": "BYTE_STREAM_SPLIT",
        "INT64": "BYTE_STREAM_SPLIT",
        "FLOAT": "BYTE_STREAM_SPLIT",
        "DOUBLE": "BYTE_STREAM_SPLIT",
        "BYTE_ARRAY": "DELTA_LENGTH_BYTE_ARRAY",
        "FIXED_LEN_BYTE_ARRAY": "BYTE_STREAM_SPLIT",
    },
}

# Every pair of their levels, and of theirs with family, encoding, pages and codec, is in some file.
FACTORS: dict[str, list[Any]] = {
    "version": ["1.0", "2.4", "2.6"],
    "store_schema": [True, False],
    "write_page_index": [True, False],
    "write_page_checksum": [True, False],
    "row_group_size": [ROWS, 110],
    "max_rows_per_page": [None, 16],
    "data_page_size": [None, 64],
    "write_batch_size": [None, 8],
    "use_compliant_nested_type": [True, False],
    "store_decimal_as_integer": [False, True],
    "use_deprecated_int96_timestamps": [False, True],
}


def required(name: str, data_type: pa.DataType) -> pa.Field:
    return pa.field(name, data_type, nullable=False)


POINT = pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.float64()), required("label", pa.string())])

FAMILIES: dict[str, list[pa.DataType]] = {
    "bool": [pa.bool_()],
    "int": [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()],
    "float": [pa.float16(), pa.float32(), pa.float64()],
    "decimal": [
        pa.decimal32(1, 0),
        pa.decimal32(9, 2),
        pa.decimal64(18, 18),
        pa.decimal128(7, 3),
        pa.decimal128(16, 1),
        pa.decimal128(38, 10),
        pa.decimal256(30, 5),
        pa.decimal256(76, 20),
    ],
    "time": [
        pa.date32(),
        pa.date64(),
        pa.time32("s"),
        pa.time32("ms"),
        pa.time64("us"),
        pa.time64("ns"),
        *(pa.duration(unit) for unit in ["s", "ms", "us", "ns"]),
    ],
    "timestamp": [
        pa.timestamp(unit, zone)
        for unit, zone in itertools.product(["s", "ms", "us", "ns"], [None, "UTC", "Europe/Berlin", "+05:30"])
    ],
    "bytes": [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
        pa.binary(1),
        pa.binary(16),
    ],
    "dictionary": [
        *(pa.dictionary(index, pa.string()) for index in [pa.int8(), pa.uint16(), pa.int32(), pa.int64()]),
        pa.dictionary(pa.int32(), pa.large_string()),
        pa.dictionary(pa.int32(), pa.binary()),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.dictionary(pa.int16(), pa.string(), ordered=True),
        pa.list_(pa.dictionary(pa.int32(), pa.string())),
        pa.struct([pa.field("word", pa.dictionary(pa.int8(), pa.string()))]),
    ],
    "list": [
        pa.list_(pa.int32()),
        pa.list_(required("item", pa.int64())),
        pa.large_list(pa.string()),
        pa.list_(pa.float32(), 3),
        pa.list_(pa.list_(pa.int16())),
        pa.list_(pa.large_list(pa.list_(pa.bool_()))),
        pa.list_(pa.binary(5)),
        pa.list_(pa.decimal128(20, 2)),
        pa.list_(pa.timestamp("us", "UTC")),
        pa.list_(pa.string_view()),
    ],
    "struct": [
        POINT,
        pa.struct([pa.field("inner", pa.struct([pa.field("deep", POINT), pa.field("n", pa.uint8())]))]),
        pa.list_(POINT),
        pa.large_list(pa.struct([pa.field("points", pa.list_(POINT)), pa.field("id", pa.int64())])),
        pa.struct([pa.field("rows", pa.list_(pa.struct([pa.field("cells", pa.list_(pa.string()))])))]),
        pa.struct([required("must", pa.int16()), pa.field("may", pa.list_(required("item", pa.bool_())))]),
        pa.struct([pa.field("embedding", pa.list_(pa.float16(), 4)), pa.field("when", pa.time64("us"))]),
    ],
    "map": [
        pa.map_(pa.string(), pa.int32()),
        pa.map_(pa.int64(), POINT),
        pa.map_(pa.string(), pa.list_(pa.float64())),
        pa.map_(pa.binary(3), pa.map_(pa.int8(), pa.string())),
        pa.list_(pa.map_(pa.string(), pa.date32())),
        pa.struct([pa.field("tags", pa.map_(pa.string(), pa.string()))]),
    ],
    "odd": [
        pa.null(),
        pa.list_(pa.null()),
        pa.struct([pa.field("nothing", pa.null()), pa.field("something", pa.int8())]),
        pa.uuid(),
        pa.json_(),
        pa.bool8(),
        pa.fixed_shape_tensor(pa.float32(), [2, 2]),
        pa.list_view(pa.int32()),
        pa.large_list_view(pa.string()),
    ],
}


def integer(rng: random.Random, low: int, high: int) -> int:
    edge = [low, high, max(low, -1), min(high, 1), low + 1]
    return (
        rng.choice(edge) if rng.random() < 0.1 else rng.randint(low, high) >> rng.choice([0, 0, high.bit_length() // 2])
    )


def real(rng: random.Random) -> float:
    edge = [0.0, -0.0, float("inf"), float("-inf"), float("nan"), 6e-8, -65504.0]
    return rng.choice(edge) if rng.random() < 0.2 else rng.uniform(-1e4, 1e4)


def text(rng: random.Random) -> str:
    length = rng.choice([0, 1, 3, 12, 13, 40, 200])
    common = "a common beginning, " * rng.choice([0, 0, 1])
    return common + "".join(rng.choice("abcdef 0123ßø漢🦀") for _ in range(length))


def value(rng: random.Random, data_type: pa.DataType) -> Any:
    """A value that `pa.array` turns into one of this type."""
    t, types = data_type, pa.types
    if types.is_null(t):
        return None
    if types.is_boolean(t):
        return rng.random() < 0.5
    if types.is_integer(t):
        bits = t.bit_width - types.is_signed_integer(t)
        return integer(rng, -(1 << bits) if types.is_signed_integer(t) else 0, (1 << bits) - 1)
    if types.is_floating(t):
        return real(rng)
    if types.is_decimal(t):
        unscaled = integer(rng, 1 - 10**t.precision, 10**t.precision - 1)
        return decimal.Decimal(unscaled).scaleb(-t.scale, decimal.Context(prec=80))
    if types.is_date(t):
        return datetime.date.fromordinal(rng.randint(1, 3_000_000))
    if types.is_time(t):
        return rng.randrange(86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[t.unit])
    if types.is_timestamp(t) or types.is_duration(t):
        bits = {"s": 33, "ms": 43, "us": 53, "ns": 62}[t.unit]
        return integer(rng, -(1 << bits), 1 << bits)
    if types.is_fixed_size_binary(t):
        return rng.randbytes(t.byte_width)
    if types.is_string(t) or types.is_large_string(t) or types.is_string_view(t):
        return text(rng)
    if types.is_binary(t) or types.is_large_binary(t) or types.is_binary_view(t):
        return text(rng).encode()[: rng.randint(0, 300)]
    if types.is_dictionary(t):
        return value(random.Random(rng.randrange(20)), t.value_type)
    if types.is_struct(t):
        return {field.name: child(rng, field) for field in t}
    if types.is_map(t):
        return [(value(rng, t.key_type), child(rng, t.item_field)) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
    length = t.list_size if types.is_fixed_size_list(t) else rng.choice([0, 1, 1, 2, 3, 9])
    return [child(rng, t.value_field) for _ in range(length)]


def child(rng: random.Random, field: pa.Field) -> Any:
    return None if field.nullable and rng.random() < 0.2 else value(rng, field.type)


def series(rng: random.Random, data_type: pa.DataType) -> list[Any]:
    """Values that repeat: at once, later, or not at all."""
    pool = [value(rng, data_type) for _ in range(5)]
    values = [pool[0]]
    while len(values) < ROWS:
        how = rng.random()
        values.append(values[-1] if how < 0.4 else rng.choice(pool) if how < 0.6 else value(rng, data_type))
    return values


def is_null(pattern: str, row: int, rng: random.Random) -> bool:
    quiet = {"required": False, "none": False, "all": True, "first": row < ROWS * 2 // 3, "last": row >= ROWS // 3}
    return rng.random() < 0.3 if pattern == "some" else quiet[pattern]


def column(rng: random.Random, data_type: pa.DataType, pattern: str) -> pa.Array:
    storage = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    values = [None if is_null(pattern, row, rng) else item for row, item in enumerate(series(rng, storage))]
    array = pa.array(values, storage)
    return array if storage is data_type else pa.ExtensionArray.from_storage(data_type, array)


def patterns(data_type: pa.DataType) -> list[str]:
    if pa.types.is_null(data_type):
        return ["all"]
    if pa.types.is_struct(data_type) and any(pa.types.is_dictionary(field.type) for field in data_type):
        # pyarrow cannot write a dictionary without words inside a struct.
        return [pattern for pattern in PATTERNS if pattern != "all"]
    return PATTERNS


def family_table(family: str) -> pa.Table:
    rng = random.Random(family)
    fields, arrays = [], []
    for number, data_type in enumerate(FAMILIES[family]):
        for pattern in PATTERNS:
            if pattern not in patterns(data_type):
                continue
            fields.append(pa.field(f"{family}{number}_{pattern}", data_type, nullable=pattern != "required"))
            arrays.append(column(rng, data_type, pattern))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def leaves(schema: pa.Schema, options: dict[str, Any]) -> list[tuple[str, str]]:
    """The columns that the file will have, with their physical types."""
    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink, **options)
    columns = pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema
    return [(columns.column(i).path, columns.column(i).physical_type) for i in range(len(columns))]


def writer_options(table: pa.Table, encoding: str, pages: str, codec: str, others: dict[str, Any]) -> dict[str, Any]:
    options = {key: level for key, level in others.items() if level is not None}
    options |= {"data_page_version": pages, "compression": codec}
    if options["version"] != "2.6" and not options["use_deprecated_int96_timestamps"]:
        options |= {"coerce_timestamps": "us", "allow_truncated_timestamps": True}
    by_type = ENCODINGS[encoding]
    if by_type is None:
        return options | ({"dictionary_pagesize_limit": 64} if encoding == "overflow" else {})
    options["use_dictionary"] = False
    own = {path: by_type[physical] for path, physical in leaves(table.schema, options) if physical in by_type}
    return options | {"column_encoding": own or "PLAIN"}


def combinations() -> list[dict[str, Any]]:
    """All families with all encodings and page versions, each with half of the codecs, and the other factors by
    chance."""
    rng = random.Random("combinations")
    files = []
    for turn, (family, encoding, pages) in enumerate(itertools.product(FAMILIES, ENCODINGS, ["1.0", "2.0"])):
        for codec in CODECS[(turn + turn // 6) % 2 :: 2]:
            others = {key: rng.choice(levels) for key, levels in FACTORS.items()}
            files.append({"family": family, "encoding": encoding, "pages": pages, "codec": codec, **others})
    return files


def check_pairs(files: list[dict[str, Any]]) -> None:
    levels = {"family": FAMILIES, "encoding": ENCODINGS, "pages": ["1.0", "2.0"], "codec": CODECS, **FACTORS}
    for a, b in itertools.combinations(levels, 2):
        missing = set(itertools.product(levels[a], levels[b])) - {(file[a], file[b]) for file in files}
        assert not missing, f"no file has {a}, {b} = {missing}"


def special(good: Path) -> None:
    """What the combinations do not reach."""
    ints = pa.table({"n": pa.array(range(ROWS), pa.int64()), "s": [f"row {i}" for i in range(ROWS)]})
    pq.write_table(ints.slice(0, 0), good / "no_rows.parquet")
    pq.write_table(pa.table({}), good / "no_columns.parquet")
    pq.write_table(ints, good / "bloom_filter.parquet", bloom_filter_options={"s": {"ndv": 1000, "fpp": 0.01}})
    pq.write_table(ints, good / "sorted.parquet", sorting_columns=[pq.SortingColumn(0)], write_page_index=True)
    pq.write_table(ints, good / "content_defined_pages.parquet", use_content_defined_chunking=True)
    pq.write_table(ints, good / "spark.parquet", flavor="spark")
    pq.write_table(ints, good / "one_row_per_group.parquet", row_group_size=1)
    names = ["", " ", "a.b", "a", "ünï", "list", "element", 'quote"', "A", "very " * 40]
    renamed = pa.table({name: [i, None, -i] for i, name in enumerate(names)})
    pq.write_table(renamed.append_column("nest", pa.array([{"a.b": 1, "a": {"c": 2}}] * 3)), good / "names.parquet")
    with pq.ParquetWriter(good / "empty_groups.parquet", ints.schema) as writer:
        for part in [ints.slice(0, 0), ints.slice(0, 10), ints.slice(0, 0), ints.slice(10, 5), ints.slice(0, 0)]:
            writer.write_table(part)
    # Lists far longer than a page, beside rows that have none.
    long = [list(range(5000)) if i % 50 == 7 else [] if i % 3 else None for i in range(ROWS)]
    words = [[f"word {i % 900}" for i in row] if row is not None else None for row in long]
    lists = pa.table({"n": range(ROWS), "long": pa.array(long, pa.list_(pa.int32())), "words": pa.array(words)})
    for index, pages in itertools.product([True, False], ["1.0", "2.0"]):
        name = f"long_lists-pages{pages}-index{index}.parquet"
        pq.write_table(lists, good / name, write_page_index=index, data_page_version=pages, data_page_size=256)
    # Strings that repeat through a dictionary and strings that are long: what rowdex keeps as views.
    rng = random.Random("strings")
    strings = pa.table(
        {
            "repeated": [rng.choice(["x" * 200, "yes", "no", "", None]) for _ in range(ROWS)],
            "long": [rng.randbytes(rng.randint(0, 3000)) if i % 7 else None for i in range(ROWS)],
        }
    )
    for index in [True, False]:
        pq.write_table(strings, good / f"strings-index{index}.parquet", write_page_index=index, row_group_size=110)


def bad(out: Path) -> None:
    table = pa.table({"n": range(1000), "s": [f"row {i}" for i in range(1000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, write_page_checksum=True, compression="none", use_dictionary=False)
    sound = sink.getvalue().to_pybytes()
    footer = struct.unpack("<I", sound[-8:-4])[0]

    def changed(at: int, new: bytes) -> bytes:
        return sound[:at] + new + sound[at + len(new) :]

    files = {
        "no_bytes": b"",
        "text": b"n,s\n1,row 1\n" * 50,
        "magic_only": b"PAR1PAR1",
        "cut_off": sound[: len(sound) * 6 // 10],
        "tail_only": sound[-footer - 8 :],
        "footer_too_long": changed(len(sound) - 8, struct.pack("<I", len(sound))),
        "footer_of_zeros": changed(len(sound) - 8 - footer, bytes(footer)),
        "footer_damaged": changed(len(sound) - 8 - footer // 2, b"\xff" * 8),
        "page_damaged": changed(2000, bytes([sound[2000] ^ 1])),
        "page_header_of_zeros": changed(4, bytes(16)),
    }
    for name, data in files.items():
        (out / f"{name}.parquet").write_bytes(data)


class PlainKms(pe.KmsClient):
    """Keeps keys as they are: the files only have to be encrypted, not safe."""

    def wrap_key(self, key_bytes: bytes, _master_key: str) -> str:
        return key_bytes.hex()

    def unwrap_key(self, wrapped_key: str, _master_key: str) -> bytes:
        return bytes.fromhex(wrapped_key)


def encrypted(out: Path) -> None:
    factory = pe.CryptoFactory(lambda _config: PlainKms())
    table = pa.table({"n": range(100), "secret": range(100)})
    for name, plaintext in [("encrypted_footer", False), ("encrypted_column", True)]:
        config = pe.EncryptionConfiguration(footer_key="k", column_keys={"k": ["secret"]}, plaintext_footer=plaintext)
        properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), config)
        pq.write_table(table, out / f"{name}.parquet", encryption_properties=properties)


def main(out: Path) -> None:
    good, refused = out / "good", out / "bad"
    good.mkdir(parents=True)
    refused.mkdir()
    files = combinations()
    check_pairs(files)
    tables = {family: family_table(family) for family in FAMILIES}
    for number, file in enumerate(files):
        others = {key: file[key] for key in FACTORS}
        table = tables[file["family"]]
        options = writer_options(table, file["encoding"], file["pages"], file["codec"], others)
        path = good / f"{file['family']}-{file['encoding']}-pages{file['pages']}-{file['codec']}-{number:03}.parquet"
        pq.write_table(table, path, **options)
        try:
            read(path)
        except REFUSALS:
            write(table, path)
    special(good)
    bad(refused)
    encrypted(refused)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
