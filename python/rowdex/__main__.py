"""The command ``rowdex``, which is in the library; and ``rowdex doctor``, which looks at the side of Python."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence

from . import doctor
from .native.library import library, texts


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it and gives the exit status: 0, 1 if something is wrong, 2 for wrong usage."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    return _doctor(given[1:]) if given[:1] == ["doctor"] else _command(given)


def _command(arguments: list[str]) -> int:
    try:
        run = library.rowdex_command
    except AttributeError:
        print("rowdex: this library was built without the command; cargo install --path . makes it", file=sys.stderr)
        return 2
    run.restype, run.argtypes = ctypes.c_uint8, [ctypes.c_size_t, ctypes.POINTER(ctypes.c_char_p)]
    # A handler of Python runs when the call has returned: this way Ctrl-C ends the command as it ends any program.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    called = [b"rowdex", *map(os.fsencode, arguments)]
    status: int = run(len(called), texts(called))
    if arguments in (["--help"], ["-h"]):
        return status or _print("\nOf the Python package: rowdex doctor [INDEX] says what is slow or wrong here.")
    return status


def _doctor(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="rowdex doctor",
        description="Prints what rowdex finds on this machine, what is slow or wrong, and what to do. Reads no data.",
    )
    parser.add_argument("index", nargs="?", help="an index, to look at its data files and their disk as well")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    report = doctor.examine(options.index)
    found = {**report.facts, "findings": [finding._asdict() for finding in report.findings]}
    unwritten = _print(json.dumps(found, indent=2) if options.json else report.to_text())
    return unwritten or (1 if any(finding.level == "wrong" for finding in report.findings) else 0)


def _print(text: str) -> int:
    """Prints it and gives the exit status. It is no error if the reader has closed the pipe, as for all commands."""
    try:
        print(text, flush=True)
    except OSError as error:
        # What is left would be written again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            print(f"rowdex: cannot write to stdout: {error.strerror}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
