"""The command `rowdex` of the package, which the library has in it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
import rowdex
from rowdex.native.library import library

from .conftest import ROWS

COMMAND = os.environ.get("ROWDEX_COMMAND", "")
HERE = [sys.executable, "-m", "rowdex"]
# One epoch after the other.
ENDLESS = ["--epochs", "1000000000"]

pytestmark = pytest.mark.skipif(
    not hasattr(library, "rowdex_command") and not os.environ.get("ROWDEX_WHEEL"),
    reason="the library was built without --cfg rowdex_command",
)


def run(*arguments: str | bytes, program: list[str] = HERE) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*program, *arguments], capture_output=True, timeout=120)


def test_the_command_of_the_package_says_what_the_program_says(index: str) -> None:
    cases = [
        ["--version"],
        ["info", index, "--json"],
        ["get", index, "7", "2"],
        ["trace", index, "--world-size", "3", "--rank", "1"],
        ["get", index, str(ROWS)],
        ["get", "--help"],
        ["get", index, "x"],
        ["no-such-command"],
        [],
        ["info", index + ".none"],
    ]
    statuses = set()
    for arguments in cases:
        done = run(*arguments)
        statuses.add(done.returncode)
        if COMMAND:
            program = run(*arguments, program=[COMMAND])
            assert (done.returncode, done.stdout, done.stderr) == (
                program.returncode, program.stdout, program.stderr,
            ), arguments  # fmt: skip
        elif done.returncode == 0:
            assert done.stdout, arguments
    assert statuses == {0, 1, 2}


def test_the_command_is_installed_with_the_package(index: str) -> None:
    if not os.environ.get("ROWDEX_WHEEL"):
        pytest.skip("no wheel is installed")
    script = os.path.join(os.path.dirname(sys.executable), "rowdex")
    assert run("--version", program=[script]).stdout.decode().split() == ["rowdex", rowdex.__version__]
    found = json.loads(run("doctor", index, "--json", program=[script]).stdout)
    assert found.keys() == json.loads(run("doctor", index, "--json").stdout).keys()
    assert b"rowdex doctor" in run("--help", program=[script]).stdout


def test_arguments_need_not_be_texts(folder: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xfe.rdx"
    assert run("build", str(folder), "-o", path).returncode == 0
    assert json.loads(run("info", path, "--json").stdout)["rows"] == ROWS


def test_whoever_reads_no_more_ends_the_command_without_a_word(index: str) -> None:
    command = [*HERE, "trace", index, "--seed", "1", *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_command_as_it_ends_any_program(index: str, ending: signal.Signals) -> None:
    command = [*HERE, "trace", index, "--seed", "1", *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stderr
        # It is at work, and waits for nobody who reads.
        assert process.stdout.readline()
        time.sleep(0.05)
        process.send_signal(ending)
        assert process.wait(timeout=60) == -ending
        assert b"Traceback" not in process.stderr.read()


def test_a_library_without_the_command_says_how_to_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from rowdex import __main__

    monkeypatch.setattr(__main__, "library", object())
    with pytest.raises(SystemExit) as ended:
        sys.exit(__main__.main(["info"]))
    assert ended.value.code == 2
