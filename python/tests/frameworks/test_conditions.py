"""Conditions in SQL, beside DuckDB's ``where`` over the same files."""

from __future__ import annotations

import datetime
import decimal
import pathlib
import random
import time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.order import IdSet

from .need import need

SECONDS = 30
WORDS = ["", "a", "ab", "Ab", "ÄB", "äb", "日本", "😀x", "o'clock", "100%", "under_score", "z" * 90]


def table(random: random.Random, first: int, rows: int) -> pa.Table:
    """Random values near each other, with nulls, NaN and both zeros."""
    share = random.choice([0, 0, 0.2, 0.6])

    def column(make: Any) -> list[Any]:
        return [None if random.random() < share else make(row) for row in range(first, first + rows)]

    floats = [float("nan"), -0.0, 0.0, float("inf"), float("-inf")]
    day = datetime.date(2024, 1, 1)
    meta = pa.struct([("lang", pa.string()), ("score", pa.float64()), ("deep", pa.struct([("n", pa.int32())]))])
    return pa.table(
        {
            "id": pa.array(range(first, first + rows), pa.int64()),
            "n": pa.array(column(lambda row: row // 10 + random.randrange(-2, 3)), pa.int32()),
            "tiny": pa.array(column(lambda row: row % 200), pa.uint8()),
            "x": pa.array(column(lambda row: random.choice([*floats, row / 8, -row / 8, row / 8])), pa.float64()),
            "f": pa.array(column(lambda row: random.choice([0.1, 0.25, 1.5, -0.0, 0.0, float("nan")])), pa.float32()),
            "Text": pa.array(column(lambda row: random.choice(WORDS)), pa.string()),
            "kind": pa.array(column(lambda row: random.choice(WORDS[:4])), pa.string()).dictionary_encode(),
            "flag": pa.array(column(lambda row: row % 50 < 20), pa.bool_()),
            "day": pa.array(column(lambda row: day + datetime.timedelta(row // 4)), pa.date32()),
            "moment": pa.array(
                column(lambda row: datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=37 * row)),
                pa.timestamp(random.choice(["ms", "us"])),
            ),
            "clock": pa.array(
                column(lambda row: (datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=37 * row)).time()),
                random.choice([pa.time32("ms"), pa.time64("us")]),
            ),
            "price": pa.array(
                column(lambda row: decimal.Decimal(row * 7 % 5000) / 100), pa.decimal128(random.choice([10, 22]), 2)
            ),
            "tokens": pa.array(
                column(lambda row: [random.choice([None, 1, 2, row % 9]) for _ in range(random.randrange(4))]),
                pa.list_(pa.int32()),
            ),
            "tags": pa.array(
                column(lambda row: [random.choice(WORDS[:5]) for _ in range(random.randrange(3))]),
                pa.list_(pa.string()),
            ),
            "meta": pa.array(
                column(
                    lambda row: {
                        "lang": random.choice(["en", "de", None]),
                        "score": random.choice([None, row / 100]),
                        "deep": random.choice([None, {"n": row // 20}]),
                    }
                ),
                meta,
            ),
        }
    )


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def condition(random: random.Random, rows: int, depth: int = 2) -> str:
    """A condition that means the same to both."""
    if depth and random.random() < 0.4:
        a, b = condition(random, rows, depth - 1), condition(random, rows, depth - 1)
        return random.choice(
            [
                f"({a} and {b})",
                f"({a} or {b})",
                f"not ({a})",
                f"(({a}) is not true or {b})",
                f"case when {a} then {b} else flag end",
            ]
        )
    op = random.choice(["=", "<>", "<", "<=", ">", ">=", "is distinct from"])
    row = random.randrange(-5, rows + 5)
    day = datetime.date(2024, 1, 1) + datetime.timedelta(row // 4)
    word, other = literal(random.choice(WORDS)), literal(random.choice(WORDS))
    number = random.choice([row / 8, 0.0, -0.0, 0.1, 1.5])
    price = decimal.Decimal(row * 7 % 5000) / 100
    clock = (datetime.datetime(2024, 1, 1) + datetime.timedelta(minutes=37 * row)).time()
    one = random.choice(
        [
            f"id {op} {row}",
            f"n {op} {row // 10}",
            f"n between {row // 10 - 3} and {row // 10 + 3}",
            f"n in ({row // 10}, {row // 10 + 1}, {row // 10 + 5}, 999)",
            f"n not in ({row // 10}, {row // 10 + 1})",
            f"n not in ({row // 10}, null)",
            f"n + tiny {op} {row // 5}",
            f"abs(n - {row // 10}) * 2 < 7",
            f"n % 7 = {row % 7}",
            "id % nullif(tiny % 3, 0) = 1",
            f"tiny {op} {row % 256}",
            f"cast(n as varchar) = '{row // 10}'",
            f"n = '{row // 10}'",
            f"x {op} {number}",
            f"x between {-abs(number)} and {abs(number)}",
            f"0 - x {op} {number}",
            f"x in ({number}, 1.25, 'nan'::double)",
            "isnan(x)",
            "x * 2 > id / 8.0",
            f"f {op} {number}::real",
            "f in (0.1::real, 1.5)",
            f"Text {op} {word}",
            f"Text in ({word}, {other})",
            f"Text like {literal(random.choice(['a%', '%b', '%b%', 'a_', '', '%', 'z%', 'Ä_', '日%', '_x']))}",
            "Text not like 'a%'",
            "Text ilike 'ab%'",
            f"length(Text) {op} {random.randrange(5)}",
            f"lower(Text) = {word}",
            f"coalesce(Text, kind, 'none') {op} {word}",
            f"Text || kind = {word}",
            "substr(Text, 2, 1) = 'b'",
            f"starts_with(Text, {word})",
            "strpos(Text, 'b') = 2",
            "regexp_replace(Text, '[aä]', 'q') = 'qb'",
            f"kind {op} {word}",
            "kind is null",
            "flag",
            "not flag",
            "flag is not true",
            f"flag = (n > {row // 10})",
            f"day {op} '{day}'",
            f"day between date '{day}' and date '{day + datetime.timedelta(9)}'",
            f"day + interval '3 days' > timestamp '{day} 12:00:00'",
            f"extract(month from day) {op} {random.randrange(1, 13)}",
            f"date_part('day', moment) = {random.randrange(1, 29)}",
            "date_trunc('month', moment) = timestamp '2024-01-01 00:00:00'",
            f"moment {op} timestamp '{day} 08:00:00'",
            f"moment >= '{day}'",
            "cast(moment as date) = day",
            f"moment {op} timestamp '{day} 08:00:00.0005'",
            f"clock {op} '{clock}'",
            f"not (clock {op} '{clock}')",
            f"not (clock between '06:00' and '{clock}')",
            f"clock in ('{clock}', '00:37:00', '12:20:00')",
            f"case when clock < '{clock}' then flag else n > {row // 10} end",
            f"n {op} {row / 20}",
            f"not (n {op} {row / 20})",
            f"n between {row / 20 - 2.5} and {row / 20 + 1}",
            f"n in ({row / 20}, {row // 10}, 2.5, 3000000000)",
            f"case n when {row / 20} then true when {row // 10} then false else flag end",
            f"n {op} {random.choice([3000000000, -3000000000, 2.5e18])}",
            f"tiny {op} {random.choice([-1, 255.5, 256, 12.25])}",
            f"f {op} {random.choice(['1e300', '-1e300', '1e-300'])}",
            f"price {op} {price}5",
            f"price {op} {price}",
            f"price {op} {row}",
            f"price + 0.01 {op} {price}",
            f"price between {min(price, 20)} and {max(price, 20)}",
            f"price * 2 > {price}",
            "tokens is null",
            f"array_length(tokens) {op} {random.randrange(4)}",
            f"array_has(tokens, {random.randrange(9)})",
            f"tokens[1] {op} {random.randrange(5)}",
            f"array_has(tags, {word})",
            f"{word} = any(tags)",
            f"tags[2] = {word}",
            "meta is not null",
            f"meta.lang = {random.choice(['en', 'fr', 'de'])!r}",
            "meta.lang is null",
            f"meta.score {op} {row / 100}",
            f"meta.deep.n {op} {row // 20}",
            "meta.deep is null",
        ]
    )
    # What follows `is distinct from` is refused without parentheses.
    return f"({one})" if op.startswith("is") else one


def test_random_conditions_choose_the_rows_that_duckdb_chooses(tmp_path: pathlib.Path) -> None:
    duckdb = need("duckdb")
    connection = duckdb.connect(config={"threads": 1})
    started = time.monotonic()
    compared = kept = 0
    wrong = []
    for seed in range(4):
        chance = random.Random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        rows = 0
        for file in range(3):
            count = chance.randrange(1, 400)
            pq.write_table(table(chance, rows, count), folder / f"{file}.parquet", row_group_size=64)
            rows += count
        rowdex.build([folder], tmp_path / f"{seed}.rdx", schema="union")
        dataset = rowdex.Dataset(tmp_path / f"{seed}.rdx", threads=1)
        for _ in range(75):
            if time.monotonic() - started > SECONDS:
                break
            text = condition(chance, rows)
            found = connection.execute(f"select id from '{folder}/*.parquet' where {text} order by id").fetchnumpy()
            try:
                ids = list(IdSet.where(dataset, text).ids())
            except rowdex.Error as error:
                wrong.append(f"seed {seed}: {text}: {error}")
                continue
            if ids != found["id"].tolist():
                odd = sorted(set(ids) ^ set(found["id"].tolist()))[:3]
                wrong.append(f"seed {seed}: {text}: {len(ids)} and {len(found['id'])} rows, such as {odd}")
            compared += 1
            kept += len(ids)
    assert not wrong, "\n".join(wrong)
    assert compared > 50 and kept > 1000


def test_a_view_and_an_epoch_have_the_rows_of_the_condition(tmp_path: pathlib.Path) -> None:
    (tmp_path / "data").mkdir()
    pq.write_table(table(random.Random(1), 0, 500), tmp_path / "data/a.parquet", row_group_size=100)
    rowdex.build([tmp_path / "data"], tmp_path / "train.rdx")
    report = rowdex.select(tmp_path / "train.rdx", tmp_path / "some.rdx", where="id >= 100 and id % 2 = 0")
    assert report.rows == 200
    assert rowdex.Index(tmp_path / "some.rdx").view["choices"][0]["where"] == "id >= 100 and id % 2 = 0"
    dataset = rowdex.Dataset(tmp_path / "train.rdx", columns=["flag"])
    kept = IdSet.where(dataset, "id >= 100 and id % 2 = 0")
    assert list(kept) == list(range(100, 500, 2))
    assert list(IdSet.where(dataset.index, "id < 110", of=kept)) == [100, 102, 104, 106, 108]
    with pytest.raises(rowdex.errors.ArgumentError, match='did you mean "Text"'):
        IdSet.where(dataset, "txt = 'a'")
    with pytest.raises(rowdex.errors.ArgumentError, match="did you mean"):
        rowdex.select(tmp_path / "train.rdx", tmp_path / "other.rdx", where="txt = 'a'")
    assert not (tmp_path / "other.rdx").exists()
