"""A dataloader of packs for torchtitan's main branch: `dataloader=Packs.Config(dataset_path="train.rdx")`.

A batch is ({"input": …, "positions": …}, labels), int64, of num_tokens_per_batch tokens. Positions restart where a
piece of a row begins. The state is the same on all ranks, and resumes with any number of them."""

from dataclasses import dataclass

import rowdex
from torchtitan.components.data.loader import BaseDataLoader


class Packs(BaseDataLoader):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        dataset_path: str
        column: str = "tokens"
        seed: int = 0
        epochs: int | None = None
        infinite: bool = True

    def __init__(self, config, *, dp_world_size, dp_rank, max_context_length, num_tokens_per_batch, **_):
        self.config = config
        capacity = min(max_context_length, num_tokens_per_batch)
        dataset = rowdex.Dataset(config.dataset_path)
        read = {config.column, "labels", "completion_mask", "assistant_masks"}  # Prompts may have no labels.
        self.loader = rowdex.Loader(
            dataset.select([name for name in dataset.column_names if name in read]),
            batch_size=num_tokens_per_batch // capacity, pack=rowdex.Pack(config.column, capacity, layout="rows"),
            num_replicas=dp_world_size, rank=dp_rank, seed=config.seed, drop_last="batch",
        )
        self.state_dict, self.load_state_dict = self.loader.state_dict, self.loader.load_state_dict

    def __iter__(self):
        epochs = self.config.epochs or (float("inf") if self.config.infinite else 1)
        names = (self.config.column, "position_ids", "labels")
        while self.loader.epoch < epochs:
            for batch in self.loader:
                tokens, positions, labels = (batch[name].long().flatten() for name in names)
                yield {"input": tokens, "positions": positions}, labels
