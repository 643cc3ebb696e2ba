"""Prints what torch.utils.data.DistributedSampler serves: torch_order.py [--torch].

One line a case: rows, ranks, seed, epoch, shuffle, drop_last and rank, a colon, and the row ids.

With --torch it asks the installed PyTorch. Without, it follows PyTorch's documented behaviour with the Mersenne Twister
of Python itself, whose generator is the same one with another way of seeding.
"""

import itertools
import math
import random
import sys

ROWS = [0, 1, 2, 3, 10, 97, 623, 624, 625, 1000, 3001]
RANKS = [1, 3, 8]
SEEDS = [0, 42, 2**31, 2**32 + 1, -5]
EPOCHS = [0, 1, 6]


class Words:
    """The words of torch.Generator().manual_seed(seed)."""

    def __init__(self, seed):
        state = [seed % 2**32]
        for j in range(1, 624):
            state.append((1812433253 * (state[-1] ^ (state[-1] >> 30)) + j) % 2**32)
        self.random = random.Random()
        self.random.setstate((3, (*state, 624), None))

    def next(self):
        return self.random.getrandbits(32)


def randperm(n, seed):
    words, rows = Words(seed), list(range(n))
    for i in range(n - 1):
        j = i + words.next() % (n - i)
        rows[i], rows[j] = rows[j], rows[i]
    return rows


def reference(n, ranks, seed, epoch, shuffle, drop_last, rank):
    rows = randperm(n, seed + epoch) if shuffle else list(range(n))
    each = n // ranks if drop_last else math.ceil(n / ranks)
    return list(itertools.islice(itertools.cycle(rows), each * ranks))[rank::ranks]


def torch_sampler():
    from torch.utils.data.distributed import DistributedSampler

    def rows(n, ranks, seed, epoch, shuffle, drop_last, rank):
        sampler = DistributedSampler(
            range(n), num_replicas=ranks, rank=rank, shuffle=shuffle, seed=seed, drop_last=drop_last
        )
        sampler.set_epoch(epoch)
        return list(sampler)

    return rows


def main():
    rows = torch_sampler() if "--torch" in sys.argv[1:] else reference
    for n, ranks, seed, epoch, shuffle, drop_last in itertools.product(
        ROWS, RANKS, SEEDS, EPOCHS, [True, False], [True, False]
    ):
        if not shuffle and (seed, epoch) != (0, 1):
            continue
        for rank in range(ranks):
            case = (n, ranks, seed % 2**64, epoch, int(shuffle), int(drop_last), rank)
            print(*case, ":", *rows(n, ranks, seed, epoch, shuffle, drop_last, rank))


main()
