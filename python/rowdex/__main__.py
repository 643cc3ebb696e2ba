"""``python -m rowdex doctor``. All else is done by the command ``rowdex``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from . import doctor


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it and gives the exit status: 0, 1 if something is wrong, 2 for wrong usage."""
    parser = argparse.ArgumentParser(
        prog="python -m rowdex",
        description="The Python side of rowdex. Indexes are built and looked into by the command `rowdex`.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "doctor",
        help="what rowdex finds on this machine, what is slow, and what to do",
        description="Prints what rowdex finds on this machine, what is slow or wrong, and what to do. Reads no data.",
    )
    command.add_argument("index", nargs="?", help="an index, to look at its data files and their disk as well")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    report = doctor.examine(options.index)
    print(json.dumps(report.to_json(), indent=2) if options.json else report.to_text())
    return 1 if any(finding.level == "wrong" for finding in report.findings) else 0


if __name__ == "__main__":
    sys.exit(main())
