"""Modes of the service: local without authentication, and production without generated keys."""

import base64
import ctypes
import platform
import secrets
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError

from app.settings import Settings
from app.store.crypto.key_files import KeyUnreadable, load_master_keys, load_signing_key
from providers import kernel_cpu
from tests.preloaded.processes import running_service

KEY = base64.b64encode(secrets.token_bytes(32)).decode()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="masks features of an x86-64 processor")
def test_a_processor_without_the_baseline_of_the_kernels_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service starts all the same, and compiles kernels for that processor."""
    if kernel_cpu._usable_x86_features(ctypes.CDLL(None)) is None:
        pytest.skip("glibc before 2.33 does not list features")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2")  # the C library masks the feature
    with (
        (tmp_path / "log").open("w+b") as log,
        running_service(tmp_path / "home", log, workers="1", warm_workers="false", kernel_cpu="x86-64-v3"),
    ):
        log.seek(0)
        assert b"this processor lacks avx2 of x86-64-v3" in log.read()


def written(path: Path, text: str = KEY, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def production(home: Path, **values: object) -> Settings:
    return Settings.model_validate({"home": home, "mode": "production"} | values)


def test_production_starts_on_keys_that_were_given(tmp_path: Path) -> None:
    written(tmp_path / "keys" / "signing.key")
    written(tmp_path / "keys" / "master.key", f"{KEY}\n")
    assert load_master_keys(production(tmp_path)) == [base64.b64decode(KEY)]
    assert load_master_keys(production(tmp_path, key=KEY)) == [base64.b64decode(KEY)]
    load_signing_key(production(tmp_path))


def test_production_makes_no_key(tmp_path: Path) -> None:
    for load in (load_master_keys, load_signing_key):
        with pytest.raises(KeyUnreadable, match="makes none"):
            load(production(tmp_path))
    assert not list(tmp_path.iterdir())


def test_production_refuses_keys_that_others_read_or_guess(tmp_path: Path) -> None:
    path = written(tmp_path / "master.key", mode=0o640)
    with pytest.raises(KeyUnreadable, match="chmod 600"):
        load_master_keys(production(tmp_path, key_file=path))
    for weak in (
        "00" * 32,
        "0123456789abcdef" * 4,
        base64.b64encode(b"passwordpasswordpasswordpassword").decode(),
    ):
        with pytest.raises(KeyUnreadable, match="not random"):
            load_master_keys(production(tmp_path, key=weak))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"auth": "off"}, "ROWVEIL_AUTH is 'off'"),
        ({"cors_origins": "http://desk.example"}, "http:// origin"),
        ({"oidc_issuer": "http://localhost:1", "oidc_audience": "a"}, "OIDC_ISSUER"),
    ],
)
def test_production_refuses_what_is_for_a_laptop(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match="ROWVEIL_MODE 'production' does not start") as caught:
        production(tmp_path, **settings)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"auth": "off", "host": "0.0.0.0"}, "one's own machine"),  # noqa: S104 - that it is refused
        ({"cors_origins": "*"}, "no '\\*'"),
        ({"cors_origins": "https://desk.example/"}, "no path"),
        ({"mode": "prod"}, "known are 'local' and 'production'"),
    ],
)
def test_what_would_let_everybody_in_is_refused(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Settings.model_validate(settings)


def test_without_authentication_it_warns_and_serves_this_machine_alone(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Requests with a rebound host name, and from a page of another site, are rejected."""
    with (
        running_service(tmp_path, auth="off", workers="1", warm_workers="false") as address,
        httpx.Client(base_url=address) as client,
    ):
        assert "authentication is OFF" in capfd.readouterr().err
        assert client.get("/v1/jobs").status_code == 200
        assert client.get("/v1/jobs", headers={"host": "localhost:1"}).status_code == 200
        for headers in (
            {"host": "rowveil.evil.example"},
            {"host": "[::1"},
            {"origin": "https://evil.example"},
            {"origin": "null"},
        ):
            refused = client.get("/v1/jobs", headers=headers)
            assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
            setting = "ROWVEIL_AUTH=on" if "host" in headers else "ROWVEIL_CORS_ORIGINS"
            assert setting in refused.json()["detail"]
        same = client.get("/v1/jobs", headers={"origin": address})
        assert same.status_code == 200
