"""Fields of structs as columns: what pyarrow makes of the same paths, and no byte of any other field."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from random_tables import random_array, random_type


ROWS, GROUP = 600, 100
IMAGES = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def images(rng: np.random.Generator) -> pa.Table:
    """A table as hubs store images, with nulls of the struct and of its fields, and a struct of structs."""

    def image(row: int) -> Any:
        data = rng.bytes(int(rng.integers(100, 900)))
        return None if row % 17 == 0 else {"bytes": data if row % 13 else None, "path": f"{row}.jpg"}

    def nested(row: int) -> Any:
        inner = {"x": row, "y": str(row) * 9} if row % 3 else None
        return None if row % 5 == 0 else {"a": inner, "b": row * 1.5}

    points = [None if row % 7 == 0 else [{"x": at, "y": "y" * at} for at in range(row % 4)] for row in range(ROWS)]
    return pa.table(
        {
            "image": pa.array(map(image, range(ROWS)), IMAGES),
            "label": pa.array(range(ROWS), pa.int32()),
            "nested": pa.array(map(nested, range(ROWS))),
            "points": pa.array(points),
            "text": pa.array([f"text {row} " * 20 for row in range(ROWS)]),
            "nested.dot": pa.array(range(ROWS), pa.int64()),
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """A file, and an index of it."""
    folder = tmp_path_factory.mktemp("images")
    pq.write_table(images(np.random.default_rng(5)), folder / "a.parquet", row_group_size=GROUP)
    rowdex.build(folder / "a.parquet", folder / "i.rdx")
    return folder / "a.parquet", folder / "i.rdx"


def chunks(file: pathlib.Path, paths: list[str]) -> int:
    """Bytes of the column chunks at or below these paths, as Parquet writes paths."""
    metadata = pq.ParquetFile(file).metadata
    columns = (
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    )
    within = (
        column
        for column in columns
        if any(column.path_in_schema == path or column.path_in_schema.startswith(f"{path}.") for path in paths)
    )
    return sum(column.total_compressed_size for column in within)


CHOICES = [
    ["image.bytes"], ["image.path", "label"], ["label", "image.bytes"], ["nested.a.x"], ["nested.a"], ["nested.b"],
    ["nested.b", "nested.a.y"], ["points.x"], ["nested.dot"], ["text"], ["image.path", "image.bytes"],
]  # fmt: skip


@pytest.mark.parametrize("columns", CHOICES, ids="-".join)
def test_fields_are_what_pyarrow_reads_and_what_is_paid_for(
    made: tuple[pathlib.Path, pathlib.Path], columns: list[str]
) -> None:
    file, index = made
    # pyarrow names what Parquet has between a list and its items, too.
    paths = [name.replace("points.", "points.list.element.") for name in columns]
    wanted = pq.ParquetFile(file).read(columns=paths)
    with rowdex.Dataset(index, columns=columns, cache="1GiB") as dataset:
        rows = np.random.default_rng(3).permutation(ROWS)
        got = pa.table(dataset.take(rows))
        # Columns come in the order that they were asked for in, and in pyarrow in that of the file.
        assert sorted(got.column_names) == sorted(wanted.column_names)
        for name in wanted.column_names:
            assert got[name].to_pylist() == wanted[name].take(rows).to_pylist(), name
            assert got[name].type.equals(wanted[name].type) or pa.types.is_list(wanted[name].type)
        assert dataset.counters.bytes_read == chunks(file, paths)
        # An estimate is of these fields alone, too; it knows nothing of the bits that say which structs are null.
        decoded = dataset.counters.bytes_decoded
        assert decoded * 0.6 < dataset.decoded_bytes < decoded * 1.1


def test_a_loader_and_its_prediction_are_of_the_chosen_fields_alone(made: tuple[pathlib.Path, pathlib.Path]) -> None:
    file, index = made
    wanted = pq.ParquetFile(file).read(columns=["image.bytes"])["image"].to_pylist()
    for share in (None, rowdex.Share(job=f"fields {os.getpid()}", ranks=1)):
        with (
            rowdex.Dataset(index, columns=["image.bytes"], cache=1) as dataset,
            rowdex.Loader(dataset, batch_size=50, memory="64KiB", output="arrow", share=share) as loader,
        ):
            told = loader.estimate()
            seen = {}
            for batch in loader:
                seen.update(zip(batch.row_ids, pa.table(batch)["image"].to_pylist()))
            assert [seen[row] for row in range(ROWS)] == wanted
            # A pass reads the chunks of the field, and nothing else.
            alone = chunks(file, ["image.bytes"])
            assert told.first_passes > 1.5
            # Row groups are not of one size, and some are read once more than others.
            assert 0.5 * alone < told.first_bytes_read / told.first_passes <= 1.05 * alone
            if share is None:
                # Bytes count when they are read, and a pass when it is decoded: threads are ahead of the loop.
                deadline, before = time.monotonic() + 60, None
                while (now := (dataset.counters.bytes_read, loader.stats.passes)) != before:
                    assert time.monotonic() < deadline
                    before = now
                    time.sleep(0.2)
                assert 0.5 * alone < dataset.counters.bytes_read / loader.stats.passes <= 1.05 * alone


def test_conditions_classes_and_digests_reach_fields_that_are_not_served(
    made: tuple[pathlib.Path, pathlib.Path], tmp_path: pathlib.Path
) -> None:
    file, index = made
    whole = pq.ParquetFile(file).read()
    nested = enumerate(whole["nested"].to_pylist())
    kept = [row for row, value in nested if value and value["a"] and value["a"]["x"] > 99]
    with rowdex.Dataset(index, columns=["image.path"]) as dataset:
        rowdex.select(index, tmp_path / "kept.rdx", where="nested.a.x > 99")
        with rowdex.Dataset(tmp_path / "kept.rdx", columns=["image.path"]) as view:
            assert pa.table(view.take(range(len(view)))).to_pylist() == [
                {"image": value and {"path": value["path"]}} for value in whole["image"].take(kept).to_pylist()
            ]
        assert dataset.counts("nested.a.y", rowdex.order.IdSet(ROWS, kept)) == {str(row) * 9: 1 for row in kept}


def test_images_are_decoded_from_their_bytes_alone(made: tuple[pathlib.Path, pathlib.Path]) -> None:
    _, index = made
    with rowdex.Dataset(index, columns=["label", "image.bytes"]) as dataset:
        decode = {"image": lambda value: len((value or {}).get("bytes") or b"")}
        with rowdex.Loader(dataset, batch_size=30, decode=decode, output="numpy") as loader:
            assert sum(int(batch["image"].sum()) for batch in loader) > 100 * ROWS
        with pytest.raises(KeyError, match=r"'image\.bytes', which is a field: write decode=\{'image'"):
            rowdex.Loader(dataset, batch_size=30, decode={"image.bytes": len})
    with rowdex.Dataset(index, columns=["image.path"]) as dataset:
        image = rowdex.transforms.Image.__new__(rowdex.transforms.Image)
        with pytest.raises(ValueError, match=r"served with its path only.*add 'image\.bytes' to columns"):
            rowdex.Loader(dataset, batch_size=30, decode={"image": image})


def test_a_column_that_is_selected_keeps_the_fields_that_were_chosen(made: tuple[pathlib.Path, pathlib.Path]) -> None:
    file, index = made
    with rowdex.Dataset(index, columns=["image.path", "label", "nested.a.x", "nested.b"]) as dataset:
        for columns, read in (
            (["image"], ["image.path"]),
            (["label", "nested"], ["label", "nested.a.x", "nested.b"]),
            (["image.bytes"], ["image.bytes"]),
            (["text"], ["text"]),
            (["nested.dot"], ["nested.dot"]),
        ):
            with dataset.select(columns) as chosen:
                assert chosen.schema.names == [column for column in columns if "." not in column] or "." in columns[0]
                wanted = pq.ParquetFile(file).read(columns=read).slice(0, 20)
                found = pa.table(chosen.take(range(20)))
                assert all(found[name].to_pylist() == wanted[name].to_pylist() for name in wanted.column_names)
                assert sorted(found.column_names) == sorted(wanted.column_names)
    pytest.importorskip("polars")
    with rowdex.Dataset(index, columns=["image.path", "label"]) as dataset:
        assert dataset.select(dataset.column_names).schema.fields == dataset.schema.fields


@pytest.mark.parametrize("seed", range(6))
def test_every_path_of_random_structs_is_read_as_pyarrow_reads_it(seed: int, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(1000 + seed)

    def struct(depth: int) -> pa.DataType:
        def below() -> pa.DataType:
            return struct(depth - 1) if depth and rng.random() < 0.6 else random_type(rng, 1, False)

        return pa.struct([pa.field(name, below()) for name in "abc"])

    kinds = [struct(int(rng.integers(0, 3))) for _ in range(3)]
    table = pa.table({f"s{at}": random_array(rng, kind, 300, 0.2) for at, kind in enumerate(kinds)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "i.rdx")
    file = pq.ParquetFile(tmp_path / "a.parquet")

    def paths(above: str, kind: pa.DataType) -> list[str]:
        below = [paths(f"{above}.{field.name}", field.type) for field in kind] if pa.types.is_struct(kind) else []
        return [above, *(path for each in below for path in each)]

    everything = [path for at, kind in enumerate(kinds) for path in paths(f"s{at}", kind)]
    for path in everything:
        wanted = pa.concat_tables(file.read_row_group(at, columns=[path]) for at in range(file.num_row_groups))
        with rowdex.Dataset(tmp_path / "i.rdx", columns=[path]) as dataset:
            got = pa.table(dataset.take(range(300)))
        assert got.column_names == wanted.column_names
        assert repr(got.to_pylist()) == repr(wanted.to_pylist()), path
