"""Sets of table digests as bytes: a worker gets those of all earlier releases of its source.

A digest takes 16 bytes: its form, and the first 120 bits of its SHA-256. Two different tables agree in these
with a probability of 2**-120.
"""

from providers.tables.digest import DigestForm, form_of

_SIZE = 16

_FORMS = {DigestForm.WHOLE: b"\0", DigestForm.PARTS: b"\1"}


def packed_digest(digest: str) -> bytes:
    """Return a digest as an element of a set; a set is its elements, joined."""
    return _FORMS[form_of(digest)] + bytes.fromhex(digest.partition(":")[2])[: _SIZE - 1]


def contains(digests: bytes, digest: str) -> bool:
    """Whether a set has a digest."""
    sought = packed_digest(digest)
    found = digests.find(sought)
    while found > 0 and found % _SIZE:  # parts of two elements
        found = digests.find(sought, found + 1)
    return found >= 0


def has_form(digests: bytes, form: DigestForm) -> bool:
    """Whether a set has a digest of a form."""
    return _FORMS[form] in digests[::_SIZE]
