"""Sets of table digests, and of random draws, as bytes: a worker gets the sets of all earlier releases.

A digest takes 16 bytes: its form, and the first 120 bits of its SHA-256. Two different tables agree in these
with a probability of 2**-120.
"""

import hashlib

from providers.tables.digest import DigestForm, form_of

_SIZE = 16

_FORMS = {DigestForm.WHOLE: b"\0", DigestForm.PARTS: b"\1"}


def packed_digest(digest: str) -> bytes:
    """Return a digest as an element of a set; a set is its elements, joined."""
    return _FORMS[form_of(digest)] + bytes.fromhex(digest.partition(":")[2])[: _SIZE - 1]


def contains(digests: bytes, digest: str) -> bool:
    """Whether a set has a digest."""
    return _has_element(digests, packed_digest(digest))


def draw_of(key: bytes, *parts: bytes) -> str:
    """Return the fingerprint of a run's random draws, 32 hex digits: one of the set of `has_draw`.

    Parameters
    ----------
    key : bytes
        Secret key, 64 bytes at most, so that nobody can try seeds.
    *parts : bytes
        Seed, and all on which the use of its draws depends.
    """
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(message, digest_size=_SIZE, key=key, person=b"rowveil-draw").hexdigest()


def has_draw(draws: bytes, draw: str) -> bool:
    """Whether a set has a fingerprint of draws; a set is the bytes of all, joined."""
    return _has_element(draws, bytes.fromhex(draw))


def _has_element(elements: bytes, sought: bytes) -> bool:
    found = elements.find(sought)
    while found > 0 and found % _SIZE:  # parts of two elements
        found = elements.find(sought, found + 1)
    return found >= 0


def has_form(digests: bytes, form: DigestForm) -> bool:
    """Whether a set has a digest of a form."""
    return _FORMS[form] in digests[::_SIZE]
