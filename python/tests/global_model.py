"""The order ``global`` of more than 65,536 rows, written from docs/orders.md alone: an implementation of its own."""

from __future__ import annotations

import struct

import xxhash

MASK = (1 << 64) - 1


def positions(rows: int, seed: int, epoch: int = 0) -> list[int]:
    """The row at each position."""
    assert rows > 1 << 16
    message = b"rowdex order v1\0" + struct.pack("<QQ", seed, epoch)
    keys = [xxhash.xxh3_64_intdigest(message, word) for word in range(8)]
    bits = (rows - 1).bit_length()
    left = bits // 2
    right = bits - left

    def mix(half: int, key: int) -> int:
        mixed = (half ^ key) * 0xBF58476D1CE4E5B9 & MASK
        return (mixed ^ mixed >> 32) * 0x94D049BB133111EB & MASK

    def encrypt(number: int) -> int:
        high, low = number >> right, number & (1 << right) - 1
        for round in range(0, 8, 2):
            high ^= mix(low, keys[round]) >> 64 - left
            low ^= mix(high, keys[round + 1]) >> 64 - right
        return high << right | low

    def row(position: int) -> int:
        found = encrypt(position)
        while found >= rows:
            found = encrypt(found)
        return found

    return [row(position) for position in range(rows)]
