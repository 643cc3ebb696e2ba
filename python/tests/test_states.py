"""A checkpoint tells the command which run is meant."""

from __future__ import annotations

import io
import itertools
import json
import os
import pathlib
import pickle
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
import rowdex
from rowdex.order import Contiguous, IdSet, Paired, Resized, Rotated, Subset, Weighted

from .conftest import ROWS

COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
pytestmark = pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)


def rows_of_step(index: str, state: str, step: int, rank: int) -> list[int]:
    told = run("trace", index, "--state", state, "--step", str(step), "--rank", str(rank), "--json")
    assert told.returncode == 0, told.stderr
    return [at["row_id"] for at in json.loads(told.stdout)]


def torch_bytes(checkpoint: Any) -> bytes:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    file = io.BytesIO()
    torch.save(checkpoint, file)
    return file.getvalue()


def old_torch_bytes(checkpoint: Any) -> bytes:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    file = io.BytesIO()
    torch.save(checkpoint, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


@pytest.mark.parametrize(
    "written",
    [
        lambda checkpoint: json.dumps(checkpoint).encode(),
        *(lambda checkpoint, protocol=protocol: pickle.dumps(checkpoint, protocol) for protocol in range(6)),
        torch_bytes,
        old_torch_bytes,
    ],
)
def test_the_command_lists_the_rows_that_the_run_served(
    index: str, tmp_path: pathlib.Path, written: Callable[[Any], bytes]
) -> None:
    options: dict[str, Any] = {"batch_size": 32, "num_replicas": 2, "rank": 1, "seed": 42, "drop_last": "batch"}
    dataset = rowdex.Dataset(index, columns=["id"])
    loader = rowdex.Loader(dataset, output="numpy", order="blocks(3)", tail="uneven", **options)
    served = [batch["id"].tolist() for batch in itertools.islice(loader, 7)]
    (tmp_path / "checkpoint").write_bytes(written({"model": [1.0, 2.0], "loader": loader.state_dict(), "step": 7}))
    for step in (0, 6):
        assert rows_of_step(index, str(tmp_path / "checkpoint"), step, 1) == served[step]


def test_a_compressed_checkpoint_is_refused_with_what_to_do(index: str, tmp_path: pathlib.Path) -> None:
    with zipfile.ZipFile(tmp_path / "checkpoint.zip", "w", zipfile.ZIP_DEFLATED) as file:
        loader = rowdex.Loader(rowdex.Dataset(index, columns=["id"]), batch_size=32)
        file.writestr("state.json", json.dumps(loader.state_dict()) * 2)
    told = run("trace", index, "--state", str(tmp_path / "checkpoint.zip"), "--step", "0")
    assert told.returncode == 2 and "no state" in told.stderr and "state_dict()" in told.stderr


def test_samplers_of_every_make_say_what_they_are(index: str) -> None:
    dataset = rowdex.Dataset(index)
    kept = IdSet.split(dataset, "train", validation_fraction=0.2)
    for order, options, text in [
        ("global", {}, ":rows:global,seed-42:2x16:"),
        ("global", {"seed": -1}, f":global,seed-{2**64 - 1}:2x16:"),
        ("sequential", {"drop_last": True}, ":sequential:2x16,drop:"),
        ("blocks(2),contiguous", {}, ":blocks-2,seed-42,pieces-2:2x16:"),
        ("torch", {"replication": (2, "strided")}, ":torch,seed-42:2x16,replicas-2,strided:"),
        (Subset("global", kept), {"drop_last": "batch"}, ":global,seed-42,kept:2x16,drop-last-batch:"),
        (Resized("global", 500), {}, ":global,seed-42,size-500:2x16:"),
        (Weighted([1.0] * ROWS), {}, f":weighted,seed-42,size-{ROWS}:2x16:"),
        (Contiguous(Resized("global", 500), 4), {}, ":global,seed-42,size-500,pieces-4:2x16:"),
        (Paired("global"), {}, ":global,seed-42,paired:2x16:"),
        (Rotated("sequential"), {}, ":other:2x16:"),
    ]:
        given = {"seed": 42, **options}
        sampler = rowdex.DistributedSampler(dataset, 2, 0, order=order, batch_size=16, **given)
        state = sampler.state_after(3, 4)["state"]
        assert text in state and ":3:" in state, state
        again = rowdex.DistributedSampler(dataset, 2, 0, order=order, batch_size=16, **given)
        again.load_state_dict({"state": state})
        assert again.state_dict()["state"].startswith(state[: state.index(":rows:")])


def test_a_sampler_of_single_rows_leaves_the_batch_size_to_be_given(index: str) -> None:
    sampler = rowdex.DistributedSampler(rowdex.Dataset(index), 2, 1, seed=5)
    state = sampler.state_dict()["state"]
    told = run("trace", index, "--state", state, "--step", "3", "--rank", "1", "--json")
    assert told.returncode == 2 and "--batch-size" in told.stderr
    told = run("trace", index, "--state", state, "--step", "3", "--rank", "1", "--json", "--batch-size", "10")
    assert [at["row_id"] for at in json.loads(told.stdout)] == list(sampler)[30:40]
    told = run("trace", index, "--state", state, "--rank", "1")
    sampler.set_epoch(0)
    assert [int(line) for line in told.stdout.split()] == list(sampler)


def test_a_damaged_state_is_refused_and_one_of_version_1_is_not(index: str) -> None:
    sampler = rowdex.DistributedSampler(rowdex.Dataset(index), 2, 1, seed=5, batch_size=16)
    state = sampler.state_after(2, 3)["state"]
    for at, character in enumerate(state):
        if character.isdigit():
            damaged = state[:at] + str((int(character) + 1) % 10) + state[at + 1 :]
            with pytest.raises(rowdex.errors.ArgumentError):
                sampler.load_state_dict({"state": damaged})
    first = ":".join(["rowdex-state-v1", *state.split(":")[1:4]])
    sampler.load_state_dict({"state": first})
    assert sampler.state_dict() == {"state": state}


def test_an_iteration_without_a_batch_yet_begins_at_a_state_that_is_loaded(index: str) -> None:
    def loader() -> rowdex.Loader:
        return rowdex.Loader(rowdex.Dataset(index, ["id"]), batch_size=10, seed=3, output="numpy")

    told = loader()
    told.set_epoch(2)
    batches = iter(told)
    next(batches), next(batches)
    state, expected = told.state_dict(), [batch["id"].tolist() for batch in batches]
    found = loader()
    begun = iter(found)
    found.load_state_dict(state)
    assert [batch["id"].tolist() for batch in begun] == expected
