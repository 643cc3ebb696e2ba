"""``rowdex.rewrite``: what others read of the output, the command beside it, Ctrl-C, and what is refused."""

from __future__ import annotations

import datetime
import decimal
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex

from . import global_model, stores
from .conftest import REPOSITORY, ROWS

COMMAND = os.environ.get("ROWDEX_COMMAND", "")
PANDAS = json.dumps({"index_columns": [], "columns": [], "pandas_version": "2.3.3"})
FEATURES = json.dumps({"info": {"features": {"text": {"dtype": "string", "_type": "Value"}}}})


def read(folder: Any) -> pa.Table:
    """The rows of the output files, one file after the other."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(pathlib.Path(folder).glob("*.parquet"))])


def data_files(folder: Any) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).glob("*.parquet"))}


def many_rows(rows: int) -> pa.Table:
    """With what pandas and Hugging Face note of it, of several kinds of columns."""
    rng = np.random.default_rng(1)
    texts = [None if row % 11 == 0 else f"row {row} " + "x" * (row % 37) for row in range(rows)]
    tokens = [list(range(row % 5)) if row % 13 else None for row in range(rows)]
    points = [{"a": row, "b": str(row % 3)} for row in range(rows)]
    table = pa.table(
        {
            "id": pa.array(np.arange(rows)),
            "x": pa.array(rng.random(rows)),
            "text": pa.array(texts, pa.string()),
            "color": pa.array(rng.choice(["red", "green", "blue"], rows)).dictionary_encode(),
            "day": pa.array(np.arange(rows) * 1_000_000, pa.timestamp("us", tz="Europe/Berlin")),
            "tokens": pa.array(tokens, pa.list_(pa.int32())),
            "point": pa.array(points, pa.struct({"a": pa.int64(), "b": pa.string()})),
        }
    )
    return table.replace_schema_metadata({"pandas": PANDAS, "huggingface": FEATURES})


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """70,001 rows in two files, with an index."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "data").mkdir()
    table = many_rows(70_001)
    for number, part in enumerate([table.slice(0, 40_000), table.slice(40_000)]):
        pq.write_table(part, folder / f"data/{number}.parquet", row_group_size=5_000)
    rowdex.build(folder / "data", folder / "train.rdx", progress=False)
    return folder


@pytest.mark.parametrize("memory", ["1MiB", "1GiB"])
def test_others_read_the_rows_of_the_input_in_the_order_and_its_metadata(
    large: pathlib.Path, tmp_path: pathlib.Path, memory: str
) -> None:
    report = rowdex.rewrite(large / "train.rdx", tmp_path / "out", seed=42, memory=memory, files=3, verify=True)
    assert (report.rows, report.files, report.bytes_spilled > 0) == (70_001, 3, memory == "1MiB")
    assert report.rows_digest == rowdex.rows_digest(large / "train.rdx")
    order = global_model.positions(70_001, 42)
    given = read(large / "data")
    written = read(tmp_path / "out")
    assert written.schema.equals(given.schema, check_metadata=True)
    # A dictionary has its values in another order.
    decoded = [table.set_column(3, "color", table["color"].cast(pa.string())) for table in (given, written)]
    assert decoded[1].equals(decoded[0].take(pa.array(order)))

    duckdb, polars = (pytest.importorskip(name, reason=f"{name} is not installed") for name in ("duckdb", "polars"))
    files = str(tmp_path / "out/*.parquet")
    assert [row for (row,) in duckdb.sql(f"select id from '{files}'").fetchall()] == order
    sums = "select count(text), sum(len(tokens)), sum(point.a), count(distinct color), max(epoch_us(day)), min(x) from"
    of_input = duckdb.sql(f"{sums} '{large / 'data'}/*.parquet'").fetchall()
    assert duckdb.sql(f"{sums} '{files}'").fetchall() == of_input
    frame = polars.read_parquet(files)
    assert frame["id"].to_list() == order
    assert frame.sort("id").equals(polars.read_parquet(str(large / "data/*.parquet")))


