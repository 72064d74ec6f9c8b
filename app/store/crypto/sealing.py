"""Encryption at rest of small values under the master key, fingerprints of seeds, and signatures.

A sealed value is ``version (1) | key id (8) | nonce (12) | AES-256-GCM(value) + tag (16)``. Its context is
authenticated with it, so that a value moved to another place does not open. The context is a place in the
database, or a `Binding`, which also names the owner, the project, the kind and the blob of the row, and for
a seed or the webhook of a message its terms. The version says which of the three it is. The key id allows old
values to be opened after the master key has changed.

Nonces are random: one master key may seal 2**32 values before the probability of a repeated nonce exceeds
2**-32 (NIST SP 800-38D, 8.3). A job seals up to seven values.
"""

import base64
import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.key_files import key_id, subkey

_PLACE, _BOUND = b"\x01", b"\x02"
"""Versions: sealed to a place, or to a `Binding`."""

_WITH_TERMS = b"\x03"
"""Version: sealed to a `Binding` with terms."""

_KEY_ID = slice(1, 9)

_NONCE = slice(9, 21)

_BODY = slice(21, None)

_TAG_BYTES = 16

_ALGORITHM = "Ed25519"


class SealBroken(Exception):
    """A sealed value does not open: it was changed, moved or truncated, or its key is missing."""


class KeyMissing(SealBroken):
    """A sealed value names a master key that is not among those given."""

    def __init__(self, key_id: str) -> None:
        """``key_id``: hexadecimal id of the key."""
        super().__init__(
            f"sealed under the master key {key_id}, which is not among the keys given (ROWVEIL_KEY, "
            "ROWVEIL_KEY_FILE)"
        )
        self.key_id = key_id


class SealUnbound(SealBroken):
    """A value is sealed as by an older version: to its place only, or without the terms of its job."""


@dataclass(frozen=True, slots=True)
class Binding:
    """Row of the database to which a value is sealed. If one of the fields changes, it does not open."""

    purpose: str
    """Column of the row, such as ``seed`` or ``source``."""
    kind: str
    """Service of a job; ``buffer``."""
    row: str
    """Id of the row."""
    owner: str
    project: str | None
    blob: str | None = None
    """Blob of the table whose data key is sealed."""
    terms: str | None = None
    """Digest of other columns of the row. For a seed: the columns that decide what the job does and where its
    result goes. For the webhook of a message: its job and its body. No other value has terms."""

    def fields(self) -> list[str | None]:
        """Return the fields in their order."""
        fields = [self.purpose, self.kind, self.row, self.owner, self.project, self.blob]
        return fields if self.terms is None else [*fields, self.terms]


def sealed_bytes(size: int) -> int:
    """Return the bytes of a sealed value whose plain value has ``size`` bytes."""
    return _BODY.start + size + _TAG_BYTES


def unbound_context(purpose: str, job_id: str) -> str:
    """Return the context of a job's seed or report in versions before there were bindings."""
    return f"job/{job_id}/{purpose}"


def webhook_context(job_id: str) -> str:
    """Return the context of a job's sealed webhook."""
    return f"job/{job_id}/webhook"


