"""Machines that a test makes on this one, for which it must be root.

A machine is a network namespace with a host name. Each program on it has a separate namespace of process ids. A bridge
in one more network namespace, the switch, connects the machines. The namespaces have no names, so the kernel removes
them and their links when their last process ends. All processes end when the test ends, even if it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable

import pytest

DEADLINE = 400
# The kernel kills a command that begins with this when the process that started it ends.
ENDS_WITH_TEST = ["setpriv", "--pdeathsig", "KILL"]


def need_namespaces() -> None:
    tools = ("ip", "unshare", "nsenter", "setpriv", "mount", "hostname")
    if os.geteuid() != 0 or not all(map(shutil.which, tools)):
        pytest.skip(f"machines need root, and {', '.join(tools)}")
    if subprocess.run(["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"]).returncode != 0:
        pytest.skip("namespaces are not permitted here")


def wait_until(is_true: Callable[[], bool], what: object) -> None:
    end = time.monotonic() + DEADLINE
    while not is_true():
        assert time.monotonic() < end, f"{what}: not within {DEADLINE} seconds"
        time.sleep(0.02)


class Program:
    """A program on a machine, with all processes that it starts."""

    def __init__(self, command: list[str], log: pathlib.Path, environment: dict[str, str]) -> None:
        self._log = log
        with log.open("w") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def wait(self, succeeds: bool = True) -> None:
        wait_until(self.has_ended, self._log)
        assert (self._process.returncode == 0) == succeeds, self._log.read_text()

    def kill(self) -> None:
        """SIGKILL for all its processes: the kernel ends a namespace of process ids together with its first process."""
        if not self.has_ended():
            pid = self._process.pid
            first = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            os.kill(int(first[0]) if first else pid, signal.SIGKILL)
            self._process.wait(60)


class Machine:
    """A network namespace, which is removed with its programs when `ends` closes."""

    def __init__(self, name: str, folder: pathlib.Path, ends: contextlib.ExitStack) -> None:
        self._folder, self._ends, self._namespace = folder, ends, ""
        setup = f"hostname {name}; mount --bind {folder}/hosts /etc/hosts; ip link set lo up; echo ready"
        command = ["unshare", "--net", "--mount", "--uts", "sh", "-ec", f"{setup}; exec sleep infinity"]
        keeper = subprocess.Popen([*ENDS_WITH_TEST, *command], stdout=subprocess.PIPE, text=True)
        ends.callback(self._check_removed)
        ends.callback(keeper.wait, 60)
        ends.callback(keeper.kill)
        assert keeper.stdout is not None
        with keeper.stdout as output:
            assert output.readline() == "ready\n"
        self.pid, self._namespace = keeper.pid, os.readlink(f"/proc/{keeper.pid}/ns/net")
        self._enter = ["nsenter", f"--target={self.pid}", "--net", "--mount", "--uts", "--"]

    def _check_removed(self) -> None:
        """No process is left in its namespace."""
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                assert os.readlink(process / "ns/net") != self._namespace

    def run(self, command: str) -> str:
        done = subprocess.run([*self._enter, *command.split()], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def start(self, log: str, *command: str, **environment: str) -> Program:
        prefix = [*ENDS_WITH_TEST, *self._enter, "unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        program = Program([*prefix, *command], self._folder / log, {**os.environ, **environment})
        self._ends.callback(program.kill)
        return program

    def traffic(self, direction: str) -> int:
        """Bytes that its network interface has received (`rx`) or sent (`tx`)."""
        return int(json.loads(self.run("ip -json -stats link show eth0"))[0]["stats64"][direction]["bytes"])


def connected(names: list[str], folder: pathlib.Path, ends: contextlib.ExitStack) -> dict[str, Machine]:
    """Machines that find each other by these names."""
    addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)}
    lines = [f"{address} {name}\n" for name, address in addresses.items()]
    (folder / "hosts").write_text("".join(["127.0.0.1 localhost\n", *lines]))
    switch = Machine("switch", folder, ends)
    switch.run("ip link add bridge type bridge")
    switch.run("ip link set bridge up")
    machines = {name: Machine(name, folder, ends) for name in names}
    for name, machine in machines.items():
        switch.run(f"ip link add {name} type veth peer name eth0 netns {machine.pid}")
        switch.run(f"ip link set {name} master bridge up")
        machine.run(f"ip address add {addresses[name]}/24 dev eth0")
        machine.run("ip link set eth0 up")
    return machines
