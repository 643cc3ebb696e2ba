"""rowdex."""

from __future__ import annotations

from typing import Any

import rowdex

from .peer import CHANGED, MIXED_ROWS, SHARES, Job, OfLoader, OfSources, shares, sources


class Rowdex(OfLoader):
    package = "rowdex"
    manual = "`Loader`"

    @classmethod
    def prepare(cls, job: Job) -> None:
        rowdex.build(job.data, job.copy / "train.rdx", progress=False)

    def open(self) -> None:
        self.dataset = rowdex.Dataset(self.job.copy / "train.rdx", columns=self.job.columns)
        self.loader = rowdex.Loader(self.dataset, batch_size=self.job.batch, seed=1, **self.options())

    def options(self) -> dict[str, Any]:
        return {}

    def load(self, states: list[Any]) -> None:
        # It is the same on all ranks.
        self.loader.load_state_dict(states[0])


class Mixed(OfSources, Rowdex):
    manual = "`MixedDataset`, `order.Mixed`, `Loader`"

    def open(self) -> None:
        parts = [rowdex.Dataset(one.copy / "train.rdx", columns=one.columns) for one in sources(self.job)]
        order = rowdex.order.Mixed(shares(self.job), size=MIXED_ROWS)
        self.loader = rowdex.Loader(rowdex.MixedDataset(parts), batch_size=self.job.batch, seed=1, order=order)


class Staged(Mixed):
    manual = "the same with `order.Mixed(stages=…)`, and `load_state_dict(stages=…)`"

    def open(self) -> None:
        parts = [rowdex.Dataset(one.copy / "train.rdx", columns=one.columns) for one in sources(self.job)]
        order = rowdex.order.Mixed(list(SHARES), size=MIXED_ROWS, stages=[(0, SHARES)])
        self.loader = rowdex.Loader(rowdex.MixedDataset(parts), batch_size=self.job.batch, seed=1, order=order)

    def load(self, states: list[Any]) -> None:
        position = int(states[0]["state"].split(":")[3])
        changed = [(position, CHANGED)] if self.job.changed else []
        self.loader.load_state_dict(states[0], stages=[(0, SHARES), *changed])


class Shared(Rowdex):
    """One reader for the ranks of a machine, as docs/share.md says."""

    percent = 25

    def options(self) -> dict[str, Any]:
        memory = self.dataset.decoded_bytes * self.percent // 100
        return {"memory": memory, "threads": 2, "share": "machine"}


class Shared10(Shared):
    percent = 10


class Shared100(Shared):
    percent = 100


class Blocks(Shared10):
    """The rows of eight row groups at a time, beside those who shuffle within chunks or buffers."""

    def options(self) -> dict[str, Any]:
        return {**super().options(), "order": "blocks(8)"}


for peer in (Shared, Shared10, Shared100):
    peer.manual = f'`Loader`, `share="machine"`, memory for {peer.percent} % of the decoded bytes'
Blocks.manual = 'the same with 10 % and `order="blocks(8)"`: shuffles eight row groups at a time'
