"""A loader that Hugging Face Accelerate takes as prepared.

::

    accelerator = Accelerator()
    loader = rowdex.accelerate.Loader(rowdex.Dataset("train.rdx"), batch_size=256, seed=42)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch.utils.data
from accelerate.data_loader import DataLoaderStateMixin
from accelerate.state import AcceleratorState, GradientState, PartialState, is_initialized
from accelerate.utils import send_to_device

from . import loader as _loader
from .dataset import Dataset
from .frameworks.gathered import dealt
from .sampler import DistributedSampler
from .stages import Stages


class Loader(_loader.Loader, DataLoaderStateMixin, torch.utils.data.DataLoader):  # type: ignore[misc,type-arg]
    """A :class:`rowdex.Loader` for Accelerate: ``accelerator.prepare()`` takes it as it is, and shards nothing again.

    Its batches are those of a :class:`rowdex.Loader`, on the device of the accelerator. Accelerate learns when an epoch
    ends, for gradient accumulation, and how many rows of the last step are not repeated, for ``gather_for_metrics``: in
    that step some ranks serve a row of another rank instead of a row that is served twice. ``accelerator.save_state()``
    saves the position of the run, and ``load_state()`` resumes exactly there, also with another number of ranks. Epochs
    advance by themselves. ``accelerator.skip_first_batches()`` skips without reading.

    Args:
        dataset, options: As :class:`rowdex.Loader` has them. Rank and world size are those of Accelerate, and with a
            device mesh those of its data-parallel dimensions.
        device: The device of the batches. Default: the accelerator's. ``"none"``: they stay where they are.
        non_blocking: Whether copies to the device are started and not waited for.
    """

    # What Accelerate asks of a loader. Its own loaders save their state under this name.
    _is_accelerate_prepared = True
    use_stateful_dataloader = True
    rng_types = None
    synchronized_generator = None
    pin_memory = False
    drop_last = False

    def __init__(
        self, dataset: Dataset, sampler: DistributedSampler | None = None, *, device: Any = None,
        non_blocking: bool = False, **options: Any,
    ) -> None:  # fmt: skip
        if options.get("strings") == "views":
            raise ValueError("strings='views': Accelerate moves tensors, and views are none")
        if sampler is None and not {"num_replicas", "rank"} & set(options):
            options["num_replicas"], options["rank"] = ranks()
        super().__init__(dataset, sampler, **options)
        if self.spec.pack is not None and self.spec.tail == "wrap" and self._sampler._shards > 1:
            other = "tail='drop'" if self.spec.pack._is_of_rows else "tail='even'"
            raise ValueError(
                f"tail='wrap' with packs: gather_for_metrics cannot tell packs that come twice; use {other}, where "
                "none does"
            )
        if options.get("on_error") == "substitute" and self._deals_anew():
            raise ValueError(
                "on_error='substitute' with tail='wrap': in the last step of an epoch ranks serve rows of others, and "
                "read these without substitutes; use tail='drop'"
            )
        self._device, self._non_blocking = device, non_blocking

    def _start(self) -> None:
        super()._start()
        # Where the run goes on from, which is what the last step of that epoch is dealt by.
        self._dealer = self._sampler

    def load_state_dict(self, state_dict: dict[str, str], *, stages: Stages | None = None) -> None:
        super().load_state_dict(state_dict, stages=stages)
        self._dealer = self._sampler_copy()
        self._dealer.load_state_dict(state_dict, stages=stages)

    def _deals_anew(self) -> bool:
        """Whether some ranks serve rows of others in the last step of an epoch."""
        sampler, spec = self._sampler, self.spec
        if spec.tail != "wrap" or spec.replicas != 1 or sampler.steps == 0:
            return False
        return any(rows is not None for rows in dealt(sampler, sampler.epoch, sampler.steps - 1).rows)

    @property
    def gradient_state(self) -> Any:
        """That of this process."""
        return GradientState()

    @property
    def device(self) -> Any:
        """Where batches go, or ``None`` if they stay."""
        if self._device == "none":
            return None
        return PartialState().device if self._device is None else self._device

    @property
    def total_batch_size(self) -> int:
        """Rows per step of all ranks together."""
        return self.batch_size * self._sampler._shards

    @property
    def total_dataset_length(self) -> int:
        """How many rows the dataset has."""
        return len(self.dataset)

    def _epoch(self, loader: Any, epoch: int, step: int) -> Iterator[Any]:
        self.begin()
        try:
            steps = len(self)
            for number, batch in enumerate(super()._epoch(loader, epoch, step), step):
                if number + 1 == steps:
                    batch = self._last(batch, epoch, number)
                    self.end_of_dataloader = True
                yield batch if self.device is None else send_to_device(batch, self.device, self._non_blocking)
        finally:
            self.end()

    def _last(self, batch: Any, epoch: int, step: int) -> Any:
        """The last batch of an epoch, assigned so that what is served twice comes last when the ranks' are gathered."""
        spec = self._sampler.spec
        if spec.tail != "wrap" or spec.replicas != 1 or spec.world_size == 1:
            self.remainder = 0
            return batch
        if epoch != self._dealer._resumed_epoch:
            self._dealer._resumed_epoch = None
        found = dealt(self._dealer, epoch, step)
        # It is whole when it comes again.
        self._dealer._resumed_epoch = None
        self.remainder = found.real if found.real < found.total else 0
        rows = found.rows[spec.rank]
        if rows is None:
            return batch
        make = self._convert if self._mapping is None else self._made
        return make(self.dataset.take(rows), found.pads[spec.rank])


def ranks() -> tuple[int, int]:
    """World size and rank of the data-parallel ranks of Accelerate."""
    if not is_initialized():
        raise RuntimeError("make the Accelerator first: it knows the world size and the rank")
    state = PartialState()
    size, rank = int(state.num_processes), int(state.process_index)
    mesh = getattr(AcceleratorState(), "device_mesh", None)
    return (size, rank) if mesh is None else data_ranks(mesh, rank)


def data_ranks(mesh: Any, rank: int) -> tuple[int, int]:
    """World size and rank among the data-parallel ranks of a mesh, as Accelerate counts them."""
    sizes = dict(zip(mesh.mesh_dim_names, mesh.mesh.shape))
    group = sizes.get("tp", 1) * sizes.get("cp", 1)
    return int(sizes.get("dp_replicate", 1) * sizes.get("dp_shard", 1)), int(rank // group)


__all__ = ["Loader"]
