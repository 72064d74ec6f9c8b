"""Hashes of many messages at once are those of `hashlib`."""

import hashlib

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from providers.kernels.blake2b import keyed_hashes


@given(
    st.lists(st.binary(max_size=300), max_size=20),
    st.binary(min_size=1, max_size=64),
    st.binary(max_size=16),
    st.binary(max_size=3),
)
@example(
    [b"", b"a" * 127, b"b" * 128, b"", b"c" * 129, b"d", b"e" * 256, b"f" * 257, b""], b"k" * 64, b"", b""
)
def test_hashes_are_those_of_hashlib(
    messages: list[bytes], key: bytes, person: bytes, between: bytes
) -> None:
    """Bytes between the messages do not matter."""
    expected = [
        int.from_bytes(hashlib.blake2b(message, digest_size=8, key=key, person=person).digest(), "big")
        for message in messages
    ]
    sizes = np.array([len(message) for message in messages], np.int64)
    ends = np.cumsum(sizes + len(between), dtype=np.int64)
    text = np.frombuffer(bytearray(b"".join(between + message for message in messages)), np.uint8)
    assert keyed_hashes(text, ends - sizes, ends, key, person).tolist() == expected
