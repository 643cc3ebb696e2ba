"""Trains with workers of PyTorch, one of which is killed, and goes on from the state. Started by test_complaints.py.

PyTorch tells of a worker that was killed by an error wherever the program is at that moment, so nobody else's code may
run here, and the tests' least of all.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from typing import Any

import rowdex.torch
from torch.utils.data import DataLoader

dataset = rowdex.torch.Dataset(sys.argv[1], ["id"])


def loader_of(batches: Any) -> Any:
    return DataLoader(dataset, batch_sampler=batches, num_workers=2, prefetch_factor=2)


error = None
# What was served and the state after it, set at once: the error may come between any two lines.
taken: tuple[list[int], dict[str, str]] = ([], {})
batches = rowdex.torch.BatchSampler(dataset, 16, seed=2, num_replicas=1, rank=0)
steps = iter(loader_of(batches))
try:
    for step in itertools.count():
        rows = next(steps)["id"].tolist()
        taken = (taken[0] + rows, batches.state_after(0, step))
        if step == 7:
            os.kill(steps._workers[0].pid, signal.SIGKILL)
except (RuntimeError, ConnectionError, EOFError) as caught:
    # The latter two where the worker was gone before the memory of a batch was handed over.
    error = f"{type(caught).__name__}: {caught}"
del steps
served, state = taken
# As much as the training took of it, whatever the other worker had ready.
again = rowdex.torch.BatchSampler(dataset, 16, seed=2, num_replicas=1, rank=0)
again.load_state_dict(state)
served += [row for batch in loader_of(again) for row in batch["id"].tolist()]
print(json.dumps({"error": error, "served": served}))
