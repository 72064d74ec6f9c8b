"""Block function of ChaCha20 (RFC 8439, section 2.3), in plain Python and in numpy."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

MASK = 0xFFFFFFFF
CONSTANTS = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
QUARTER_ROUNDS = [  # 2.3.1
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
]


def block(key: Sequence[int], counter: int, nonce: Sequence[int]) -> list[int]:
    """Return the sixteen words of one block."""
    start = CONSTANTS + [int(word) for word in key] + [counter] + list(nonce)
    x = list(start)

    for _ in range(10):
        for i, j, k, m in QUARTER_ROUNDS:
            a, b, c, d = x[i], x[j], x[k], x[m]  # 2.1; a call for each rotation would take twice as long
            a = a + b & MASK
            d ^= a
            d = d << 16 & MASK | d >> 16
            c = c + d & MASK
            b ^= c
            b = b << 12 & MASK | b >> 20
            a = a + b & MASK
            d ^= a
            d = d << 8 & MASK | d >> 24
            c = c + d & MASK
            b ^= c
            b = b << 7 & MASK | b >> 25
            x[i], x[j], x[k], x[m] = a, b, c, d
    return [word + begin & MASK for word, begin in zip(x, start, strict=True)]


def blocks(
    key: Sequence[int], counters: npt.NDArray[np.uint32], nonces: npt.NDArray[np.uint32]
) -> npt.NDArray[np.uint32]:
    """Return the words of many blocks, (n, 16), for counters (n,) and nonces (n, 3)."""
    start = np.empty((16, len(counters)), np.uint32)
    for index, word in enumerate([*CONSTANTS, *key]):
        start[index] = word
    start[12] = counters
    start[13:] = nonces.T
    x = start.copy()
    a, b, c, d = range(4)
    for _ in range(10):
        for four_rounds in (QUARTER_ROUNDS[:4], QUARTER_ROUNDS[4:]):  # which share no word
            places = np.array(four_rounds).T
            words = [x[place] for place in places]
            for first, second, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                words[first] += words[second]
                mixed = words[third] ^ words[first]
                words[third] = mixed << np.uint32(bits) | mixed >> np.uint32(32 - bits)
            for place, word in zip(places, words, strict=True):
                x[place] = word
    return np.ascontiguousarray((x + start).T)


def derive_key(seed: bytes, service: str, revision: int, purpose: str) -> list[int]:
    """Eight words: BLAKE2b-256 keyed by the seed over the three parts, each after its length in 8 bytes."""
    message = b""
    for part in (service, str(revision), purpose):
        encoded = part.encode("utf-8")
        message += len(encoded).to_bytes(8, "little") + encoded
    digest = hashlib.blake2b(message, digest_size=32, key=seed, person=b"rowveil-stream").digest()
    return [int.from_bytes(digest[at : at + 4], "little") for at in range(0, 32, 4)]
