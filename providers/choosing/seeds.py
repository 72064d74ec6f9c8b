"""Seeds of single runs, derived from the one master seed: looked up by name, never consumed.

A derived seed is ``BLAKE2b-256(parts, key=master, person="rowveil-derived")`` over the parts of its
name, each with its length in eight bytes, little-endian, before it. It depends on nothing but the
master seed and its own name, so neither the number of the others nor their order can change it.

References
----------
RFC 7693, BLAKE2.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def derived_seed(master: bytes, *name: str) -> bytes:
    """32 bytes for one name, such as ``("candidate", "3")``.

    Parameters
    ----------
    master : bytes
        32 bytes; whoever has it has every derived seed, and none of those gives it away.
    """
    parts = (part.encode() for part in name)
    message = b"".join(len(part).to_bytes(8, "little") + part for part in parts)
    return hashlib.blake2b(message, digest_size=32, key=master, person=b"rowveil-derived").digest()


def candidate_seed(master: bytes, index: int) -> bytes:
    """The seed of candidate `index`, from 0; the first has the master seed itself.

    So a run with one candidate is the plain run.
    """
    return derived_seed(master, "candidate", str(index)) if index else master


def point_seed(master: bytes, service: str, parameters: Mapping[str, Any], run: int) -> bytes:
    """The seed of one run of a service with these parameters, wherever it stands in a list.

    Parameters
    ----------
    parameters : mapping
        As checked, every name resolved and every default said; plain JSON values.
    run : int
        Which of the runs with these parameters, from 0.
    """
    written = json.dumps(parameters, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return derived_seed(master, "point", service, written, str(run))
