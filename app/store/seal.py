"""Sealing at rest: small values under the master key, fingerprints of seeds, and signatures.

A sealed value is ``version (1) | key id (8) | nonce (12) | AES-256-GCM(value) + tag (16)``. Its
context (whose it is, and what for) is authenticated with it, so that a value moved to another
place does not open. The key id lets old values open after the master key was changed.

Nonces are random: one master key seals 2**32 values before a repeat is likelier than 2**-32
(NIST SP 800-38D, 8.3). A job seals three.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.store.canonical import canonical_json
from app.store.keys import key_id, subkey

_VERSION = b"\x01"
_KEY_ID = slice(1, 9)
_NONCE = slice(9, 21)
_BODY = slice(21, None)
_ALGORITHM = "Ed25519"


class SealBroken(Exception):
    """A sealed value does not open: it was changed, moved, cut short, or its key is not here."""


def seed_context(job_id: str) -> str:
    """What a job's sealed seed is bound to."""
    return f"job/{job_id}/seed"


def report_context(job_id: str) -> str:
    """What a job's sealed report is bound to."""
    return f"job/{job_id}/report"


def webhook_context(job_id: str) -> str:
    """What a sealed webhook is bound to."""
    return f"job/{job_id}/webhook"


class Sealer:
    """Seals under the first master key and opens with any of them."""

    def __init__(self, master_keys: Sequence[bytes], fingerprint_key: bytes | None = None) -> None:
        """Make one of these keys.

        ``master_keys``: 32 bytes each, the one that seals first. ``fingerprint_key``: default, derived
        from the first; another one keeps fingerprints what they were when the master key changes.
        """
        self._ciphers = {key_id(key): AESGCM(subkey(key, "seal/1")) for key in master_keys}
        self._primary = key_id(master_keys[0])
        self._fingerprint_key = fingerprint_key or first_fingerprint_key(master_keys)

    @property
    def key_id(self) -> str:
        """Names the master key that seals, and tells nothing of it."""
        return self._primary.hex()

    @property
    def key_ids(self) -> set[str]:
        """The same for all that open."""
        return {name.hex() for name in self._ciphers}

    def seal(self, plain: bytes, context: str) -> bytes:
        """``plain``, openable only under the same context, such as ``"job/<id>/seed"``."""
        nonce = secrets.token_bytes(12)
        prefix = _VERSION + self._primary
        body = self._ciphers[self._primary].encrypt(nonce, plain, prefix + context.encode())
        return prefix + nonce + body

    def open(self, sealed: bytes, context: str) -> bytes:
        """What was sealed. Raises SealBroken."""
        if sealed[:1] != _VERSION:
            raise SealBroken("a sealed value of an unknown version")
        cipher = self._ciphers.get(sealed[_KEY_ID])
        if cipher is None:
            raise SealBroken(
                f"sealed under the master key {sealed[_KEY_ID].hex()}, which is not among the keys given"
            )
        try:
            return cipher.decrypt(sealed[_NONCE], sealed[_BODY], sealed[:9] + context.encode())
        except (InvalidTag, ValueError) as error:  # ValueError: cut short within the nonce
            raise SealBroken(f"the sealed {context.rpartition('/')[2]} was changed or moved") from error

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed under the first master key."""
        return sealed[:1] == _VERSION and sealed[_KEY_ID] == self._primary

    def fingerprint(self, seed: bytes) -> str:
        """16 hex digits that are equal for equal seeds, for those who see jobs but not seeds.

        Keyed: a plain hash of a weak seed (a year, say) could be searched for, and a seed undoes
        its swap. Fingerprints compare within one installation.
        """
        return self._keyed(seed, b"seed")

    def request_fingerprint(self, request: bytes) -> str:
        """The same for a whole request, which holds a seed and rows."""
        return self._keyed(request, b"request")

    def _keyed(self, message: bytes, person: bytes) -> str:
        digest = hashlib.blake2b(message, digest_size=8, key=self._fingerprint_key, person=person)
        return digest.hexdigest()


def first_fingerprint_key(master_keys: Sequence[bytes]) -> bytes:
    """What fingerprints are keyed with from an installation's first start on."""
    return subkey(master_keys[0], "fingerprint/1")


class Signer:
    """Signs documents as the service, over their canonical JSON."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public = key.public_key().public_bytes_raw()

    def sign(self, document: dict[str, Any]) -> dict[str, str]:
        """``{algorithm, key_id, public_key, value}``, the last two in base64."""
        return {
            "algorithm": _ALGORITHM,
            "key_id": key_id(self._public).hex(),
            "public_key": base64.b64encode(self._public).decode(),
            "value": base64.b64encode(self._key.sign(canonical_json(document))).decode(),
        }

    def verify(self, document: dict[str, Any], signature: dict[str, str]) -> bool:
        """Whether this service's key signed exactly this document."""
        return signature.get("public_key") == base64.b64encode(self._public).decode() and signature_holds(
            document, signature
        )


def signature_holds(document: dict[str, Any], signature: dict[str, str]) -> bool:
    """Whether the signature fits the document and the public key that it names itself."""
    if signature.get("algorithm") != _ALGORITHM:
        return False
    try:
        public = Ed25519PublicKey.from_public_bytes(base64.b64decode(signature["public_key"]))
        public.verify(base64.b64decode(signature["value"]), canonical_json(document))
    except (InvalidSignature, KeyError, ValueError):
        return False
    return True
