"""ChaCha20 against its RFC, and the streams that are made of it."""

import hashlib
import struct

import numpy as np
import pytest
from numba import njit

from providers.randomness.chacha20 import Stream, chacha20_blocks, stream_words
from tests.kernel_calls import from_python
from tests.naive import chacha20

SEQUENTIAL_KEY = bytes(range(32))
VECTORS = [  # key, counter, nonce, the block
    pytest.param(
        SEQUENTIAL_KEY,
        1,
        bytes.fromhex("000000090000004a00000000"),
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
        id="2.3.2",
    ),
    pytest.param(
        bytes(32),
        0,
        bytes(12),
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
        id="A.1-1",
    ),
    pytest.param(
        bytes(32),
        1,
        bytes(12),
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
        id="A.1-2",
    ),
    pytest.param(
        bytes(31) + b"\x01",
        1,
        bytes(12),
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
        id="A.1-3",
    ),
    pytest.param(
        b"\x00\xff" + bytes(30),
        2,
        bytes(12),
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
        id="A.1-4",
    ),
    pytest.param(
        bytes(32),
        0,
        bytes(11) + b"\x02",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
        id="A.1-5",
    ),
]


@njit(cache=False)
def _blocks(key, address, out):  # type: ignore[no-untyped-def]
    chacha20_blocks(key, address, out)


def _words(data: bytes) -> list[int]:
    return [int(word) for word in np.frombuffer(data, "<u4")]


@pytest.mark.parametrize(("key", "counter", "nonce", "expected"), VECTORS)
def test_blocks_are_those_of_rfc_8439(key: bytes, counter: int, nonce: bytes, expected: str) -> None:
    """Every lane, the scalar twin and the numpy twin give the RFC's block."""
    address = np.zeros((4, 16), np.uint32)
    address[0] = counter
    address[1:] = np.array(_words(nonce), np.uint32)[:, np.newaxis]
    out = np.zeros((16, 16), np.uint32)
    _blocks(np.array(_words(key), np.uint32), address, out)
    wanted = _words(bytes.fromhex(expected))
    assert all(out[:, lane].tolist() == wanted for lane in range(16))
    assert chacha20.block(_words(key), counter, _words(nonce)) == wanted
    many = chacha20.blocks(_words(key), np.array([counter], np.uint32), np.array([_words(nonce)], np.uint32))
    assert many.tolist() == [wanted]


def test_a_stream_is_its_blocks_in_order() -> None:
    """Word w of a stream is word w mod 16 of block w div 16, its nonce naming identity and level."""
    key = Stream(SEQUENTIAL_KEY, "DSWAP", 1).key("exchange/income")
    identity, level, first = 0x0123456789ABCDEF, 7, 3
    words = np.empty(256, np.uint32)
    scratch = np.empty((4, 16), np.uint32), np.empty((16, 16), np.uint32)
    from_python(stream_words)(key, np.uint64(identity), np.uint32(level), np.uint32(first), *scratch, words)
    expected = [
        word
        for number in range(first, first + 16)
        for word in chacha20.block(key.tolist(), number, [0x89ABCDEF, 0x01234567, level])
    ]
    assert words.tolist() == expected


def test_key_derivation_is_as_documented() -> None:
    """A key is BLAKE2b-256 keyed by the seed over length-prefixed service, revision and purpose."""
    parts = ("CDSWAP", "1", "exchange/größe")
    message = b"".join(struct.pack("<Q", len(part.encode())) + part.encode() for part in parts)
    digest = hashlib.blake2b(message, key=SEQUENTIAL_KEY, digest_size=32, person=b"rowveil-stream").digest()
    key = Stream(SEQUENTIAL_KEY, "CDSWAP", 1).key("exchange/größe")
    assert key.tolist() == list(struct.unpack("<8I", digest))
    assert key.tolist() == chacha20.derive_key(SEQUENTIAL_KEY, "CDSWAP", 1, "exchange/größe")


def test_every_part_of_the_address_matters() -> None:
    """Another seed, service, revision or purpose is another key."""
    keys = {
        tuple(Stream(seed, service, revision).key(purpose).tolist())
        for seed in (bytes(32), SEQUENTIAL_KEY)
        for service in ("DSWAP", "CDSWAP")
        for revision in (1, 2)
        for purpose in ("exchange", "exchange/a", "exchange/b")
    }
    assert len(keys) == 2 * 2 * 2 * 3


def test_a_stream_does_not_show_its_seed() -> None:
    """Neither repr nor str of a stream holds the seed."""
    stream = Stream(b"\xab" * 32, "DSWAP", 1)
    assert "ab" * 4 not in repr(stream)
    assert "\\xab" not in f"{stream!s}{stream!r}"
