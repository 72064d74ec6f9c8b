"""Settings come from the environment, and their defaults fit the machine."""

import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.__main__ import main
from app.engine.dask_address import Cluster, cluster_of
from app.settings import Settings, available_memory, thresholds_of
from providers.attacks.thresholds import Bounds, Thresholds
from providers.cores import available_cores
from providers.described_model import field_descriptions
from tests.docs.blocks import PAGES, blocks


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ROWVEIL_{name.upper()}", raising=False)


def test_defaults_share_the_machine_out_among_the_workers() -> None:
    cores = available_cores()
    assert (Settings().workers, Settings().worker_threads) == (cores, 1)
    one = Settings(workers=1)
    assert one.worker_threads == cores
    assert one.worker_memory_bytes == int(available_memory() * 0.8)
    assert Settings(workers=4 * cores).worker_threads == 1


def test_api_processes_share_workers_and_limits_of_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(api_processes=3, workers=5, max_connections=10, request_memory_bytes=8)
    shares = [settings.of_process(number) for number in range(3)]
    assert [share.workers for share in shares] == [2, 2, 1]
    assert {(share.max_connections, share.request_memory_bytes) for share in shares} == {(4, 3)}
    assert {share.caller_open_requests for share in shares} == {2}
    assert {share.worker_memory_bytes for share in shares} == {settings.worker_memory_bytes}
    with pytest.raises(ValidationError, match="each process starts at least one worker"):
        Settings(api_processes=3, workers=2)
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ValidationError, match="needs Linux"):
        Settings(api_processes=2, workers=2)


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROWVEIL_HOME", str(tmp_path))
    monkeypatch.setenv("ROWVEIL_WORKERS", "3")
    monkeypatch.setenv("ROWVEIL_KEY", "unspoken")
    settings = Settings()
    assert settings.workers == 3
    assert settings.database_url == f"sqlite:///{tmp_path}/rowveil.db"
    assert settings.key_file == tmp_path / "keys" / "master.key"
    assert "unspoken" not in repr(settings)


def test_making_settings_touches_nothing(tmp_path: Path) -> None:
    Settings(home=tmp_path / "home")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("engine", "dask", "needs ROWVEIL_SCHEDULER_ADDRESS"),
        ("engine", "cluster", "unknown engine 'cluster'"),
        ("auth", "maybe", "unknown auth 'maybe'"),
        ("home", "", "names no folder; unset the variable"),
        ("host", "", "names no address; unset the variable for 127.0.0.1"),
        ("shared_folder", "", "names no folder; unset the variable for the home"),
        ("key_file", "", "names no file; unset the variable"),
        ("signing_key_file", "", "names no file; unset the variable"),
        ("metrics_key_file", "", "names no file; unset the variable"),
        ("tls_key_file", "", "names no file; unset the variable"),
        ("lease_seconds", "inf", "finite number"),
        ("shutdown_grace", "nan", "finite number"),
        ("slow_unit_factor", "inf", "finite number"),
        ("caller_request_rate", "inf", "finite number"),
        ("workers", "0", "greater than or equal to 1"),
        ("slow_unit_factor", "0.5", "must be 0, or at least 1"),
        ("unit_repeats", "-1", "greater than or equal to 0"),
        ("default_wait_seconds", "61", "ROWVEIL_DEFAULT_WAIT_SECONDS must not be over"),
    ],
)
def test_what_does_not_fit_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(f"ROWVEIL_{name.upper()}", value)
    with pytest.raises(ValidationError, match=message):
        Settings()


TIMES = [
    name
    for name, description in field_descriptions(Settings).items()
    if "econds" in description.split(".")[0] and "bytes per second" not in description
]


