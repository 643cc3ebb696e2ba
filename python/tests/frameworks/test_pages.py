"""The programs and commands of pages, run in their order as the pages show them, and notebooks."""

from __future__ import annotations

import ast
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from .. import stores
from ..conftest import REPOSITORY
from .need import need
from .page import FRAGMENT, PAGES, blocks_of, commands, programs_of

torch = need("torch", "pyarrow", "PIL.Image")
COMMAND = os.environ.get("ROWDEX_COMMAND") or shutil.which("rowdex") or ""
NEEDED = {
    "comparison.md": ("grain",),
    "select.md": ("polars", "ray"),
    "../python/rowdex/skill/frameworks.md": ("accelerate",),
    "how-to/text.md": ("tokenizers", "transformers"),
    "how-to/finetune.md": ("accelerate", "tokenizers", "transformers", "trl"),
    "how-to/images.md": ("torchvision",),
}
"""What a page needs besides."""
OTHERS = ("pip ", "torchrun ", "cargo ", "tools/", "export ", "eval ", "shuffle=", "spill=", "write=", "sbatch ")
"""Commands that pages show and this does not run: others' own, installing, and what sets variables."""
NO_COMMANDS = ("remote.md",)
"""Pages whose commands need servers of others."""
MORE_COLUMNS = ("concepts/packs.md", "digests.md", "rewriting.md", "select.md")


def more_columns(folder: pathlib.Path) -> None:
    """Adds columns to the files of a folder, and next to it a list of rows with weights."""
    for path in folder.glob("*.parquet"):
        table = pq.read_table(path)
        ids = table["id"].to_pylist()
        for name, values in {
            "text": [f"text {row} " * (row % 40) for row in ids],
            "lang": ["en" if row % 3 else "de" for row in ids],
            "class": [f"class {row % 7}" for row in ids],
            "tokens": [list(range(row % 4)) for row in ids],
        }.items():
            table = table.append_column(name, pa.array(values))
        pq.write_table(table, path)
    rows = range(0, 4000, 3)
    scores = [float(row % 5) for row in rows]
    kept = pa.table({"file": ["part-0.parquet"] * len(rows), "row_in_file": rows, "score": scores})
    pq.write_table(kept, folder.parent / "kept.parquet")


def run(line: str) -> None:
    """Runs a line of a shell block, without what it says behind it."""
    words = shlex.split(line, comments=True)
    if not words or line.startswith(OTHERS) or line.endswith("&"):
        return
    assert words[0] == "rowdex", line
    done = subprocess.run([COMMAND, *words[1:]], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{line}\n{done.stderr}"


@pytest.mark.skipif(not COMMAND, reason="there is no rowdex command: ROWDEX_COMMAND names it")
@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run_as_they_are_shown(
    page: str, unequal: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(*NEEDED.get(page, ("torch",)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROWDEX_CACHE", str(tmp_path / "cache"))
    # Not a cluster that somebody else has on this machine.
    monkeypatch.setenv("RAY_ADDRESS", "local")
    # Threads of PyTorch that wait for each other take minutes on a machine that is busy.
    torch.set_num_threads(1)
    # A page that makes no data of its own speaks of data/. Its index it makes itself.
    if page != "first-training.md":
        shutil.copytree(unequal, "data", ignore=shutil.ignore_patterns("*.rdx"))
    if page in MORE_COLUMNS:
        more_columns(tmp_path / "data")
    blocks = [(kind, block.replace("/nvme", str(tmp_path / "nvme"))) for kind, block in blocks_of(page)]
    assert blocks
    with contextlib.ExitStack() as held:
        if any("s3://bucket/" in block for _, block in blocks):
            bucket = held.enter_context(stores.bucket(tmp_path / "server"))
            shutil.copytree("data", bucket.folder / "data")
            for name, value in (bucket.options.config or {}).items():
                monkeypatch.setenv(name.upper(), value)
        if "ray" in NEEDED.get(page, ()):
            ray = need("ray")
            ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
            held.callback(ray.shutdown)
        names: dict[str, object] = {"__name__": "__main__"}
        for kind, block in blocks:
            if kind == "sh" and page not in NO_COMMANDS:
                for line in commands(block):
                    run(line)
            elif kind == "python" and not block.startswith(FRAGMENT):
                exec(compile(block, page, "exec"), names)


STOPS = """
import os
replace = os.replace

def stop(*names):
    replace(*names)
    os._exit(1)

os.replace = stop
exec(compile(open("train.py").read(), "train.py", "exec"))
"""
"""Ends a rank when it has saved for the first time."""


def test_the_job_on_images_resumes_with_another_number_of_ranks(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("torchvision")
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    data, job = programs_of("how-to/images.md")
    exec(compile(data, "data", "exec"), {"__name__": "__main__"})
    pathlib.Path("train.py").write_text(job)
    pathlib.Path("stops.py").write_text(STOPS)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = subprocess.run([*torchrun, "stops.py"], capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and pathlib.Path("checkpoint.pt").exists(), done.stderr
    exec(compile(job, "train.py", "exec"), {"__name__": "__main__"})
    # Two ranks served 5 steps of 64 rows, of 400. Another step of one rank has 32.
    found = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert found == [f"epoch {epoch} step {step} of 13" for epoch, step in ((0, 12), (1, 4), (1, 9), (1, 12))]


NOTEBOOKS = sorted((REPOSITORY / "docs/notebooks").glob("*.py"))


@pytest.mark.parametrize("program", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_its_cells_end_with(
    program: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if program.stem != "first-training" and not os.environ.get("ROWDEX_LONG"):
        pytest.skip("ROWDEX_LONG=1 runs all notebooks")
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    names: dict[str, object] = {"__name__": "__main__"}
    shown = 0
    for cell in re.split(r"^# %%.*$", program.read_text(), flags=re.MULTILINE):
        body = ast.parse(cell).body
        last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), str(program), "exec"), names)
        if isinstance(last, ast.Expr):
            shown += eval(compile(ast.Expression(last.value), str(program), "eval"), names) is not None
    # A notebook in which no cell shows anything shows too little.
    assert shown >= 1
