"""OIDC tokens: accepted identities, and invalid tokens."""

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from app.api.auth import oidc
from app.api.auth.oidc import Tokens
from app.callers import Caller, token_owner
from app.errors import InvalidToken, Unavailable
from app.settings import Settings
from app.store.sql.models import Job
from tests.api.calls import Api
from tests.issuer import AUDIENCE, Issuer, running_issuer

CALL = {"source": {"rows": [{"a": 1}, {"a": 2}]}, "parameters": {"swap_fields": ["a"]}}


@pytest.fixture(scope="module")
def own() -> Iterator[Issuer]:
    """Issuer whose keys these tests change."""
    with running_issuer() as running:
        yield running


def tokens_of(issuer: Issuer, tmp_path: Path, **settings: Any) -> Tokens:
    known = {"oidc_issuer": issuer.url, "oidc_audience": AUDIENCE, "oidc_project_claim": "project"}
    return Tokens(Settings(home=tmp_path, **known | settings))


def read(tokens: Tokens, *texts: str) -> list[Caller]:
    async def all_of_them() -> list[Caller]:
        return [await tokens.caller(text) for text in texts]

    return asyncio.run(all_of_them())


def bearer(address: str, token: str) -> httpx.Client:
    return httpx.Client(base_url=address, timeout=60, headers={"authorization": f"Bearer {token}"})


def test_a_token_calls_as_its_subject(address: str, issuer: Issuer) -> None:
    """Only the token's scopes apply; the owner is the token's subject, whichever key signed."""
    with bearer(address, issuer.token()) as ada, bearer(address, issuer.token("ec", "ES256")) as later:
        job = Api.job(ada.post("/v1/services/DSWAP", json=CALL))["id"]
        assert later.get(f"/v1/jobs/{job}").status_code == 200
        Api.problem(ada.get(f"/v1/jobs/{job}/seed", params={"reason": "to look at it"}), 403)
    with bearer(address, issuer.token(sub="bob")) as bob:
        Api.problem(bob.get(f"/v1/jobs/{job}"), 404)
    with bearer(address, issuer.token(exp=int(time.time()) - 60)) as late:
        answer = late.get("/v1/jobs")
        assert "expired" in Api.problem(answer, 401, "invalid_token")["detail"]


def test_what_a_token_says_of_its_bearer(own: Issuer, tmp_path: Path) -> None:
    """Scopes need the prefix, as words or as a list; the project is a claim."""
    tokens = tokens_of(own, tmp_path)
    words, several, none = read(
        tokens,
        own.token("ed", "EdDSA", project="census"),
        own.token(scope=["rowveil:read", "admin", "rowveil:nothing"]),
        own.token(scope=None),
    )
    assert words == Caller(token_owner(own.url, "ada"), "census", frozenset({"run", "read"}))
    assert several.scopes == {"read"}
    assert none.scopes == frozenset()


def test_one_subject_at_two_issuers_is_two_callers(own: Issuer, tmp_path: Path) -> None:
    """The owner names the issuer by the SHA-256 of its address, and the longest subject fits the column."""
    with running_issuer() as other:
        (theirs,) = read(tokens_of(other, tmp_path), other.token())
    ours, longest = read(tokens_of(own, tmp_path), own.token(), own.token(sub="s" * 255))
    assert ours.owner == f"oidc-{hashlib.sha256(own.url.encode()).hexdigest()[:16]}:ada"
    assert theirs.owner == f"oidc-{hashlib.sha256(other.url.encode()).hexdigest()[:16]}:ada"
    assert ours.owner != theirs.owner
    assert len(longest.owner) <= Job.owner.type.length


def _encoded(part: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


def _unsigned(issuer: Issuer) -> str:
    return f"{_encoded({'alg': 'none', 'kid': 'rsa', 'typ': 'JWT'})}.{_encoded(issuer.claims())}."


def _signed_with_the_public_key(issuer: Issuer) -> str:
    """Sign with HS256 and the RSA public key, the classic confusion attack."""
    public = issuer.private["rsa"].public_key()
    key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    text = f"{_encoded({'alg': 'HS256', 'kid': 'rsa', 'typ': 'JWT'})}.{_encoded(issuer.claims())}"
    mac = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).decode().rstrip('=')}"


def _by_a_key_of_its_own(issuer: Issuer, **headers: Any) -> str:
    forged = rsa.generate_private_key(65537, 2048)
    return jwt.encode(issuer.claims(), forged, "RS256", {"kid": "rsa", **headers})


