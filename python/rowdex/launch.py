"""Which rank this process is."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from . import _ffi
from ._library import call, library


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
    """Which of the ranks on this machine it is, if the launcher says."""
    local_world_size: int | None
    """How many ranks there are on this machine, if the launcher says."""
    launcher: str
    """Whose variables these are: ``"torchrun"``, ``"Open MPI"``, ``"PMI"`` or ``"Slurm"``."""

    @staticmethod
    def from_env() -> Launch:
        """What torchrun, Open MPI, PMI or Slurm put into the environment of this process.

        Raises:
            ArgumentError: which is a ``ValueError``, if no launcher is found, if a variable is missing or no number, or if launchers
                disagree. It names the variables.
        """
        found = _ffi.Launch()
        call(library.launch_from_env, ctypes.byref(found))
        local_rank, local_world_size = (
            None if value == _ffi.UNKNOWN else int(value) for value in (found.local_rank, found.local_world_size)
        )
        return Launch(int(found.rank), int(found.world_size), local_rank, local_world_size, found.launcher.text())


__all__ = ["Launch"]
