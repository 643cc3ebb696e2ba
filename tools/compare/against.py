#!/usr/bin/env python3
"""Compares the command of another commit with that of the working tree.

    python tools/compare/against.py COMMIT DATA [SET ...] [--shares 10,25] [--turns 5]

DATA has a folder of Parquet files for each set, as `tools/compare/shapes.py` writes them. Both commands are built below
target/against, without SQL. Then they take turns, one epoch after the first two of `rowdex epoch --order global`, with
memory for a share of the decoded bytes: COMMIT, the working tree, and COMMIT again. The rates of the first and the
third series differ by chance alone ("spread"): what is less than that says nothing.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILDS = ROOT / "target/against"
EPOCH = "--order global --epochs 3 --batch-size 256 --threads 2 --json".split()


@dataclasses.dataclass
class Turn:
    """What a run of the command took: the last epoch's rate and passes, and seconds of all epochs."""

    rate: float
    passes: float
    cpu: float
    kernel: float
    mib: float


def command(source: pathlib.Path, name: str) -> pathlib.Path:
    """Builds the command of a source tree."""
    # Older commits have the command in the package of the library.
    features = "object-store" if (source / "cli").exists() else "cli,object-store"
    build = ["cargo", "build", "--quiet", "--release", "--bin", "rowdex", "--no-default-features"]
    build += ["--features", features]
    subprocess.run(build, cwd=source, env={**os.environ, "CARGO_TARGET_DIR": BUILDS}, check=True)
    return pathlib.Path(shutil.copy(BUILDS / "release/rowdex", BUILDS / f"rowdex-{name}"))


def of_commit(commit: str) -> pathlib.Path:
    """Builds the command of a commit, in a work tree that is removed afterwards."""
    found = subprocess.run(["git", "rev-parse", commit], cwd=ROOT, check=True, text=True, stdout=subprocess.PIPE)
    commit = found.stdout.strip()
    built = BUILDS / f"rowdex-{commit}"
    if not built.exists():
        tree = BUILDS / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--force", "--detach", tree, commit], cwd=ROOT, check=True)
        try:
            command(tree, commit)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=ROOT, check=True)
    return built


def run(program: pathlib.Path, index: pathlib.Path, share: str) -> Turn:
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([program, "epoch", index, "--memory", f"{share}%", *EPOCH], stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{program} failed on {index}")
        output.seek(0)
        last = json.load(output)["epochs"][-1]
    cpu = usage.ru_utime + usage.ru_stime
    return Turn(last["rows_per_second"], last["passes"], cpu, usage.ru_stime, usage.ru_maxrss / 1024)


def median(turns: list[Turn]) -> Turn:
    return Turn(*(statistics.median(each) for each in zip(*map(dataclasses.astuple, turns))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("sets", nargs="*", metavar="SET")
    parser.add_argument("--shares", default="10,25")
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    BUILDS.mkdir(parents=True, exist_ok=True)
    other, own = of_commit(given.commit), command(ROOT, "working-tree")
    print("set          memory  build     rows/s   CPU s  kernel s  passes  most MiB")
    for name in given.sets or sorted(path.name for path in given.data.iterdir() if path.is_dir()):
        with tempfile.TemporaryDirectory() as folder:
            # Each has an index of its own, since those of a newer one may tell more.
            indexes = {program: pathlib.Path(folder, program.name).with_suffix(".rdx") for program in (other, own)}
            for program, index in indexes.items():
                build = [program, "build", given.data / name, "--output", index]
                subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
            for share in given.shares.split(","):
                before: list[Turn] = []
                now: list[Turn] = []
                again: list[Turn] = []
                for _ in range(given.turns):
                    for turns, program in ((before, other), (now, own), (again, other)):
                        turns.append(run(program, indexes[program], share))
                for build, turn in (given.commit[:7], median(before + again)), ("here", median(now)):
                    print(
                        f"{name:12} {share + ' %':6}  {build:7} {turn.rate:9,.0f} {turn.cpu:7.2f} {turn.kernel:9.2f} "
                        f"{turn.passes:7.2f} {turn.mib:9,.0f}"
                    )
                first, third, all_, here = map(median, (before, again, before + again, now))
                print(
                    f"    here to {given.commit[:7]}: rate {here.rate / all_.rate:.2f}, CPU {here.cpu / all_.cpu:.2f}; "
                    f"spread: rate {third.rate / first.rate:.2f}, CPU {third.cpu / first.cpu:.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
