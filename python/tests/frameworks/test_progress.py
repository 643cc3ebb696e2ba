"""Bars of tqdm, where there is a terminal, and loggers."""

from __future__ import annotations

import fcntl
import os
import pathlib
import pty
import struct
import subprocess
import sys
import termios
from typing import Any

import pytest
import rowdex

from .need import need

PROGRAM = """
import sys, rowdex
folder, index, *wanted = sys.argv[1:]
options = {"progress": {"yes": True, "no": False}[wanted[0]]} if wanted else {}
rowdex.build(folder, index, overwrite=True, **options)
assert rowdex.Dataset(index).verify("deep", **options).problems == []
"""


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """Runs the program with a terminal as its standard error."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 4096)
            except OSError:
                break
            if not part:
                break
            shown += part
        status = process.wait(60)
    os.close(ours)
    return status, shown.decode()


def test_a_bar_is_shown_where_there_is_a_terminal(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    need("tqdm")
    status, shown = on_a_terminal(str(folder), str(tmp_path / "a.rdx"))
    assert status == 0, shown
    assert "indexing: 100%" in shown and "3/3" in shown and "1,003 rows" in shown and "checking: 100%" in shown
    assert on_a_terminal(str(folder), str(tmp_path / "a.rdx"), "no") == (0, "")


def test_no_bar_is_shown_elsewhere_unless_it_is_asked_for(
    folder: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need("tqdm")
    index = tmp_path / "a.rdx"
    rowdex.build(folder, index)
    rowdex.Dataset(index).verify()
    assert capfd.readouterr().err == ""
    rowdex.build(folder, index, overwrite=True, progress=True)
    assert "indexing: 100%" in capfd.readouterr().err
    rowdex.Dataset(index).verify(progress=True)
    assert "checking: 100%" in capfd.readouterr().err


def test_conditions_show_how_many_rows_are_decided(
    folder: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need("tqdm")
    index, view, told = tmp_path / "a.rdx", tmp_path / "v.rdx", []
    rowdex.build(folder, index)
    rowdex.select(index, view, where="id % 2 = 0", progress=lambda *done: told.append(done))
    assert max(told) == (1003, 1003, 0)
    assert capfd.readouterr().err == ""
    rowdex.select(index, view, where="id % 2 = 0", overwrite=True, progress=True)
    shown = capfd.readouterr().err
    assert "selecting: 100%" in shown and "1003/1003" in shown
    with pytest.raises(TypeError, match="use True, False, None"):
        rowdex.select(index, view, where="id % 2 = 0", overwrite=True, progress="yes")

    def stop(*_: int) -> None:
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        rowdex.select(index, view, where="id % 2 = 0", overwrite=True, progress=stop)


def test_a_function_is_told_and_what_it_raises_is_raised(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    index, told = tmp_path / "a.rdx", []
    rowdex.build(folder, index, progress=lambda *done: told.append(done))
    assert told[-1] == (3, 3, 1003)
    told.clear()
    dataset = rowdex.Dataset(index)
    report = dataset.verify("deep", progress=lambda *done: told.append(done))
    assert (report.files, report.rows) == (3, 1003) and sorted(told)[-1][:2] == (3, 3)

    def refuse(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        dataset.verify(progress=refuse)
    with pytest.raises(TypeError, match="progress='yes': use True, False, None or a function"):
        dataset.verify(progress="yes")  # type: ignore[arg-type]
    with pytest.raises(rowdex.errors.AlreadyExistsError):
        rowdex.build(folder, index, progress=lambda *_: None)


def test_tensorboard_takes_the_stats_of_a_loader(index: str, tmp_path: pathlib.Path) -> None:
    tensorboard = need("torch.utils.tensorboard", "tensorboard")
    loader = rowdex.Loader(rowdex.Dataset(index, columns=["id"]), batch_size=100, num_replicas=1, rank=0)
    with tensorboard.SummaryWriter(tmp_path) as writer:
        for step, _ in enumerate(loader):
            for name, value in loader.stats.items():
                writer.add_scalar(f"data/{name}", value, step)
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path)).Reload()
    assert {f"data/{name}" for name in loader.stats} == set(events.Tags()["scalars"])
    assert [round(event.value) for event in events.Scalars("data/served_rows")] == [*range(100, 1001, 100), 1003]