def _altered(issuer: Issuer) -> str:
    head, _, signature = issuer.token().split(".")
    return f"{head}.{_encoded(issuer.claims(sub='root', scope='rowveil:admin'))}.{signature}"


HOSTILE = {
    "unsigned": (_unsigned, "algorithm"),
    "HS256 with the public key": (_signed_with_the_public_key, "algorithm"),
    "HS256 with a shared key that is published": (
        lambda issuer: jwt.encode(issuer.claims(), b"secret" * 8, "HS256", {"kid": "shared"}),
        "algorithm",
    ),
    "a key of its own": (_by_a_key_of_its_own, "not valid"),
    "a key of its own at an address in the header": (
        lambda issuer: _by_a_key_of_its_own(issuer, kid="mine", jku="http://127.0.0.1:9/keys"),
        "does not publish",
    ),
    "a certificate in the header": (
        lambda issuer: _by_a_key_of_its_own(issuer, x5u="http://127.0.0.1:9/x", x5c=["AAAA"]),
        "not valid",
    ),
    "a name of no key": (lambda issuer: issuer.token(headers={"kid": "nobody"}), "does not publish"),
    "no name of a key": (
        lambda issuer: jwt.encode(issuer.claims(), issuer.private["rsa"], "RS256"),
        "kid",
    ),
    "a key that is not for signing": (lambda issuer: issuer.token("not for signing"), "does not publish"),
    "an algorithm that is not the key's": (
        lambda issuer: issuer.token(headers={"kid": "ec"}),
        "does not publish",
    ),
    "an algorithm that is not allowed": (lambda issuer: issuer.token(algorithm="RS512"), "algorithm"),
    "altered claims": (_altered, "not valid"),
    "expired": (lambda issuer: issuer.token(exp=int(time.time()) - 60), "expired"),
    "not yet valid": (lambda issuer: issuer.token(nbf=int(time.time()) + 600), "not valid"),
    "issued in the future": (lambda issuer: issuer.token(iat=int(time.time()) + 600), "not valid"),
    "no expiry": (lambda issuer: issuer.token(exp=None), "not valid"),
    "another audience": (lambda issuer: issuer.token(aud="https://other.example"), "audience"),
    "no audience": (lambda issuer: issuer.token(aud=None), "not valid"),
    "another issuer": (lambda issuer: issuer.token(iss="https://evil.example"), "issuer"),
    "no subject": (lambda issuer: issuer.token(sub=None), "not valid"),
    "a subject of many lines": (lambda issuer: issuer.token(sub="ada\nadmin"), "subject"),
    "a project that is a path": (lambda issuer: issuer.token(project="../census"), "project"),
    "critical extensions": (
        lambda issuer: issuer.token(headers={"crit": ["exp"], "b64": True}),
        "neither",
    ),
    "an ID token with a nonce": (lambda issuer: issuer.token(nonce="n-0S6_WzA2Mj"), "ID token"),
    "an ID token next to an access token": (lambda issuer: issuer.token(at_hash="MTIzNDU2"), "ID token"),
    "an ID token next to a code": (lambda issuer: issuer.token(c_hash="MTIzNDU2"), "ID token"),
    "an ID token of Keycloak": (lambda issuer: issuer.token(typ="ID"), "ID token"),
    "an ID token of Amazon Cognito": (lambda issuer: issuer.token(token_use="id"), "ID token"),
    "too long": (lambda issuer: issuer.token(padding="x" * 20_000), "longer"),
    "not a token": (lambda issuer: "eyJhbGciOi.x.y", "neither"),
}


def test_an_access_token_may_have_a_type_which_can_be_required(own: Issuer, tmp_path: Path) -> None:
    """The type is believed more than the claims: an issuer may put a nonce into its access tokens."""
    typed = [own.token(headers={"typ": word}, nonce="n") for word in ("at+jwt", "application/AT+JWT")]
    assert [caller.owner for caller in read(tokens_of(own, tmp_path), *typed)] == [
        token_owner(own.url, "ada")
    ] * 2
    strict = tokens_of(own, tmp_path, oidc_typed_tokens=True)
    assert [caller.owner for caller in read(strict, *typed)] == [token_owner(own.url, "ada")] * 2
    with pytest.raises(InvalidToken, match=r"at\+jwt"):
        read(strict, own.token())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_token_that_is_not_to_be_believed_is_refused(own: Issuer, tmp_path: Path, name: str) -> None:
    make, said = HOSTILE[name]
    with pytest.raises(InvalidToken, match=said):
        read(tokens_of(own, tmp_path), make(own))


