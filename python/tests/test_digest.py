"""Digests of rows are those that an implementation over pyarrow's values computes, whatever the files are like."""

from __future__ import annotations

import itertools
import pathlib
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import rowdex

from . import row_digests
from .conftest import REPOSITORY, ROWS
from .random_tables import pick, random_array, random_type

CORPUS = REPOSITORY.parent / "shared/data/parquet-testing/data"


def hexadecimal(digest: int) -> str:
    return f"{digest:032x}"


def written(tables: list[pa.Table], folder: pathlib.Path, **options: object) -> pathlib.Path:
    """The index of these tables, each in a file of its own."""
    folder.mkdir()
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", **options)  # type: ignore[arg-type]
    rowdex.build(folder, folder / "train.rdx")
    return folder / "train.rdx"


def test_digests_are_the_same_for_ever(tmp_path: pathlib.Path) -> None:
    table = pa.table({"a": pa.array([1, None], pa.int32()), "b": pa.array(["x", ""])})
    assert [hexadecimal(digest) for digest in row_digests.of_rows(table)] == GOLDEN
    for row, digest in enumerate(GOLDEN):
        assert rowdex.rows_digest(written([table.slice(row, 1)], tmp_path / str(row))) == digest


OTHERS = re.compile("view|fixed_size_list|date64")
GOLDEN = ["b18393c725d6b9ac5611580872047ec2", "014c2e2d4c9645ee7c16d53554273e80"]


@pytest.mark.parametrize("seed", range(30))
def test_random_tables_have_the_digests_of_pyarrows_values(seed: int, tmp_path: pathlib.Path) -> None:
    rng = np.random.default_rng(seed)
    count, columns = int(rng.integers(1, 400)), int(rng.integers(1, 6))
    # pyarrow neither takes nor slices rows of the former, and reads the latter back as dates of another kind.
    kinds = (kind for kind in iter(lambda: random_type(rng, 3), None) if not OTHERS.search(str(kind)))
    types = list(itertools.islice(kinds, columns))
    table = pa.table(
        {f"c{number}": random_array(rng, kind, count, float(rng.choice([0, 0.3]))) for number, kind in enumerate(types)}
    )
    cut = int(rng.integers(0, count + 1))
    index = written(
        [table.slice(0, cut), table.slice(cut)], tmp_path / "data", row_group_size=int(rng.integers(1, count + 1)),
        use_dictionary=bool(rng.random() < 0.5), data_page_version=pick(rng, ["1.0", "2.0"]),
    )  # fmt: skip
    # As pyarrow reads them back: it writes some types as others.
    read = pa.concat_tables([pq.read_table(index.parent / f"{number}.parquet") for number in range(2)])
    assert rowdex.rows_digest(index) == hexadecimal(row_digests.of_table(read)), types
    shuffled = read.take(pa.array(rng.permutation(count)))
    other = written([shuffled], tmp_path / "other", compression="none")
    assert rowdex.rows_digest(other) == hexadecimal(row_digests.of_table(pq.read_table(other.parent / "0.parquet")))
    assert rowdex.same_rows(index, other)


@pytest.mark.skipif(not CORPUS.exists(), reason="shared/data/parquet-testing is not there")
def test_public_files_have_the_digests_of_pyarrows_values(tmp_path: pathlib.Path) -> None:
    compared = 0
    for path in sorted(CORPUS.glob("*.parquet")):
        try:
            table = pq.read_table(path)
            rowdex.build(path, tmp_path / "i.rdx", overwrite=True)
            dataset = rowdex.Dataset(tmp_path / "i.rdx")
            digest = rowdex.rows_digest(dataset)
        except (pa.ArrowException, OSError, rowdex.Error):
            continue
        try:
            expected = hexadecimal(row_digests.of_table(table))
        except TypeError:  # Intervals and what else pyarrow has no type for.
            continue
        if pa.schema(dataset.schema).names != table.column_names:
            continue
        compared += 1
        assert digest == expected, path.name
    assert compared > 35


def test_an_order_is_proven_and_a_row_that_breaks_it_is_named(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    index = folder / "train.rdx"
    table = pa.concat_tables([pq.read_table(path) for path in sorted(folder.glob("*.parquet"))])
    sampler = rowdex.DistributedSampler(rowdex.Dataset(index), batch_size=ROWS, seed=42, order="global")
    order = pa.array(list(sampler))
    shuffled = table.take(order)
    other = written([shuffled.slice(0, 300), shuffled.slice(300)], tmp_path / "data", row_group_size=77)
    assert rowdex.same_rows(index, other, order="global", seed=42)
    assert not rowdex.same_rows(index, other, order="global", seed=43)
    assert rowdex.same_rows(index, other)
    names = pc.if_else(pc.equal(shuffled["id"], order[400].as_py()), "another", shuffled["name"])
    wrong = written([shuffled.set_column(6, "name", names)], tmp_path / "wrong", row_group_size=77)
    found = rowdex.same_rows(index, wrong, order="global", seed=42)
    assert not found and found.digest != found.other_digest
    assert found.difference is not None
    assert (found.difference.file, found.difference.row_group) == ("0.parquet", 5)
    assert "row id of 400..401" in str(found.difference)


def test_what_cannot_be_compared_is_refused(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    other = written([pa.table({"z": [1]})], tmp_path / "data")
    with pytest.raises(rowdex.errors.ArgumentError, match="no column in common"):
        rowdex.same_rows(folder / "train.rdx", other)
    other = written([pa.table({"id": ["1"]})], tmp_path / "more")
    with pytest.raises(rowdex.errors.SchemaError, match="kind int.*string") as refused:
        rowdex.same_rows(folder / "train.rdx", other)
    assert refused.value.column == "id"
    part = rowdex.Dataset(folder / "train.rdx", ["label"])
    assert rowdex.rows_digest(part) != rowdex.rows_digest(folder / "train.rdx")
