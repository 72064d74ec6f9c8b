"""Master keys, the signing key and the scraper's keys of the service, and the files that store them."""

import base64
import binascii
import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from app.settings import Settings

KEY_BYTES = 32

_LEAST_DISTINCT = 20
"""Least number of distinct bytes in a key. Fewer occur in less than one of 10**9 random keys."""

_KEY_COMMAND = "openssl rand -base64 32"


class KeyUnreadable(Exception):
    """A key is not 32 bytes in base64 or hex, or is not allowed in this mode."""


def load_master_keys(settings: Settings, create: bool = True) -> list[bytes]:
    """Load the master keys; the first one seals.

    If there is no file, ``create`` makes one (mode 0600); otherwise KeyUnreadable is raised.
    """
    if settings.key is not None:
        return _random_keys(settings.key.get_secret_value().split(","), "ROWVEIL_KEY", settings)
    if not create:
        _require(settings.key_file, "ROWVEIL_KEY_FILE", settings)
    text = _read_or_make(settings.key_file, settings.mode == "production")
    return _random_keys(text.split(), str(settings.key_file), settings)


def load_signing_key(settings: Settings, create: bool = True) -> Ed25519PrivateKey:
    """Load the Ed25519 key that signs manifests.

    If there is no file, ``create`` makes one (mode 0600); otherwise KeyUnreadable is raised.
    """
    if not create:
        _require(settings.signing_key_file, "ROWVEIL_SIGNING_KEY_FILE", settings)
    text = _read_or_make(settings.signing_key_file, settings.mode == "production")
    (seed,) = _decoded(text.split()[:1], str(settings.signing_key_file))
    return Ed25519PrivateKey.from_private_bytes(seed)


def load_metrics_keys(settings: Settings) -> frozenset[bytes]:
    """Load the keys of the scraper, as it sends them. Creates the file (mode 0600) if a setting names it."""
    if settings.metrics_key_file is None:
        return frozenset()
    text = _read_or_make(settings.metrics_key_file, settings.mode == "production")
    _random_keys(text.split(), str(settings.metrics_key_file), settings)
    return frozenset(text.encode().split())


def key_id(key: bytes) -> bytes:
    """Return an 8-byte name of a key that reveals nothing about the key."""
    return hashlib.blake2b(key, digest_size=8, person=b"rowveil-key-id").digest()


def subkey(master: bytes, purpose: str) -> bytes:
    """Derive a key for one purpose from the master key (HKDF-SHA256, RFC 5869)."""
    kdf = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=f"rowveil/{purpose}".encode())
    return kdf.derive(master)


def _random_keys(texts: Iterable[str], origin: str, settings: Settings) -> list[bytes]:
    keys = _decoded(texts, origin)
    if settings.mode == "production" and any(len(set(key)) < _LEAST_DISTINCT for key in keys):
        raise KeyUnreadable(
            f"a key in {origin} is not random; mode 'production' needs one made by `{_KEY_COMMAND}`"
        )
    return keys


def _require(path: Path, setting: str, settings: Settings) -> None:
    """Raise KeyUnreadable if there is no file; mode 'production' has a message of its own for this."""
    if settings.mode != "production" and not os.path.lexists(path):
        raise KeyUnreadable(
            f"there is no key file {path}; set ROWVEIL_HOME or {setting} as for the service, or restore the "
            "file from a backup"
        )


def _read_or_make(path: Path, production: bool = False) -> str:
    try:
        return _read_or_create(path, production)
    except UnicodeDecodeError:
        raise KeyUnreadable(f"a key in {path} is not 32 bytes in base64 or hex") from None
    except OSError as error:
        raise KeyUnreadable(
            f"the key file {path} can be neither read nor made: {error.strerror}; its owner must be the "
            "user of this process"
        ) from None


def _read_or_create(path: Path, production: bool) -> str:
    try:
        if production and path.stat().st_mode & 0o077:
            raise KeyUnreadable(
                f"{path} can be read by others; mode 'production' needs its mode to be 600 (`chmod 600`)"
            )
        return path.read_text()
    except FileNotFoundError:
        if production:
            raise KeyUnreadable(
                f"there is no key in {path}, and mode 'production' makes none: store a key there and a "
                f"copy elsewhere, such as one made by `{_KEY_COMMAND}`"
            ) from None
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w") as file:
        file.write(base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode() + "\n")
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(draft, path)  # unlike a rename, it never replaces a key that another process has just created
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text()


def _decoded(texts: Iterable[str], origin: str) -> list[bytes]:
    keys = [_decoded_key(text.strip(), origin) for text in texts if text.strip()]
    if not keys:
        raise KeyUnreadable(f"{origin} holds no key; a key is 32 bytes in base64 or hex")
    return keys


def _decoded_key(text: str, origin: str) -> bytes:
    try:
        if len(text) == 2 * KEY_BYTES:
            key = bytes.fromhex(text)
        else:
            standard = text.replace("-", "+").replace("_", "/")  # the URL-safe alphabet is accepted too
            key = base64.b64decode(standard + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    if len(key) != KEY_BYTES:
        raise KeyUnreadable(f"a key in {origin} is not 32 bytes in base64 or hex")
    return key
