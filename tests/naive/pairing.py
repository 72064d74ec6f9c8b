"""Random pairs within a group: the randomness protocol of decision 0001, step by step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.naive import chacha20

Address = tuple[int, int]
"""Address of a stream: (identity, level)."""

ONE_BUCKET = 8192
RATE_LEVEL = 0xFFFFFFFF
FEW_BLOCKS = 8
"""Number of blocks from which many at a time are faster than one by one."""


class Words:
    """Words of every stream under one key, computed many blocks at a time, since Python is slow."""

    def __init__(self, key: Sequence[int]) -> None:
        self.key = key
        self.computed: dict[Address, list[int]] = {}

    def fetch(self, wanted: Iterable[tuple[Address, int]]) -> None:
        """Compute at least the wanted number of words of each stream."""
        missing = [
            (address, number)
            for address, words in wanted
            for number in range(len(self.computed.get(address, [])) // 16, -(-words // 16))
        ]
        if not missing:
            return
        counters = [number for _, number in missing]
        nonces = [(identity & 0xFFFFFFFF, identity >> 32, level) for (identity, level), _ in missing]
        if len(missing) < FEW_BLOCKS:
            fetched = [
                chacha20.block(self.key, counter, nonce)
                for counter, nonce in zip(counters, nonces, strict=True)
            ]
        else:
            blocks = chacha20.blocks(self.key, np.array(counters, np.uint32), np.array(nonces, np.uint32))
            fetched = blocks.tolist()
        for (address, number), words in zip(missing, fetched, strict=True):
            stream = self.computed.setdefault(address, [])
            assert len(stream) == 16 * number
            stream.extend(words)

    def stream(self, address: Address, count: int) -> list[int]:
        """Return the words of a stream that are computed, at least the first `count`."""
        self.fetch([(address, count)])
        return self.computed.get(address, [])

    def word(self, address: Address, number: int) -> int:
        """Return word `number` of a stream."""
        stream = self.computed.get(address, [])
        if number >= len(stream):
            self.fetch([(address, 2 * number + 16)])  # few calls for a stream that is read word by word
        return self.computed[address][number]


def fisher_yates(rows: list[int], words: Words, address: Address) -> list[int]:
    """Shuffle the rows by the words of one stream (Fisher-Yates)."""
    rows = list(rows)
    if len(rows) < 2:
        return rows
    stream = words.stream(address, len(rows) - 1)
    drawn = 0
    for last in range(len(rows) - 1, 0, -1):
        bound = last + 1
        # Draw a uniform integer below `bound` (Lemire 2019, algorithm 5).
        product = stream[drawn] * bound
        drawn += 1
        if product & 0xFFFFFFFF < bound:
            threshold = (2**32 - bound) % bound
            while product & 0xFFFFFFFF < threshold:
                product = words.word(address, drawn) * bound
                drawn += 1
            stream = words.stream(address, drawn + last - 1)
        other = product >> 32
        rows[last], rows[other] = rows[other], rows[last]
    return rows


def random_order(rows: list[int], identity: int, words: Words) -> list[int]:
    """Uniformly random order of a group; a large one by buckets."""
    size = len(rows)
    if size <= ONE_BUCKET:
        return fisher_yates(rows, words, (identity, 0))
    bits = ((size - 1) >> 13).bit_length()
    buckets: list[list[int]] = [[] for _ in range(2**bits)]
    words.fetch([((identity, 1), size)])
    for element, row in enumerate(rows):
        buckets[words.word((identity, 1), element) >> (32 - bits)].append(row)
    words.fetch(((identity, 2 + number), len(bucket) + 16) for number, bucket in enumerate(buckets))
    return [
        row
        for number, bucket in enumerate(buckets)
        for row in fisher_yates(bucket, words, (identity, 2 + number))
    ]


def moving_rows(size: int, rate: float, uniform: float) -> int:
    """Return how many of m rows move, given u in [0, 1): floor(x / 2 + u) pairs with x = rate m.

    For odd m and x in (m - 1, m): with probability x - (m - 1) all rows, by the odd rule; else (m - 1)/2
    pairs.
    """
    if rate == 1:
        return size
    wanted = rate * size
    if size % 2 == 1 and wanted > size - 1:
        return size if uniform < wanted - (size - 1) else size - 1
    return 2 * min(math.floor(wanted / 2 + uniform), size // 2)


def drawn_uniform(identity: int, words: Words) -> float:
    """Return the group's u: 53 bits of the first two words at the level of the rate."""
    high, low = (words.word((identity, RATE_LEVEL), number) for number in (0, 1))
    return (high * 2**21 + (low >> 11)) * 2.0**-53


def exchanges(order: Sequence[int], moving: int) -> list[tuple[int, int]]:
    """Return the exchanges of a group in this order; for odd m they end with a cycle of three."""
    size = len(order)
    if moving % 2 == 1:
        assert moving == size >= 3
        steps = [(order[place], order[place + 1]) for place in range(0, size - 3, 2)]
        # "(m-2, m), then (m-1, m)", counted from 1
        return [*steps, (order[size - 3], order[size - 1]), (order[size - 2], order[size - 1])]
    return [(order[place], order[place + 1]) for place in range(0, moving, 2)]


@dataclass
class Group:
    """Rows within which values may be exchanged, in listing order."""

    identity: int
    rows: list[int]


@dataclass
class Exchanged:
    """Result for all groups: source row of each value, rows that took part, and reasons of the others."""

    source: list[int]
    took_part: set[int]
    alone: set[int]
    too_small: set[int]
    not_drawn: set[int]


def exchange_groups(
    groups: Iterable[Group], rows: int, key: Sequence[int], rate: float, min_group_size: int
) -> Exchanged:
    """Exchange within every group."""
    done = Exchanged(list(range(rows)), set(), set(), set(), set())
    words = Words(key)
    groups = [group for group in groups if group.rows]
    words.fetch(((group.identity, 0), len(group.rows)) for group in groups if len(group.rows) <= ONE_BUCKET)
    if rate < 1:
        words.fetch(((group.identity, RATE_LEVEL), 2) for group in groups)
    for group in groups:
        size = len(group.rows)
        if size == 1:
            done.alone |= set(group.rows)
        elif size < min_group_size:
            done.too_small |= set(group.rows)
        else:
            uniform = drawn_uniform(group.identity, words) if rate < 1 else 0.0
            moving = moving_rows(size, rate, uniform)
            order = random_order(group.rows, group.identity, words)
            steps = exchanges(order, moving)
            for one, two in steps:
                done.source[one], done.source[two] = done.source[two], done.source[one]
            moved = {row for step in steps for row in step}
            done.took_part |= moved
            done.not_drawn |= set(group.rows) - moved
    return done
