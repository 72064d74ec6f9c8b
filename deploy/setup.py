"""Create the secrets of a deployment, one folder per component: ``python -m deploy.setup FOLDER``.

Existing files are kept, except certificates that expire within a month. It may therefore run before every
start.

authority/  ca.key, ca.pem: only for renewals; mounted by no component
service/    master.key, signing.key, metrics.key, pgpass, and ca.pem, tls.pem, tls.key
scheduler/  ca.pem, tls.pem, tls.key
worker/     the same
database/   password
"""

import argparse
import base64
import secrets
from pathlib import Path

from deploy.certificates import ensure_authority, ensure_certificate
from deploy.files import write_private

ROLES = ("service", "scheduler", "worker")


def ensure(folder: Path) -> list[str]:
    """Create missing files; return their names."""
    password = _kept(folder / "database" / "password") or secrets.token_urlsafe(32)
    keys = ("service/master.key", "service/signing.key", "service/metrics.key")
    contents = {name: base64.b64encode(secrets.token_bytes(32)).decode() + "\n" for name in keys} | {
        "database/password": password,
        "service/pgpass": f"*:*:*:rowveil:{password}\n",
    }
    made = [name for name in contents if not _kept(folder / name)]
    for name in made:
        write_private(folder / name, contents[name].encode())
    authority = ensure_authority(folder / "authority")
    made += [
        f"{role}/tls.pem"
        for role in ROLES
        if ensure_certificate(folder / role, [role, "localhost"], authority)
    ]
    return made


def _kept(path: Path) -> str:
    return path.read_text() if path.is_file() else ""


def main() -> None:
    """Create missing files, and print their names."""
    parser = argparse.ArgumentParser(prog="python -m deploy.setup", description=__doc__)
    parser.add_argument("folder", type=Path)
    made = ensure(parser.parse_args().folder)
    print("\n".join(["made:", *made]) if made else "nothing was missing")


if __name__ == "__main__":
    main()