def test_the_command_writes_the_very_same_files(large: pathlib.Path, tmp_path: pathlib.Path) -> None:
    if not COMMAND:
        pytest.skip("ROWDEX_COMMAND does not name the command")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"seed": 5, "files": 2}, ["--seed", "5", "--files", "2"]),
        ({"order": "blocks(3)", "memory": "1MiB", "compression": "zstd:5"},
         ["--order", "blocks:3", "--memory", "1MiB", "--compression", "zstd:5"]),
        ({"order": "sequential", "row_group_rows": 1000, "file_bytes": "300KiB", "origin": "row"},
         ["--order", "sequential", "--row-group-rows", "1000", "--file-bytes", "300KiB",
          "--origin", "row"]),
        ({"columns": ["id", "text"]}, ["--columns", "id,text"]),
    ]  # fmt: skip
    for number, (options, arguments) in enumerate(cases):
        ours, theirs = tmp_path / f"ours-{number}", tmp_path / f"theirs-{number}"
        report = rowdex.rewrite(large / "train.rdx", ours, **options)
        done = subprocess.run(
            [COMMAND, "rewrite", str(large / "train.rdx"), "-o", str(theirs), "--json", *arguments],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert data_files(ours) == data_files(theirs) and (ours / "_rewrite.json").read_bytes() == (
            theirs / "_rewrite.json"
        ).read_bytes(), options
        told = json.loads(done.stdout)
        for name in ("rows", "files", "kept_files", "bytes_written", "bytes_spilled", "rows_digest"):
            assert told[name] == getattr(report, name), name
        # What one front began the other goes on with.
        assert rowdex.rewrite(large / "train.rdx", theirs, resume=True, **options).kept_files == report.files


def test_steps_in_tasks_write_the_files_of_one_call(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    whole = rowdex.rewrite(folder / "train.rdx", tmp_path / "whole", seed=5, files=3)
    assert whole.index_path == str(tmp_path / "whole/index.rdx")
    common: dict[str, Any] = {"seed": 5, "files": 3, "spill": tmp_path}
    with pytest.raises(rowdex.errors.NotFoundError, match="spill"):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", step="write", **common)
    for task in (2, 0, 1):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", step="spill", task=task, tasks=3, **common)
    for task in (1, 0):
        done = rowdex.rewrite(folder / "train.rdx", tmp_path / "out", step="write", task=task, tasks=2, **common)
        assert done.index_path is None
    rowdex.rewrite(folder / "train.rdx", tmp_path / "out", step="index", verify=True, **common)
    assert data_files(tmp_path / "out") == data_files(tmp_path / "whole")


def test_a_shuffle_of_a_store_into_a_store_writes_the_files_of_a_local_one(
    large: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    options: dict[str, Any] = {"seed": 5, "files": 3, "memory": "2MiB", "progress": False}
    rowdex.rewrite(large / "train.rdx", tmp_path / "local", **options)
    with stores.bucket(tmp_path / "server") as bucket:
        shutil.copytree(large / "data", bucket.folder / "data")
        rowdex.build(f"{bucket.url}/data/", tmp_path / "train.rdx", progress=False, store=bucket.options)
        options.update(store=bucket.options, spill=tmp_path / "spill")
        (tmp_path / "spill").mkdir()
        report = rowdex.rewrite(tmp_path / "train.rdx", f"{bucket.url}/out", verify=True, **options)
        assert (report.rows, report.files, report.bytes_spilled > 0) == (70_001, 3, True)
        assert report.rows_digest == rowdex.rows_digest(large / "train.rdx")
        assert data_files(bucket.folder / "out") == data_files(tmp_path / "local")
        assert not list((tmp_path / "spill").iterdir())
        with pytest.raises(rowdex.errors.AlreadyExistsError, match=f"{bucket.url}/out"):
            rowdex.rewrite(tmp_path / "train.rdx", f"{bucket.url}/out", **options)
        with rowdex.Dataset(report.index_path, store=bucket.options) as dataset:
            first = global_model.positions(70_001, 5)[:9]
            assert dataset.take(range(9)).to_pydict(["id"])["id"] == list(first)


def test_sources_are_datasets_and_indexes(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    order = rowdex.order.Explicit([900, 3, 3, 41])
    index = rowdex.Index(folder / "train.rdx")
    with rowdex.Dataset(index, columns=["id", "name"]) as dataset:
        rowdex.rewrite(dataset, tmp_path / "dataset", order=order, origin="row", verify=True)
        assert read(tmp_path / "dataset").to_pydict() == {
            "id": [900, 3, 3, 41], "name": [f"row {row}" for row in (900, 3, 3, 41)], "row": [900, 3, 3, 41],
        }  # fmt: skip
        rowdex.rewrite(dataset, tmp_path / "fewer", order=order, columns=["name"])
        assert read(tmp_path / "fewer").column_names == ["name"]
        with pytest.raises(TypeError, match="those of the dataset"):
            rowdex.rewrite(dataset, tmp_path / "x", root=folder)
    rowdex.rewrite(index, tmp_path / "index", seed=9)
    assert read(tmp_path / "index").num_rows == ROWS


def test_progress_is_told_over_both_passes_and_its_exception_is_raised(
    large: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    told: list[tuple[int, int, int]] = []
    options: dict[str, Any] = {"seed": 1, "memory": "1MiB", "threads": 2}
    rowdex.rewrite(large / "train.rdx", tmp_path / "out", progress=lambda *at: told.append(at), **options)
    assert told == sorted(told) and told[-1][:2] == (140_002, 140_002)
    assert told[-1][2] > sum(map(len, data_files(tmp_path / "out").values()))

    def fail(*_: int) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        rowdex.rewrite(large / "train.rdx", tmp_path / "failed", progress=fail, **options)
    with pytest.raises(TypeError, match="progress="):
        rowdex.rewrite(large / "train.rdx", tmp_path / "x", progress="yes", **options)  # type: ignore[call-overload]


INTERRUPTED = """
import os, signal, sys, threading, time
import rowdex
pressed = []

def press(done, rows, _):
    if done * 4 > rows and not pressed:
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

try:
    rowdex.rewrite(sys.argv[1], sys.argv[2], seed=1, memory="1MiB", threads=2, progress=press)
except KeyboardInterrupt:
    print("interrupted", time.monotonic() - pressed[0])
report = rowdex.rewrite(sys.argv[1], sys.argv[2], seed=1, memory="1MiB", threads=2, resume=True)
print("rows", report.rows)
"""


def test_ctrl_c_ends_it_at_once_and_it_goes_on_in_the_same_process(large: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rowdex.rewrite(large / "train.rdx", tmp_path / "whole", seed=1, memory="1MiB")
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(large / "train.rdx"), str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (interrupted, seconds), (_, rows) = (line.split() for line in done.stdout.splitlines())
    assert (interrupted, rows) == ("interrupted", "70001")
    assert float(seconds) < 30, "half a second on a machine of one's own"
    assert data_files(tmp_path / "out") == data_files(tmp_path / "whole")
    assert not [name for name in os.listdir(tmp_path / "out") if "tmp-" in name or name == "_spill"]


def test_what_is_in_the_way_is_refused_and_nothing_is_lost(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    rowdex.rewrite(folder / "train.rdx", tmp_path / "out", seed=1)
    before = data_files(tmp_path / "out")
    with pytest.raises(rowdex.errors.AlreadyExistsError, match="`overwrite`"):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", seed=1)
    with pytest.raises(ValueError, match="choose one of them"):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", seed=1, resume=True, overwrite=True)
    no: Any = "no"
    with pytest.raises(rowdex.errors.ArgumentError, match="`resume`: .* expected a boolean"):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "other", seed=1, resume=no)
    with pytest.raises(rowdex.errors.StateError):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", seed=2, resume=True)
    with pytest.raises(rowdex.errors.ArgumentError, match="file of the input"):
        rowdex.rewrite(folder / "train.rdx", folder, seed=2)
    assert data_files(tmp_path / "out") == before
    assert rowdex.rewrite(folder / "train.rdx", tmp_path / "out", seed=2, overwrite=True).kept_files == 0
    assert data_files(tmp_path / "out") != before


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"compression": "gzip"}, "no compression is called"),
        ({"files": 0}, "0 files"),
        ({"files": 2, "file_bytes": 10}, "and not both"),
        ({"files": 10**9}, "files for 1003 rows"),
        ({"row_group_rows": 0}, "0 rows of a row group"),
        ({"origin": "id"}, "name of a column"),
        ({"memory": 0}, "memory is 0"),
        ({"order": "nothing"}, "nothing"),
        ({"columns": ["none"]}, "none"),
        ({"where": "id < 0"}, "no row meets"),
        ({"step": "both"}, "unknown variant `both`"),
        ({"step": "spill", "task": 1}, "task 1 of 1"),
        ({"task": 1}, "task"),
        ({"step": "write", "resume": True}, "resume"),
        ({"step": "write", "verify": True}, "verify reads what is written"),
    ],
)
def test_wrong_options_are_named(
    folder: pathlib.Path, tmp_path: pathlib.Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises((rowdex.Error, ValueError), match=said):
        rowdex.rewrite(folder / "train.rdx", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists() or "step" in options


SBATCH = """#!/bin/sh
# Runs the tasks of an array one after the other, and tells the number of the job.
array=0-0
while [ $# -gt 0 ]; do
    case $1 in
        --array=*) array=${1#--array=} ;;
        --wrap) wrap=$2; shift ;;
        --dependency=afterok:*) test -e "$JOBS/${1#--dependency=afterok:}" || exit 9 ;;
    esac
    shift
done
for task in $(seq "${array%-*}" "${array#*-}"); do
    SLURM_ARRAY_TASK_ID=$task sh -c "$wrap" >&2 || exit 8
done
job=$(ls "$JOBS" | wc -l)
touch "$JOBS/$job"
echo "$job"
"""


def test_the_recipes_of_the_manual_do_the_work_on_many_machines(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    if not COMMAND:
        pytest.skip("ROWDEX_COMMAND does not name the command")
    page = (REPOSITORY / "docs/rewriting.md").read_text()
    slurm = re.search(r"```sh\n(shuffle=.*?)```", page, re.DOTALL)
    kubernetes = re.search(r"command: \[sh, -c, '(.*?)'\]", page, re.DOTALL)
    assert slurm and kubernetes
    for name in ("bin", "jobs", "slurm", "kubernetes", "scratch"):
        (tmp_path / name).mkdir()
    (tmp_path / "bin/sbatch").write_text(SBATCH)
    (tmp_path / "bin/sbatch").chmod(0o755)
    (tmp_path / "bin/rowdex").symlink_to(COMMAND)

    def run(text: str, output: str, **environment: str) -> None:
        places = {"/data": folder, "/out": tmp_path / output, "/scratch": tmp_path / "scratch"}
        for place, found in places.items():
            text = text.replace(place, str(found))
        path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
        variables = {**os.environ, "PATH": path, "JOBS": str(tmp_path / "jobs"), **environment}
        # As YAML joins the lines of a text.
        text = " ".join(text.split("\n")) if output == "kubernetes" else text
        done = subprocess.run(["sh", "-ec", text], capture_output=True, text=True, env=variables)
        assert done.returncode == 0, done.stderr

    rowdex.rewrite(folder / "train.rdx", tmp_path / "whole", seed=42, memory="64GiB")
    run(slurm[1], "slurm")
    assert len(list((tmp_path / "jobs").iterdir())) == 3
    task = kubernetes[1]
    for step in ("spill", "write"):
        for index in range(16):
            run(task.replace("--step spill", f"--step {step}"), "kubernetes", JOB_COMPLETION_INDEX=str(index))
    run(task[: task.index("--step")] + "--step index", "kubernetes")
    for output in ("slurm", "kubernetes"):
        assert data_files(tmp_path / output) == data_files(tmp_path / "whole")
    assert not list((tmp_path / "scratch").iterdir())


def test_columns_stay_what_the_parquet_schema_says_beyond_their_types(tmp_path: pathlib.Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    select = """select i as id, {'a': i}::variant as v, '10:00:00+02'::timetz as t,
                ('POINT(' || i || ' 1)')::geometry as g from range(500) t(i)"""
    (tmp_path / "data").mkdir()
    duckdb.sql(f"copy ({select}) to '{tmp_path}/data/0.parquet' (format parquet, geoparquet_version 'NONE')")
    rowdex.build(tmp_path / "data", tmp_path / "data.rdx", progress=False)
    rowdex.rewrite(tmp_path / "data.rdx", tmp_path / "out", seed=3, memory="64KiB", verify=True)
    described, rows, said = [], [], []
    for folder in ("data", "out"):
        files = f"'{tmp_path}/{folder}/*.parquet'"
        described.append([row[:2] for row in duckdb.sql(f"describe select * from {files}").fetchall()])
        query = f"select id, v.a::int, t::varchar, g::varchar from {files} order by id"
        rows.append(duckdb.sql(query).fetchall())
        schema = pq.ParquetFile(next((tmp_path / folder).glob("*.parquet"))).schema
        leaves = map(schema.column, range(len(schema)))
        said.append({leaf.path: str(leaf.logical_type) for leaf in leaves if leaf.path in "tg"})
    assert described[0] == described[1] and dict(described[0])["v"] == "VARIANT"
    assert rows[0] == rows[1] and rows[0][7][:2] == (7, 7)
    assert said[0] == said[1] and "isAdjustedToUTC=true" in said[0]["t"]


def test_json_uuids_and_intervals_stay_what_they_are_in_the_parquet_schema(tmp_path: pathlib.Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    spans = "{'n': i, 'w': to_days(i::int)} as w, to_months(i::int) + to_seconds(i) as span"
    json = "('[' || i || ']')::%s as j, uuid() as u, {'k': '[1]'::%s} as s"
    select = f"select i as id, {json}, {spans} from range(500) t(i)"
    (tmp_path / "data").mkdir()
    for number in range(2):
        duckdb.sql(f"copy ({select % ('JSON', 'JSON')}) to '{tmp_path}/data/{number}.parquet'")
    rowdex.build(tmp_path / "data", tmp_path / "data.rdx", progress=False)
    rowdex.rewrite(tmp_path / "data.rdx", tmp_path / "out", seed=3, memory="64KiB", verify=True)
    kinds = {"id": "BIGINT", "j": "JSON", "u": "UUID", "s": "STRUCT(k JSON)"}
    kinds |= {"w": "STRUCT(n BIGINT, w INTERVAL)", "span": "INTERVAL"}
    for folder in ("data", "out"):
        found = duckdb.sql(f"describe select * from '{tmp_path}/{folder}/*.parquet'").fetchall()
        assert {name: kind for name, kind, *_ in found} == kinds, folder
    query = "select * from '{}/*.parquet' order by id, u"
    given, written = (duckdb.sql(query.format(tmp_path / folder)).fetchall() for folder in ("data", "out"))
    assert given == written
    # A file without a column says nothing of it, the first one included.
    for folder, number in (("fewer", 0), ("first", 2)):
        (tmp_path / folder).mkdir()
        duckdb.sql(f"copy (select i as id from range(500) t(i)) to '{tmp_path}/{folder}/{number}.parquet'")
        (tmp_path / folder / "1.parquet").write_bytes((tmp_path / "data" / "1.parquet").read_bytes())
        rowdex.build(tmp_path / folder, tmp_path / f"{folder}.rdx", schema="union")
        rowdex.rewrite(tmp_path / f"{folder}.rdx", tmp_path / f"{folder}-out", seed=3)
        found = duckdb.sql(f"describe select * from '{tmp_path}/{folder}-out/*.parquet'").fetchall()
        assert {name: kind for name, kind, *_ in found} == kinds, folder
    # Where files do not agree it is what all of them are.
    duckdb.sql(f"copy ({select % ('VARCHAR', 'VARCHAR')}) to '{tmp_path}/data/2.parquet'")
    rowdex.build(tmp_path / "data", tmp_path / "mixed.rdx", progress=False)
    rowdex.rewrite(tmp_path / "mixed.rdx", tmp_path / "mixed", seed=3)
    found = duckdb.sql(f"describe select * from '{tmp_path}/mixed/*.parquet'").fetchall()
    assert {name: kind for name, kind, *_ in found} == {**kinds, "j": "VARCHAR", "s": "STRUCT(k VARCHAR)"}


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
def test_types_that_the_encoder_lacks_are_written_as_types_that_others_read(tmp_path: pathlib.Path) -> None:
    digits = pa.array([decimal.Decimal(row % 10) for row in range(400)], pa.decimal32(1, 0))
    days = pa.array([datetime.date(2020, 1, 1) + datetime.timedelta(row) for row in range(400)], pa.date64())
    words = [f"w{row}" for row in range(400)]

    def part(first: int) -> pa.Table:
        some = slice(first, first + 100)
        codes = pa.DictionaryArray.from_arrays(pa.array(range(100), pa.int8()), pa.array(words[some]))
        lists = pa.ListArray.from_arrays(pa.array(range(101), pa.int32()), digits[some])
        due = days[some].dictionary_encode()
        return pa.table({"code": codes, "digit": digits[some], "digits": lists, "day": days[some], "due": due})

    parts = [part(first) for first in range(0, 400, 100)]
    (tmp_path / "data").mkdir()
    with pq.ParquetWriter(tmp_path / "data" / "0.parquet", parts[0].schema) as writer:
        for each in parts:
            writer.write_table(each)
    index = tmp_path / "train.rdx"
    rowdex.build(tmp_path / "data", index)
    rowdex.rewrite(index, tmp_path / "out", order="sequential")
    got = [COMMAND, "get", str(index), "0..400", "--output", str(tmp_path / "got.arrow")]
    subprocess.run(got, check=True, timeout=60)
    with rowdex.Dataset(tmp_path / "out" / "index.rdx") as dataset:
        own = pa.table(dataset.take(range(400)))
    for found in (own, read(tmp_path / "out"), pa.ipc.open_file(tmp_path / "got.arrow").read_all()):
        assert found.column("code").to_pylist() == words
        assert found.column("digit").to_pylist() == digits.to_pylist()
        assert found.column("digits").to_pylist() == [[digit] for digit in digits.to_pylist()]
        for name in ("day", "due"):
            assert found.column(name).to_pylist() == days.to_pylist()
