"""Runs the ranks of a job, each in a process of its own, for tests of frameworks.

``Jobs(PROGRAM, FOLDER, DATA)`` starts a process that imports PROGRAM, a file of functions, and with it the framework:
that takes seconds. ``jobs.run("name", world=2, option=...)`` then forks as many ranks from it. Each initialises a
process group of gloo, calls the function, and reports what it returned, which must be JSON. Nothing here waits for
longer than its deadline, and no rank outlives a job.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time
import traceback
from typing import Any

DEADLINE = 120
# Ranks wait for each other, so those that are left when one has failed are given this long.
GRACE = 5


class Jobs:
    """A process that has imported a program and forks ranks from itself."""

    def __init__(self, program: str, folder: pathlib.Path, data: pathlib.Path) -> None:
        """PROGRAM is a file beside this one. Every job works in a folder of its own, in which ``data`` is DATA."""
        self._folder, self._data, self._number = folder, data, 0
        self._errors = (folder / "errors").open("w")
        # One thread each, because a fork has no more; and no wait for the names of the machine's other interfaces.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)
        command = [sys.executable, __file__, str(pathlib.Path(__file__).with_name(program))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=self._errors, text=True, env=environment, cwd=folder, start_new_session=True,
        )  # fmt: skip

    def outcomes(self, function: str, world: int = 2, *, group: bool = True, **arguments: Any) -> list[dict[str, Any]]:
        """What became of each rank: ``{"result": ...}`` or ``{"error": "Kind: message", "trace": ...}``."""
        self._number += 1
        folder = self._folder / f"{self._number}-{function}"
        folder.mkdir()
        (folder / "data").symlink_to(self._data)
        request = {"function": function, "world": world, "group": group, "folder": str(folder), "arguments": arguments}
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], DEADLINE + 60)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            raise AssertionError(f"the process of the jobs is gone: {(self._folder / 'errors').read_text()[-3000:]}")
        return [self._outcome(folder / f"{rank}.json") for rank in range(world)]

    def _outcome(self, path: pathlib.Path) -> dict[str, Any]:
        if path.exists():
            return dict(json.loads(path.read_text()))
        log = path.with_suffix(".log")
        text = log.read_text()[-3000:] if log.exists() else ""
        return {"error": "no outcome: the rank hung or died", "trace": text}

    def run(self, function: str, world: int = 2, **arguments: Any) -> list[Any]:
        """What each rank returned."""
        outcomes = self.outcomes(function, world, **arguments)
        failed = [f"rank {rank}: {found['trace']}" for rank, found in enumerate(outcomes) if "error" in found]
        assert not failed, "\n".join(failed)
        return [found["result"] for found in outcomes]

    def errors(self, function: str, world: int = 2, **arguments: Any) -> list[str]:
        """The error of each rank; the empty string of one that had none."""
        return [found.get("error", "") for found in self.outcomes(function, world, **arguments)]

    def script(self, text: str, world: int = 2) -> list[dict[str, int]]:
        """Runs a program as it stands, and returns its variables that are integers."""
        return self.run("script", world, text=text)

    def close(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait(10)
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            assert stream is not None
            stream.close()


def _script(text: str) -> dict[str, int]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "docs/frameworks", "exec"), names)
    return {name: value for name, value in names.items() if isinstance(value, int)}


def _rank(program: Any, rank: int, request: dict[str, Any]) -> None:
    folder, world = pathlib.Path(request["folder"]), request["world"]
    log = os.open(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.chdir(folder)
    os.environ["JOB_RANK"] = str(rank)
    if request["group"]:
        import torch.distributed as dist

        os.environ |= {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "TORCHELASTIC_RUN_ID": "none",
        }  # fmt: skip
        # A file, because ports may be taken by others.
        dist.init_process_group("gloo", init_method=f"file://{folder}/group", rank=rank, world_size=world)
        # A rank that has little to do would end while another one is still connecting.
        dist.barrier()
    try:
        function = _script if request["function"] == "script" else getattr(program, request["function"])
        outcome = {"result": function(**request["arguments"])}
        text = json.dumps(outcome)
    except BaseException as error:
        text = json.dumps({"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})
    (folder / f"{rank}.part").write_text(text)
    (folder / f"{rank}.part").rename(folder / f"{rank}.json")
    os._exit(0 if "error" not in json.loads(text) else 1)


def _serve(program: Any) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        ranks = []
        for rank in range(request["world"]):
            pid = os.fork()
            if pid == 0:
                try:
                    # So that its workers end with it.
                    os.setsid()
                    _rank(program, rank, request)
                finally:
                    os._exit(1)
            ranks.append(pid)
        deadline, left = time.monotonic() + DEADLINE, set(ranks)
        while left and time.monotonic() < deadline:
            time.sleep(0.01)
            for pid in list(left):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    left.discard(pid)
                    if status:
                        deadline = min(deadline, time.monotonic() + GRACE)
        for pid in ranks:
            try:
                os.killpg(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for pid in left:
            os.waitpid(pid, 0)
        print("done", file=answers, flush=True)


if __name__ == "__main__":
    specification = importlib.util.spec_from_file_location("program", sys.argv[1])
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["program"] = module
    specification.loader.exec_module(module)
    _serve(module)