class Sealer:
    """Seals values under the first master key and opens them with any."""

    def __init__(self, master_keys: Sequence[bytes], fingerprint_key: bytes | None = None) -> None:
        """Derive the ciphers.

        Parameters
        ----------
        master_keys
            Keys of 32 bytes each; the first one seals.
        fingerprint_key
            Key of fingerprints, by default derived from the first master key. A stored key keeps
            fingerprints stable when the master key changes.
        """
        self._ciphers = {key_id(key): AESGCM(subkey(key, "seal/1")) for key in master_keys}
        self._primary = key_id(master_keys[0])
        self._fingerprint_key = fingerprint_key or first_fingerprint_key(master_keys)

    @property
    def key_id(self) -> str:
        """Hexadecimal id of the master key that seals; reveals nothing about the key."""
        return self._primary.hex()

    @property
    def key_ids(self) -> set[str]:
        """Ids of all master keys."""
        return {name.hex() for name in self._ciphers}

    def seal(self, plain: bytes, context: str | Binding) -> bytes:
        """Encrypt a value. It opens only under the same context, such as ``"job/<id>/webhook"``."""
        version, written, _ = _written(context)
        nonce = secrets.token_bytes(12)
        prefix = version + self._primary
        body = self._ciphers[self._primary].encrypt(nonce, plain, prefix + written)
        return prefix + nonce + body

    def open(self, sealed: bytes, context: str | Binding) -> bytes:
        """Decrypt a sealed value. Raises SealBroken, SealUnbound."""
        version, written, name = _written(context)
        if sealed[:1] != version:
            if sealed[:1] in (_PLACE, _BOUND) and sealed[:1] < version:
                raise SealUnbound(f"the {name} is sealed as by an older version; run `rowveil reseal`")
            raise SealBroken("a sealed value of an unknown version")
        cipher = self._ciphers.get(sealed[_KEY_ID])
        if cipher is None:
            raise KeyMissing(sealed[_KEY_ID].hex())
        try:
            return cipher.decrypt(sealed[_NONCE], sealed[_BODY], sealed[:9] + written)
        except (InvalidTag, ValueError) as error:  # ValueError: truncated within the nonce
            raise SealBroken(f"the sealed {name} was changed or moved") from error

    def is_current(self, sealed: bytes) -> bool:
        """Whether it was sealed under the first master key."""
        return sealed[_KEY_ID] == self._primary

    @staticmethod
    def is_bound(sealed: bytes) -> bool:
        """Whether it was sealed to a `Binding`."""
        return sealed[:1] in (_BOUND, _WITH_TERMS)

    @staticmethod
    def has_terms(sealed: bytes) -> bool:
        """Whether it was sealed to a `Binding` with terms."""
        return sealed[:1] == _WITH_TERMS

    def fingerprint(self, seed: bytes) -> str:
        """Return 16 hex digits that are equal for equal seeds, so that seeds can be compared unseen.

        The hash is keyed: a plain hash of a weak seed, such as a year, could be searched, and a seed undoes
        its swap. Fingerprints are comparable within one installation.
        """
        return self._keyed(seed, b"seed")

    def request_fingerprint(self, request: bytes) -> str:
        """Return the fingerprint of a whole request, which contains a seed and rows."""
        return self._keyed(request, b"request")

    def host_fingerprint(self, owner: str, host: str) -> str:
        """Return the fingerprint of a host that an owner's webhooks notify."""
        return self._keyed(canonical_json([owner, host]), b"host")

    def _keyed(self, message: bytes, person: bytes) -> str:
        digest = hashlib.blake2b(message, digest_size=8, key=self._fingerprint_key, person=person)
        return digest.hexdigest()


def _written(context: str | Binding) -> tuple[bytes, bytes, str]:
    """Return the version, the bytes to authenticate, and the name of the value in messages."""
    if isinstance(context, Binding):
        version = _BOUND if context.terms is None else _WITH_TERMS
        return version, canonical_json(context.fields()), context.purpose
    return _PLACE, context.encode(), context.rpartition("/")[2]


def first_fingerprint_key(master_keys: Sequence[bytes]) -> bytes:
    """Derive the key of fingerprints at an installation's first start."""
    return subkey(master_keys[0], "fingerprint/1")


class Signer:
    """Signs the canonical JSON of documents with the service's key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._public = key.public_key().public_bytes_raw()

    @property
    def key_id(self) -> str:
        """Hexadecimal id of the public key."""
        return key_id(self._public).hex()

    def sign(self, document: dict[str, Any]) -> dict[str, str]:
        """Return ``{algorithm, key_id, public_key, value}``, the last two in base64."""
        return {
            "algorithm": _ALGORITHM,
            "key_id": self.key_id,
            "public_key": base64.b64encode(self._public).decode(),
            "value": base64.b64encode(self._key.sign(canonical_json(document))).decode(),
        }

    def verify(self, document: dict[str, Any], signature: dict[str, str]) -> bool:
        """Whether this service's key signed exactly this document."""
        return signature.get("public_key") == base64.b64encode(self._public).decode() and signature_holds(
            document, signature
        )


def signature_holds(document: dict[str, Any], signature: dict[str, str]) -> bool:
    """Whether the signature fits the document and the public key that it names itself, also by its id.

    Messages name a key by its id: another key must not go by the id of the service's own.
    """
    if signature.get("algorithm") != _ALGORITHM:
        return False
    try:
        public = base64.b64decode(signature["public_key"])
        verifier = Ed25519PublicKey.from_public_bytes(public)
        verifier.verify(base64.b64decode(signature["value"]), canonical_json(document))
    except (InvalidSignature, KeyError, ValueError):
        return False
    return signature.get("key_id") == key_id(public).hex()
