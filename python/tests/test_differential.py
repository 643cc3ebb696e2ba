"""rowdex against pyarrow on random files with random options: see ``differential.py``.

``ROWDEX_DIFFERENTIAL_SECONDS`` says how long (default 60), ``ROWDEX_DIFFERENTIAL_SEED`` runs one case again.
"""

from __future__ import annotations

import os
import subprocess
import sys

from .conftest import REPOSITORY


def test_random_files_and_options_give_what_pyarrow_reads() -> None:
    seconds = float(os.environ.get("ROWDEX_DIFFERENTIAL_SECONDS", "60"))
    seed = os.environ.get("ROWDEX_DIFFERENTIAL_SEED")
    command = [sys.executable, "-m", "python.tests.differential", "--seconds", str(seconds)]
    command += [] if seed is None else ["--seed", seed]
    # In a process of its own: it may die or hang, and says before each case which one it is.
    path = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as child:
        try:
            output, _ = child.communicate(timeout=seconds + 600)
        except subprocess.TimeoutExpired:
            child.kill()
            output = child.communicate()[0] + "\nit hangs"
    # Whoever reads this runs the case again with its number.
    assert child.returncode == 0, (
        output[-20_000:]
        + "\nrun one case again by ROWDEX_DIFFERENTIAL_SEED=number, "
        + "or by python -m python.tests.differential --seed number"
    )