def test_every_time_is_found() -> None:
    assert {"buffer_ttl", "result_retention", "lease_seconds", "shutdown_grace", "job_time_limit"} < set(
        TIMES
    )
    assert {"idempotency_ttl", "webhook_retention", "keep_alive_seconds", "purge_interval"} < set(TIMES)


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("value", ["inf", "nan", "1e12", "3153600001"])
def test_a_time_is_finite_and_at_most_100_years(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """A longer one would fail where it is added to a date, or given to a timer, such as in each upload."""
    monkeypatch.setenv(f"ROWVEIL_{name.upper()}", value)
    with pytest.raises(
        ValidationError, match=r"must be at most 3153600000 seconds|finite|valid integer|than or equal to 60"
    ):
        Settings()


def test_a_time_of_100_years_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in set(TIMES) - {"webhook_timeout"}:
        monkeypatch.setenv(f"ROWVEIL_{name.upper()}", "3153600000")
    settings = Settings()
    assert settings.buffer_ttl == settings.lease_seconds == 3153600000


def test_a_cluster_is_reached_over_tls_unless_it_is_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain tcp needs a setting that says so; tls needs certificates."""
    monkeypatch.setenv("ROWVEIL_ENGINE", "dask")
    monkeypatch.setenv("ROWVEIL_SCHEDULER_ADDRESS", "tcp://127.0.0.1:8786")
    with pytest.raises(ValidationError, match="in the clear"):
        Settings()
    monkeypatch.setenv("ROWVEIL_SCHEDULER_INSECURE", "true")
    assert cluster_of(Settings()) == Cluster("tcp://127.0.0.1:8786")
    monkeypatch.setenv("ROWVEIL_SCHEDULER_ADDRESS", "tls://127.0.0.1:8786")
    with pytest.raises(ValidationError, match="ROWVEIL_TLS_CA_FILE"):
        Settings()
    for part in ("ca", "cert", "key"):
        monkeypatch.setenv(f"ROWVEIL_TLS_{part.upper()}_FILE", f"{part}.pem")
    found = cluster_of(Settings())
    assert (str(found.ca_file), str(found.cert_file), str(found.key_file)) == (
        "ca.pem",
        "cert.pem",
        "key.pem",
    )


def test_every_setting_has_its_help_text() -> None:
    assert set(field_descriptions(Settings)) == set(Settings.model_fields)


def test_a_misspelt_setting_is_refused_with_the_right_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ROWVEIL_WORKRES", "3")
    monkeypatch.setenv("ROWVEIL_DATA", "the tests' own")
    assert main(["migrate"]) == 2
    printed = capsys.readouterr().err
    assert "ROWVEIL_WORKRES: there is no such setting; did you mean 'ROWVEIL_WORKERS'?" in printed
    assert "ROWVEIL_DATA:" not in printed


@pytest.mark.parametrize("url", ["nonsense", "nosuch://db", "sqlite:////proc/none/at/all.db"])
def test_a_database_that_cannot_be_used_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    monkeypatch.setenv("ROWVEIL_DATABASE_URL", url)
    assert main(["migrate"]) == 1
    printed = capsys.readouterr().err
    assert printed.count("\n") == 1
    assert "database" in printed


def test_a_log_for_programs_has_each_request_and_one_for_people_does_not() -> None:
    assert (Settings().log_level, Settings(log_format="json").log_level) == ("warning", "info")
    assert Settings(log_format="json", log_level="error").log_level == "error"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("JOB_RETENTION", "60", "ROWVEIL_JOB_RETENTION must not be under"),
        ("WEBHOOK_NETWORKS", "10.0.0.0/8,10.1.2.3/8", "a network is like 10.20.0.0/16"),
        ("LOG_FORMAT", "xml", "'text' or 'json'"),
        ("CALLER_JOBS", "0", "greater than or equal to 1"),
        ("KERNEL_CPU", "pentium", "no processor 'pentium' for .*; known are baseline, native"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_what_would(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(f"ROWVEIL_{name}", value)
    with pytest.raises(ValidationError, match=reason):
        Settings()


def test_attacks_are_judged_by_the_thresholds_of_the_project(monkeypatch: pytest.MonkeyPatch) -> None:
    """`*` is every other project, and a caller without one; without a setting the defaults hold."""
    assert thresholds_of(Settings(), None) == thresholds_of(Settings(), "census") == Thresholds()
    given = '{"*": {"elevated": 0.1, "high": 0.3}, "census": {"attacks": {"membership": {"high": 0.5}}}}'
    monkeypatch.setenv("ROWVEIL_ATTACK_THRESHOLDS", given)
    census = thresholds_of(Settings(), "census")
    assert (census.high, census.of("membership"), census.of("linkability")) == (
        0.09,
        Bounds(high=0.5),
        census,
    )
    for project in (None, "another"):
        assert (thresholds_of(Settings(), project).elevated, thresholds_of(Settings(), project).high) == (
            0.1,
            0.3,
        )
    (example,) = (block for block in blocks(PAGES / "attacks.md") if block.language == "json")
    monkeypatch.setenv("ROWVEIL_ATTACK_THRESHOLDS", example.text)
    statistics = thresholds_of(Settings(), "statistics")
    assert (statistics.elevated, statistics.of("singling_out_univariate").high) == (0.1, 1)
    assert thresholds_of(Settings(), "another") == Thresholds()
    monkeypatch.setenv("ROWVEIL_ATTACK_THRESHOLDS", '{"*": {"elevated": 0.3, "high": 0.1}}')
    with pytest.raises(ValidationError, match="must not be below"):
        Settings()
