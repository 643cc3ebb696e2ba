"""A rank whose DataLoaders have workers that share a reader: it notes what it gets. Started by test_share.py."""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

import rowdex
import rowdex.torch
from torch.utils.data import DataLoader

TIMEOUT = 280


class Case:
    """DataLoaders of one sort."""

    def __init__(self, options: dict[str, Any], note: Any, name: str, method: str, persistent: bool) -> None:
        self.options, self.note, self.name = options, note, name
        self.workers = {
            "multiprocessing_context": method, "persistent_workers": persistent, "timeout": TIMEOUT,
        }  # fmt: skip

    def serve(self, workers: int, epoch: int, step: int, leave: int | None, state: str | None) -> str | None:
        """Serves from a place on, to the end or so many steps. Says the state then."""
        options = self.options
        share = rowdex.Share(**{**options["share"], "name": options.get("workers_name", f"{self.name} {workers}")})
        dataset = rowdex.torch.Dataset(
            options["index"], ["id", "x", "vector", "name"], memory=options["memory"], share=share
        )
        sampling = {"seed": 7, "rank": options["rank"], "num_replicas": options["world"]}
        if self.name == "iterable":
            batches: Any = rowdex.torch.IterableDataset(dataset, options["batch"], **sampling)
            loader: Any = DataLoader(batches, batch_size=None, num_workers=workers, **self.workers)
            resume = batches.load_run_state
        else:
            batches = rowdex.torch.BatchSampler(dataset, options["batch"], **sampling)
            loader = DataLoader(dataset, batch_sampler=batches, num_workers=workers, **self.workers)
            resume = batches.load_state_dict
        if state is not None:
            resume({"state": state})
        while epoch < options["epochs"]:
            for batch in loader:
                ids = batch["id"]
                assert (batch["x"] * 2 == ids).all() and (batch["vector"][:, 1] == ids + 1).all()
                assert batch["name"] == [f"row {row}" for row in ids.tolist()]
                print("step", self.name, epoch, step, json.dumps(ids.tolist()), file=self.note)
                step += 1
                if (epoch, step) == (1, leave):
                    return batches.state_after(epoch, step - 1)["state"]  # type: ignore[no-any-return]
            epoch, step = epoch + 1, 0
        return None


def main() -> None:
    # So that its workers import PyTorch once.
    multiprocessing.set_forkserver_preload(["rowdex.torch"])
    options: dict[str, Any] = json.loads(sys.argv[1])
    with open(options["note"], "a", buffering=1) as note:
        for name, method, persistent in options["cases"]:
            case = Case(options, note, name, method, persistent)
            # Up to within the second epoch, and on from there with other workers.
            state = case.serve(2, 0, 0, 9, None)
            case.serve(3, 1, 9, None, state)
        print("end", file=note)


if __name__ == "__main__":
    main()