def test_the_issuers_new_keys_are_found_and_made_up_names_fetch_nothing(
    own: Issuer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred tokens with unknown key ids cost the issuer one fetch in 30 seconds."""
    tokens = tokens_of(own, tmp_path)
    read(tokens, own.token())
    fetched = own.fetched
    own.add("new", "EdDSA", ed25519.Ed25519PrivateKey.generate())
    unknown = own.token(headers={"kid": "made up"})

    async def knock() -> list[Any]:
        return await asyncio.gather(*(tokens.caller(unknown) for _ in range(100)), return_exceptions=True)

    assert {type(error) for error in asyncio.run(knock())} == {InvalidToken}
    assert own.fetched == fetched  # they were fetched a moment ago
    monkeypatch.setattr(oidc, "_BETWEEN_FETCHES_SECONDS", 0.0)
    (found,) = read(tokens, own.token("new", "EdDSA"))
    assert found.owner == token_owner(own.url, "ada")
    assert own.fetched == fetched + 1


def test_an_unavailable_issuer_is_reported_and_not_taken_for_a_wrong_token(tmp_path: Path) -> None:
    with running_issuer() as gone:
        token = gone.token()
    with pytest.raises(Unavailable, match="issuer"):
        read(tokens_of(gone, tmp_path), token)


_DISCOVERY, _KEYS = "/.well-known/openid-configuration", "/keys"


@pytest.mark.parametrize(
    ("path", "status", "body", "cause"),
    [
        (_DISCOVERY, 500, b"{}", "status 500"),
        (_DISCOVERY, 302, b"", "redirects are not followed"),
        (_DISCOVERY, 200, b"<html>maintenance</html>", "something else than a JSON object"),
        (_DISCOVERY, 200, b"[" * 100_000, "something else than a JSON object"),
        (_DISCOVERY, 200, b'{"issuer": "https://other.example"}', "ROWVEIL_OIDC_ISSUER must be equal to it"),
        (_KEYS, 200, b'{"keys": []}', "no list 'keys' with a key"),
        (_KEYS, 200, b'{"keys": 5}', "no list 'keys' with a key"),
        (_KEYS, 200, b" " * (1 << 21), "more than 1048576 bytes"),
    ],
)
def test_the_log_has_the_cause_once_for_which_an_issuers_keys_cannot_be_fetched(
    *,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    path: str,
    status: int,
    body: bytes,
    cause: str,
) -> None:
    """Cached keys stay valid meanwhile; a key id that is not among them may be a new key's: 503."""
    monkeypatch.setattr(oidc, "_BETWEEN_FETCHES_SECONDS", 0.0)
    with running_issuer() as broken:
        tokens = tokens_of(broken, tmp_path)
        read(tokens, broken.token())
        broken.add("new", "EdDSA", ed25519.Ed25519PrivateKey.generate())
        broken.answers[path] = status, body
        for _ in range(2):
            with pytest.raises(Unavailable, match="issuer"):
                read(tokens, broken.token("new", "EdDSA"))
            read(tokens, broken.token())
        broken.answers.clear()
        read(tokens, broken.token("new", "EdDSA"))
    failed, again = (each.getMessage() for each in caplog.records if each.name == "rowveil.oidc")
    assert broken.url in failed
    assert cause in failed
    assert again == f"the keys of the issuer {broken.url} can be fetched again"


def test_an_issuer_that_sends_byte_by_byte_holds_no_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time of a fetch is limited as a whole; each read of it may have been quick."""
    monkeypatch.setattr(oidc, "_FETCH_SECONDS", 0.2)

    async def dripped(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        while True:
            await asyncio.sleep(0.01)

    monkeypatch.setattr(oidc, "_json", dripped)
    with running_issuer() as slow, pytest.raises(Unavailable, match="issuer"):
        read(tokens_of(slow, tmp_path), slow.token())


def test_one_malformed_key_does_not_hide_the_others(tmp_path: Path) -> None:
    with running_issuer() as odd:
        malformed: list[Any] = [None, 5, odd.published[0] | {"kid": ["rsa"]}, {"kid": "empty"}]
        odd.published += malformed
        read(tokens_of(odd, tmp_path), odd.token())


def test_keys_are_fetched_in_the_background_before_their_hour_is_over(tmp_path: Path) -> None:
    """A short absence of the issuer at that moment is not noticed."""

    async def call_later(issuer: Issuer, seconds: float) -> None:
        keys._fetched = keys._tried = time.monotonic() - seconds
        await tokens.caller(issuer.token())
        if keys._refreshing is not None:
            await keys._refreshing

    with running_issuer() as issuer:
        tokens = tokens_of(issuer, tmp_path)
        keys = tokens._keys
        read(tokens, issuer.token())
        asyncio.run(call_later(issuer, 1790))
        assert issuer.fetched == 1
        asyncio.run(call_later(issuer, 1810))
        assert issuer.fetched == 2
        issuer.answers[_KEYS] = 500, b""
        asyncio.run(call_later(issuer, 3590))
        assert issuer.fetched == 3


def test_a_token_of_a_clock_that_is_ahead_is_refused_for_that_reason(own: Issuer, tmp_path: Path) -> None:
    now = int(time.time())
    for token in (own.token(iat=now + 120), own.token(nbf=now + 120)):
        with pytest.raises(InvalidToken, match="clocks of its issuer and of this service differ"):
            read(tokens_of(own, tmp_path), token)


@pytest.mark.parametrize(
    "address",
    [
        "http://login.example/keys",
        "http://127.0.0.1.login.example/keys",
        "http://127.0.0.1@login.example/keys",
        "ftp://127.0.0.1/keys",
        "file:///etc/passwd",
        "/keys",
        "https://",
        "http://[",
        5,
        ["http://127.0.0.1/keys"],
    ],
)
def test_keys_at_an_address_that_settings_would_refuse_are_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, address: Any
) -> None:
    """The discovery document names it. The cause is logged once; cached keys stay valid for their hour."""
    asked: list[str] = []
    fetch = oidc._json

    async def noted(client: httpx.AsyncClient, url: str) -> dict[str, Any]:
        asked.append(url)
        return await fetch(client, url)

    monkeypatch.setattr(oidc, "_json", noted)
    monkeypatch.setattr(oidc, "_BETWEEN_FETCHES_SECONDS", 0.0)
    with running_issuer() as changed:
        changed.keys_at = address
        with pytest.raises(Unavailable):
            read(tokens_of(changed, tmp_path), changed.token())
        changed.keys_at = None
        tokens = tokens_of(changed, tmp_path)
        read(tokens, changed.token())
        caplog.clear()
        asked.clear()
        changed.keys_at = address
        for _ in range(3):
            with pytest.raises(Unavailable):  # nobody knows whether the issuer has that key
                read(tokens, changed.token(headers={"kid": "made up"}))
            read(tokens, changed.token())
        assert asked == [f"{changed.url}/.well-known/openid-configuration"] * 3
        (line,) = [each.getMessage() for each in caplog.records if each.name == "rowveil.oidc"]
        assert repr(address) in line
        assert "ROWVEIL_OIDC_JWKS_URL" in line
        changed.keys_at = None
        changed.add("new", "EdDSA", ed25519.Ed25519PrivateKey.generate())
        read(tokens, changed.token("new", "EdDSA"))


def test_in_production_keys_come_by_https_only(tmp_path: Path) -> None:
    """An http address of this machine is accepted on a laptop, as in the settings."""
    for loopback in (True, False):
        keys = oidc.IssuerKeys("https://login.example", "", loopback)
        assert keys._accepts("https://login.example/keys")
        for address in ("http://localhost/keys", "http://[::1]:80/keys"):
            assert keys._accepts(address) is loopback
    production = Settings.model_construct(mode="production", oidc_issuer="https://login.example")
    assert not Tokens(production)._keys._accepts("http://localhost/keys")


@pytest.mark.parametrize(
    "settings",
    [
        {"oidc_audience": ""},
        {"oidc_issuer": "http://login.example"},
        {"oidc_algorithms": "HS256"},
        {"oidc_algorithms": "none"},
        {"oidc_jwks_url": "file:///etc/passwd"},
    ],
)
def test_settings_that_would_believe_too_much_are_refused(own: Issuer, settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="ROWVEIL_OIDC"):
        Settings.model_validate({"oidc_issuer": own.url, "oidc_audience": AUDIENCE} | settings)
