"""Batches of packs for Megatron-Core, whose name for packs without padding is THD.

    pack = rowdex.Pack("tokens", capacity=8192, multiple=2 * context_parallel_size)
    loader = rowdex.Loader(dataset, batch_size=1, pack=pack, num_replicas=dp_size, rank=dp_rank)
    batches = map(thd, loader)

`megatron.core.datasets.data_schedule.get_batch_on_this_rank_for_sequence_packing` takes an iterator of these."""

import itertools
import sys

import rowdex
import torch


def thd(batch, column="tokens"):
    """A flat batch as one microbatch. The sums of `cu_seqlens_padded` count what fills pieces up to `multiple`."""
    labels, lengths = batch["labels"], batch["lengths"]
    return {
        "tokens": batch[column].long(),
        "position_ids": batch["position_ids"].long(),
        "labels": labels.long(),
        "loss_mask": (labels != -100).float(),
        "cu_seqlens": torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int(),
        "cu_seqlens_padded": batch["cu_seqlens"],
        "max_seqlen": torch.tensor([int(batch["max_seqlen"])], dtype=torch.int32),
    }


if __name__ == "__main__":
    index, column = sys.argv[1:]
    pack = rowdex.Pack(column, capacity=64, multiple=4)
    loader = rowdex.Loader(rowdex.Dataset(index), batch_size=1, pack=pack, seed=42)
    for microbatch in itertools.islice(loader, 3):
        found = thd(microbatch, column)
        print(f"{len(found['tokens'])} places, {len(found['cu_seqlens']) - 1} pieces")
