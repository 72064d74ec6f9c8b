"""OIDC issuer for tests: a real HTTP server that publishes keys and signs any claims."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

AUDIENCE = "https://rowveil.example"

_WRITERS: dict[str, Any] = {"RS256": RSAAlgorithm, "ES256": ECAlgorithm, "EdDSA": OKPAlgorithm}


class Issuer:
    """Its keys by their names, and how often they were fetched."""

    def __init__(self) -> None:
        self.private: dict[str, Any] = {}
        self.published: list[dict[str, Any]] = []
        self.fetched = 0
        self.url = ""
        self.keys_at: Any = None
        """Value of `jwks_uri` in the discovery document; None: the address of the keys."""
        self.answers: dict[str, tuple[int, bytes]] = {}
        """Status and body of paths that do not respond as an issuer does."""
        self.add("rsa", "RS256", rsa.generate_private_key(65537, 2048))
        self.add("ec", "ES256", ec.generate_private_key(ec.SECP256R1()))
        self.add("ed", "EdDSA", ed25519.Ed25519PrivateKey.generate())
        self.add("not for signing", "RS256", rsa.generate_private_key(65537, 2048), use="enc")
        self.published.append({"kty": "oct", "kid": "shared", "alg": "HS256", "k": "c2VjcmV0" * 8})

    def add(self, kid: str, algorithm: str, key: Any, use: str = "sig") -> None:
        """Publish one more key."""
        public = json.loads(_WRITERS[algorithm].to_jwk(key.public_key()))
        self.private[kid] = key
        self.published.append(public | {"kid": kid, "use": use, "alg": algorithm})

    def claims(self, **changes: Any) -> dict[str, Any]:
        """Claims of a valid token, with changes; None leaves a claim out."""
        now = int(time.time())
        good = {"iss": self.url, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300}
        good |= {"scope": "openid rowveil:run rowveil:read"}
        return {name: value for name, value in (good | changes).items() if value is not None}

    def token(self, kid: str = "rsa", algorithm: str = "RS256", **changes: Any) -> str:
        """A token, signed."""
        headers = {"kid": kid, **changes.pop("headers", {})}
        return jwt.encode(self.claims(**changes), self.private[kid], algorithm, headers)


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    """An issuer on a free port, for as long as the block lasts."""
    issuer = Issuer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/.well-known/openid-configuration":
                said: dict[str, Any] = {
                    "issuer": issuer.url,
                    "jwks_uri": issuer.keys_at or f"{issuer.url}/keys",
                }
            else:
                issuer.fetched += 1
                said = {"keys": issuer.published}
            status, body = issuer.answers.get(self.path, (200, json.dumps(said).encode()))
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing: the tests' output is theirs."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    issuer.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield issuer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
