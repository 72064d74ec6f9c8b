"""Keys that outlive the master key: drawn or derived once, and kept sealed under whichever is first now."""

import sqlalchemy as sa
import sqlalchemy.exc
from sqlalchemy.orm import Session

from app.store.models import KeptKey
from app.store.seal import Sealer

AUDIT = "audit"
FINGERPRINT = "fingerprint"


def kept_key(session: Session, sealer: Sealer, name: str, first: bytes) -> bytes:
    """The key of that name; ``first`` where there was none, which is kept from now on. Raises SealBroken."""
    find = sa.select(KeptKey.sealed).where(KeptKey.name == name)
    sealed = session.scalar(find)
    if sealed is None:
        try:
            with session.begin_nested():
                session.add(KeptKey(name=name, sealed=sealer.seal(first, context_of(name))))
        except sqlalchemy.exc.IntegrityError:  # another service kept its own this moment
            pass
        sealed = session.scalar(find)
        assert sealed is not None
    return sealer.open(sealed, context_of(name))


def context_of(name: str) -> str:
    """What a kept key is bound to."""
    return f"kept/{name}/key"
