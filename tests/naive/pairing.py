"""Pairing up a group, as the randomness protocol of decision 0001 says it, one step after the other."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tests.naive import chacha20

Address = tuple[int, int]
"""What names a stream: (identity, level)."""

ONE_BUCKET = 8192
RATE_LEVEL = 0xFFFFFFFF


class Words:
    """The words of every stream under one key; fetched many blocks at a time, since Python is slow."""

    def __init__(self, key: Sequence[int]) -> None:
        self.key = key
        self.have: dict[Address, list[int]] = {}

    def fetch(self, wanted: Iterable[tuple[Address, int]]) -> None:
        """Have at least so many words of each of these streams."""
        missing = [
            (address, number)
            for address, words in wanted
            for number in range(len(self.have.get(address, [])) // 16, -(-words // 16))
        ]
        if not missing:
            return
        counters = np.array([number for _, number in missing], np.uint32)
        nonces = np.array(
            [(identity & 0xFFFFFFFF, identity >> 32, level) for (identity, level), _ in missing], np.uint32
        )
        fetched = chacha20.blocks(self.key, counters, nonces).tolist()
        for (address, number), words in zip(missing, fetched, strict=True):
            stream = self.have.setdefault(address, [])
            assert len(stream) == 16 * number
            stream.extend(words)

    def word(self, address: Address, number: int) -> int:
        """Word `number` of a stream."""
        stream = self.have.get(address, [])
        if number >= len(stream):
            self.fetch([(address, number + 16)])
        return self.have[address][number]


def fisher_yates(rows: list[int], words: Words, address: Address) -> list[int]:
    """A uniformly random order of the rows, by the words of one stream."""
    rows = list(rows)
    drawn = 0
    for last in range(len(rows) - 1, 0, -1):
        bound = last + 1
        # A uniform integer below `bound` (Lemire 2019, algorithm 5).
        product = words.word(address, drawn) * bound
        drawn += 1
        if product & 0xFFFFFFFF < bound:
            threshold = (2**32 - bound) % bound
            while product & 0xFFFFFFFF < threshold:
                product = words.word(address, drawn) * bound
                drawn += 1
        other = product >> 32
        rows[last], rows[other] = rows[other], rows[last]
    return rows


def random_order(rows: list[int], identity: int, words: Words) -> list[int]:
    """A uniformly random order of a group."""
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


def number_of_pairs(size: int, rate: float, identity: int, words: Words) -> int:
    """How many pairs of a group are exchanged: floor(rate m / 2 + u), at most m / 2."""
    if rate == 1:
        return size // 2
    high, low = (words.word((identity, RATE_LEVEL), number) for number in (0, 1))
    uniform = (high * 2**21 + (low >> 11)) * 2.0**-53
    return min(math.floor(rate * size / 2.0 + uniform), size // 2)


def exchanges(order: Sequence[int], pairs: int, rate: float) -> list[tuple[int, int]]:
    """The exchanges of a group in this order, one after the other; for odd m a cycle of three at the end."""
    size = len(order)
    if rate == 1 and size % 2 == 1 and size >= 3:
        steps = [(order[at], order[at + 1]) for at in range(0, size - 3, 2)]
        # "(m-2, m), then (m-1, m)", counted from 1
        return [*steps, (order[size - 3], order[size - 1]), (order[size - 2], order[size - 1])]
    return [(order[at], order[at + 1]) for at in range(0, 2 * pairs, 2)]


@dataclass
class Group:
    """Rows within which values may be exchanged, in listing order."""

    identity: int
    rows: list[int]


@dataclass
class Exchanged:
    """What became of all groups: where each row's value comes from, and who stood aside."""

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
            pairs = number_of_pairs(size, rate, group.identity, words)
            order = random_order(group.rows, group.identity, words)
            steps = exchanges(order, pairs, rate)
            for one, two in steps:
                done.source[one], done.source[two] = done.source[two], done.source[one]
            moved = {row for step in steps for row in step}
            done.took_part |= moved
            done.not_drawn |= set(group.rows) - moved
    return done
