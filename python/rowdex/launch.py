"""Which rank this process is."""

from __future__ import annotations

import importlib
import sys
from typing import Any, NamedTuple

from .errors import ArgumentError, StaleError, StateError
from .native.library import Operands


class Launch(NamedTuple):
    """The rank that a launcher gave this process.

    ::

        launch = rowdex.Launch.from_env()
        sampler = rowdex.DistributedSampler(dataset, launch.world_size, launch.rank)
    """

    rank: int
    """The rank of this process, below ``world_size``."""
    world_size: int
    """How many ranks there are."""
    local_rank: int | None
    """Which of the ranks on this machine it is, if the launcher says it."""
    local_world_size: int | None
    """How many ranks there are on this machine, if the launcher says it."""
    launcher: str
    """Where this comes from: ``"Ray Train"``, ``"JAX"``, or by its variables ``"torchrun"``, ``"Open MPI"``, ``"PMI"``
    or ``"Slurm"``.
    """

    @staticmethod
    def from_env() -> Launch:
        """What torchrun, Open MPI, PMI or Slurm put into the environment of this process.

        Raises:
            ArgumentError: which is a ``ValueError``, if no launcher is found, if a variable is missing or no number, or
                if launchers disagree. It names the variables.
        """
        return Launch(**Operands().run(launch={}))

    @staticmethod
    def from_ray() -> Launch:
        """What Ray Train says in a training function.

        Raises:
            ArgumentError: which is a ``ValueError``, anywhere else.
        """
        try:
            context = importlib.import_module("ray.train").get_context()
        except RuntimeError as error:
            raise ArgumentError(f"this is no worker of Ray Train: {error}") from error
        return Launch(
            int(context.get_world_rank()), int(context.get_world_size()),
            int(context.get_local_rank()), int(context.get_local_world_size()), "Ray Train",
        )  # fmt: skip

    @staticmethod
    def from_jax() -> Launch:
        """Which of the processes of JAX this is: ``jax.process_index()`` and ``jax.process_count()``.

        Call ``jax.distributed.initialize()`` first. JAX starts its backend here, if it has not yet.
        """
        jax = importlib.import_module("jax")
        return Launch(int(jax.process_index()), int(jax.process_count()), None, None, "JAX")

    @staticmethod
    def from_frameworks() -> Launch | None:
        """What Ray Train or JAX says, if this is a process of theirs; neither is imported for that."""
        if "ray.train" in sys.modules:
            try:
                return Launch.from_ray()
            except ArgumentError:
                pass
        distributed = getattr(sys.modules.get("jax"), "distributed", None)
        if distributed is not None and distributed.is_initialized():
            return Launch.from_jax()
        return None


def world() -> tuple[int, int]:
    """World size and rank: of ``torch.distributed`` if it is initialised, else of Ray Train or JAX, else what the
    launcher says, else 1 and 0.
    """
    group = process_group()
    if group is not None:
        return group
    framework = Launch.from_frameworks()
    if framework is not None:
        return framework.world_size, framework.rank
    try:
        launch = Launch.from_env()
    except ArgumentError as error:
        if str(error).startswith("no launcher"):
            return 1, 0
        raise
    return launch.world_size, launch.rank


def process_group() -> tuple[int, int] | None:
    """World size and rank of ``torch.distributed``, if it is initialised."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_world_size()), int(distributed.get_rank())
    return None


def check_same_rows(dataset: Any, future: int | None) -> None:
    """Refuses to serve rows of other files than the other ranks of the process group do, each of which has looked for
    its index by itself; and a mixture with other stages, by the fingerprint ``future``.
    """
    group = process_group()
    parts = () if dataset is None else dataset._parts
    differ = future is not None or any(part._arguments["found"] for part in parts)
    if group is None or group[0] == 1 or not differ:
        return
    torch = sys.modules["torch"]
    if torch.utils.data.get_worker_info() is not None:
        return  # A worker is in no process group, whatever it inherited.
    found: list[Any] = [None] * group[0]
    torch.distributed.all_gather_object(found, ([(part.index.fingerprint, len(part)) for part in parts], future))
    for rank, (theirs, stages) in enumerate(found):
        if theirs == found[0][0] and stages != found[0][1]:
            raise StateError(
                f"rank {rank} has other stages than rank 0", hint="give all ranks the same stages, orders and seed"
            )
        if theirs != found[0][0]:
            raise StaleError(
                f"rank {rank} found other files than rank 0: {sum(rows for _, rows in theirs)} rows, and "
                f"{sum(rows for _, rows in found[0][0])}; give all ranks the same files, or build one index and open "
                "it",
                hint="give all ranks the same files, or build one index and open it",
            )


__all__ = ["Launch"]
