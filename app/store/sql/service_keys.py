"""Keys that outlive the master key: generated once, and stored sealed under the current first master key."""

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session

from app.store.crypto.sealing import Sealer
from app.store.sql.models import KeptKey

AUDIT = "audit"

FINGERPRINT = "fingerprint"

LEDGER = "ledger"


def kept_key(session: Session, sealer: Sealer, name: str, first: bytes) -> bytes:
    """Return the key of that name; store ``first`` if there is none. Raises SealBroken."""
    find = sa.select(KeptKey.sealed).where(KeptKey.name == name)
    sealed = session.scalar(find)
    if sealed is None:
        try:
            with session.begin_nested():
                session.add(KeptKey(name=name, sealed=sealer.seal(first, context_of(name))))
        except sqlalchemy.exc.IntegrityError:  # another replica has just stored its own
            pass
        sealed = session.scalar(find)
        assert sealed is not None
    return sealer.open(sealed, context_of(name))


def has_kept_keys(session: Session) -> bool:
    """Whether the database has a key of the service, so that its master key has been made."""
    return session.scalar(sa.select(sa.exists().where(KeptKey.name != ""))) is True


def context_of(name: str) -> str:
    """Return the context of a sealed service key."""
    return f"kept/{name}/key"
