"""A sealed text opens only unchanged, in its own place and under its own key."""

import base64
import json
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from app.settings import Settings
from app.store.crypto.canonical_json import canonical_json
from app.store.crypto.key_files import KeyUnreadable, load_master_keys, load_signing_key
from app.store.crypto.sealing import SealBroken, Sealer, Signer, signature_holds

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
SEALER = Sealer([KEY])


@given(st.binary(max_size=200), st.text(max_size=40))
def test_a_sealed_value_opens_in_its_context(plain: bytes, context: str) -> None:
    assert SEALER.open(SEALER.seal(plain, context), context) == plain


def test_a_sealed_value_differs_each_time_and_does_not_show_the_plain() -> None:
    sealed = [SEALER.seal(b"the seed itself", "job/1/seed") for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert not any(b"the seed" in one for one in sealed)


@pytest.mark.parametrize("context", ["job/2/seed", "job/1/other", ""])
def test_a_sealed_value_moved_elsewhere_does_not_open(context: str) -> None:
    with pytest.raises(SealBroken, match="changed or moved"):
        SEALER.open(SEALER.seal(b"seed", "job/1/seed"), context)


def test_a_sealed_value_changed_in_any_byte_does_not_open() -> None:
    sealed = SEALER.seal(b"seed", "c")
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(SealBroken):
            SEALER.open(changed, "c")


def test_a_sealed_value_cut_short_does_not_open() -> None:
    sealed = SEALER.seal(b"seed", "c")
    for length in range(len(sealed)):
        with pytest.raises(SealBroken):
            SEALER.open(sealed[:length], "c")


def test_an_old_key_still_opens_after_the_keys_were_changed() -> None:
    sealed = SEALER.seal(b"seed", "c")
    rotated = Sealer([OTHER, KEY])
    assert rotated.open(sealed, "c") == b"seed"
    with pytest.raises(SealBroken, match="not among the keys"):
        SEALER.open(rotated.seal(b"seed", "c"), "c")


def test_fingerprints_are_keyed_and_distinguish_seeds() -> None:
    seeds = [number.to_bytes(32, "big") for number in range(2000)]
    prints = [SEALER.fingerprint(seed) for seed in seeds]
    assert len(set(prints)) == len(seeds)
    assert all(len(one) == 16 and set(one) <= set("0123456789abcdef") for one in prints)
    assert Sealer([OTHER]).fingerprint(seeds[0]) != prints[0]
    assert SEALER.request_fingerprint(seeds[0]) != prints[0]


DOCUMENT: dict[str, Any] = {"service": "DSWAP", "rate": 1.0, "fields": ["a", "ä"], "nothing": None}


def test_a_signature_holds_for_its_document_alone() -> None:
    signer = Signer(Ed25519PrivateKey.generate())
    signature = signer.sign(DOCUMENT)
    assert set(signature) == {"algorithm", "key_id", "public_key", "value"}
    assert signer.verify(DOCUMENT, signature)
    assert signature_holds(DOCUMENT, signature)
    assert not signer.verify(DOCUMENT | {"rate": 0.5}, signature)
    assert not signer.verify(DOCUMENT, signature | {"algorithm": "none"})
    assert not signer.verify(DOCUMENT, {})
    assert not Signer(Ed25519PrivateKey.generate()).verify(DOCUMENT, signature)


def test_a_key_does_not_sign_under_the_id_of_another() -> None:
    """`verify` names the key by its id, which anybody could write into a manifest of their own."""
    own, other = (Signer(Ed25519PrivateKey.generate()) for _ in range(2))
    signature = other.sign(DOCUMENT)
    assert not signature_holds(DOCUMENT, signature | {"key_id": own.key_id})
    assert not signature_holds(DOCUMENT, {name: text for name, text in signature.items() if name != "key_id"})


def test_a_signature_survives_another_writing_of_the_same_json() -> None:
    signer = Signer(Ed25519PrivateKey.generate())
    written = json.dumps(DOCUMENT, indent=2).replace("1.0", "1")
    assert signer.verify(json.loads(written), signer.sign(DOCUMENT))


@pytest.mark.parametrize(
    ("value", "text"),
    [  # RFC 8785, appendix B, and the limits around them
        (0.0, "0"),
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-5e-324, "-5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (333333333.3333333, "333333333.3333333"),
        (-1.5, "-1.5"),
        (2**63, "9223372036854775808"),
        (True, "true"),
        ([1, {"b": 2, "a": None}], '[1,{"a":null,"b":2}]'),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"\u20ac$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        (
            {"\u20ac": 1, "\r": 2, "\U0001f600": 3, "\ufb33": 4},
            '{"\\r":2,"\u20ac":1,"\U0001f600":3,"\ufb33":4}',
        ),
    ],
)
def test_canonical_json(value: Any, text: str) -> None:
    assert canonical_json(value) == text.encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_canonical_numbers_read_back(value: float) -> None:
    assert float(canonical_json(value)) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1: 2}, b"bytes", object()])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)


def test_keys_are_made_once_and_for_the_owner_alone(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    keys = load_master_keys(settings)
    assert load_master_keys(settings) == keys
    assert load_signing_key(settings).private_bytes_raw() == load_signing_key(settings).private_bytes_raw()
    for file in (settings.key_file, settings.signing_key_file):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.key_file.parent.stat().st_mode) == 0o700
    assert {file.name for file in settings.key_file.parent.iterdir()} == {"master.key", "signing.key"}


@pytest.mark.parametrize(
    "text", [KEY.hex(), base64.b64encode(KEY).decode(), base64.urlsafe_b64encode(KEY).decode()]
)
def test_a_key_can_be_given_in_hex_or_base64(tmp_path: Path, text: str) -> None:
    given_keys = SecretStr(f"{text},{OTHER.hex()}")
    assert load_master_keys(Settings(home=tmp_path, key=given_keys)) == [KEY, OTHER]


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, base64.b64encode(KEY[:31]).decode()])
def test_a_key_that_is_none_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    with pytest.raises(KeyUnreadable) as caught:
        load_master_keys(Settings(home=tmp_path, key=SecretStr(text)))
    assert "32 bytes" in str(caught.value)
    assert not text or text not in str(caught.value)
