"""Derived seeds.

A derived seed is ``BLAKE2b-256(parts, key=master, person="rowveil-derived")`` over the parts of its
name, each preceded by its length in eight bytes, little-endian. It depends only on the master seed and its
own name, so that neither the number of other seeds nor their order can change it.

References
----------
RFC 7693, BLAKE2.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def derived_seed(master: bytes, *name: str) -> bytes:
    """Derive 32 bytes for one name, such as ``("candidate", "3")``.

    Parameters
    ----------
    master : bytes
        32 bytes. They determine every derived seed, and no derived seed reveals them.
    """
    parts = (part.encode() for part in name)
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(message, digest_size=32, key=master, person=b"rowveil-derived").digest()


def candidate_seed(master: bytes, index: int) -> bytes:
    """Seed of candidate `index`, from 0; the first one has the master seed.

    Thus a job with one candidate equals a job without candidates.
    """
    return derived_seed(master, "candidate", str(index)) if index else master


def point_seed(master: bytes, service: str, parameters: Mapping[str, Any], run: int) -> bytes:
    """Seed of one run of a service with these parameters, whatever its position in the request.

    Parameters
    ----------
    parameters : mapping
        Checked parameters with resolved names and all defaults, as plain JSON values.
    run : int
        Index among the runs with these parameters, from 0.
    """
    written = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return derived_seed(master, "point", service, written, str(run))
