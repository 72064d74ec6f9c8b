"""Storage of a service as its settings name it: a shared folder, or a bucket."""

import base64
import hashlib
import secrets

from app.references import parse_prefix
from app.settings import Settings
from app.store.blobs.bucket import Bucket
from app.store.blobs.bucket_blobs import BucketBlobs
from app.store.blobs.marks import Place, create_mark, read_mark
from app.store.blobs.sealed_files import BlobStore
from app.store.crypto.sealing import Sealer

_IDENTITY = "identity"

_ID_BYTES = 32


def place_of(settings: Settings) -> Place:
    """Return the storage that all replicas share."""
    if not settings.storage:
        return settings.shared_folder.resolve()
    prefix = parse_prefix(settings.storage)
    return Bucket(prefix.bucket, "".join(f"{segment}/" for segment in prefix.path))


def open_blobs(settings: Settings, sealer: Sealer) -> BlobStore:
    """Return the blobs of the storage."""
    place = place_of(settings)
    folder = settings.shared_folder.resolve() / "blobs"
    return BucketBlobs(place, folder, sealer) if isinstance(place, Bucket) else BlobStore(folder, sealer)


def load_folder_id(place: Place) -> str:
    """Load the storage's id, 32 hex digits that all its users share. Creates it if there is none.

    Raises OSError.
    """
    text = read_mark(place, _IDENTITY)
    if text is None:
        drawn = base64.b64encode(secrets.token_bytes(_ID_BYTES)).decode()
        text = create_mark(place, _IDENTITY, f"{drawn}\n")
    return _folder_id(text)


def find_folder_id(place: Place) -> str | None:
    """Return what `load_folder_id` returns; None if the storage has no identity yet. Raises OSError."""
    text = read_mark(place, _IDENTITY)
    return None if text is None else _folder_id(text)


def _folder_id(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
