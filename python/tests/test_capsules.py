"""Arrow exports beside other libraries that use the same functions of Python by ctypes."""

from __future__ import annotations

import gc
import importlib.util
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rowdex
from rowdex.native import capsule as _capsule

from .conftest import run_python

OTHERS = """
import ctypes
api = ctypes.pythonapi
theirs = {
    "PyCapsule_New": (ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]),
    "PyCapsule_GetName": (ctypes.c_char_p, [ctypes.py_object]),
    "PyCapsule_GetPointer": (ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]),
}
for name, (result, arguments) in theirs.items():
    function = getattr(api, name)
    function.restype, function.argtypes = result, arguments
"""
EXPORTS = """
import gc, sys
import pyarrow as pa
import rowdex, rowdex.native.capsule
dataset = rowdex.Dataset(sys.argv[1])
for _ in range(20):
    # Some are consumed, some are dropped.
    batch = dataset[:10]
    table = pa.table(batch)
    pa.RecordBatchReader.from_stream(batch).read_all()
    capsules = [batch.__arrow_c_array__(), batch.__arrow_c_stream__(), dataset.schema.__arrow_c_schema__()]
    capsules.append(dataset.__arrow_c_stream__())
    assert pa.schema(dataset.schema).names == dataset.column_names
    assert table["id"].to_pylist() == list(range(10))
    assert rowdex.native.capsule.live() == 5, rowdex.native.capsule.live()
    del capsules, batch, table
    gc.collect()
    assert rowdex.native.capsule.live() == 0, rowdex.native.capsule.live()
"""
UNCHANGED = """
assert all((getattr(api, name).restype, getattr(api, name).argtypes) == types for name, types in theirs.items())
"""


@pytest.mark.parametrize("order", ["before", "after", "between", "alone"])
def test_exports_are_released_whoever_else_uses_capsules(index: str, order: str) -> None:
    program = {
        "before": OTHERS + EXPORTS + UNCHANGED,
        "after": "import rowdex\n" + OTHERS + EXPORTS + UNCHANGED,
        "between": EXPORTS + OTHERS + EXPORTS + UNCHANGED,
        "alone": EXPORTS + "import ctypes\nassert ctypes.pythonapi.PyCapsule_GetName.argtypes is None\n",
    }[order]
    done = run_python(program, index)
    assert done.returncode == 0 and done.stderr == "", done.stderr


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize("name", ["dill", "xgboost"])
def test_real_libraries_and_rowdex_get_on(index: str, name: str, order: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    other = f"import {name}\n"
    if name == "dill":
        # It pickles capsules by their name and pointer.
        other += "import datetime\nassert dill.loads(dill.dumps(datetime.datetime_CAPI)) is not None\n"
    program = other + EXPORTS if order == "before" else "import rowdex\n" + other + EXPORTS
    done = run_python(program + other, index, timeout=120)
    assert done.returncode == 0 and "PyCapsule" not in done.stderr, done.stderr


def test_a_capsule_may_be_dropped_while_the_interpreter_ends(index: str) -> None:
    program = """
import sys
import rowdex
batch = rowdex.Dataset(sys.argv[1])[:10]
sys.kept = [batch.__arrow_c_array__(), batch.__arrow_c_stream__()]
"""
    done = run_python(program, index)
    assert done.returncode == 0 and done.stderr == "", done.stderr


def test_the_error_of_a_stream_reaches_whoever_reads_it_and_its_capsule_is_released(tmp_path: pathlib.Path) -> None:
    table = pa.table({"id": range(1000), "name": [f"row {i}" for i in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100, compression=None)
    rowdex.build(tmp_path / "a.parquet", tmp_path / "a.rdx")
    damaged = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "a.parquet").write_bytes(b"PAR1" + b"\xff" * 20_000 + damaged[20_004:])
    dataset = rowdex.Dataset(tmp_path / "a.rdx", check="off")
    for _ in range(3):
        with pytest.raises(pa.ArrowInvalid, match=r"a\.parquet, row group \d"):
            pa.table(dataset)
    gc.collect()
    assert _capsule.live() == 0


def test_many_capsules_in_use_are_not_looked_at_for_each_new_one(index: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = rowdex.Dataset(index).schema
    looked: list[int] = []
    references = _capsule._references
    monkeypatch.setattr(_capsule, "_references", lambda kept: looked.append(1) or references(kept))
    kept = [schema.__arrow_c_schema__() for _ in range(2000)]
    assert _capsule.live() >= 2000 and len(looked) < 20_000
    del kept
    assert _capsule.live() == 0
