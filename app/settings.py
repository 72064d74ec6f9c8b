"""Every setting of the service, said once: read from the environment, ``ROWVEIL_`` before the name."""

import os
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.references import ReferenceRefused, parse_prefixes
from providers.errors import did_you_mean

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts by which nobody but this machine is meant."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""What tokens may be signed by: with a private key that the issuer alone has."""

_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


def available_cores() -> int:
    """The cores this process may run on, which a container may hold below the machine's."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def available_memory() -> int:
    """The bytes of memory this process may use: the machine's, or its container's where that is less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(memory, int(_CGROUP_MEMORY.read_text()))
    except (OSError, ValueError):  # no such group, or "max": not limited
        return memory


def _default_database(given: dict[str, Any]) -> str:
    return f"sqlite:///{Path(given['home']).resolve() / 'rowveil.db'}" if "home" in given else ""


def _default_threads(given: dict[str, Any]) -> int:
    return max(1, available_cores() // int(given.get("workers", 1)))


def _default_worker_memory(given: dict[str, Any]) -> int:
    return int(available_memory() * 0.8) // int(given.get("workers", 1))


def _default_units(given: dict[str, Any]) -> int:
    return 8 if given.get("engine") == "dask" else 1


class Settings(BaseSettings):
    """The service's settings. Making one reads the environment and touches nothing else."""

    model_config = SettingsConfigDict(
        env_prefix="ROWVEIL_", use_attribute_docstrings=True, frozen=True, extra="forbid"
    )

    home: Path = Path("./var")
    """The folder below which all state of the embedded default lies."""
    database_url: str = Field(default_factory=_default_database)
    """The database: SQLite for one process, `postgresql://user:password@host/name` for several replicas.
    Default: a SQLite file below the home."""
    lease_seconds: Annotated[float, Field(ge=1)] = 20.0
    """Seconds after which a replica that is not heard of is taken for dead, and its jobs are taken up."""
    engine: str = "local"
    """Where jobs run: `local`, worker processes on this machine; `dask`, child processes of the workers of a
    Dask cluster."""
    scheduler_address: str = ""
    """For engine `dask`: the scheduler's address, such as `tls://scheduler.example:8786`."""
    scheduler_insecure: bool = False
    """Allow `tcp://` to the scheduler: tasks hold keys and seeds in the clear. For tests alone."""
    tls_ca_file: Path | None = None
    """For engine `dask`: the authority that signed the certificates of scheduler, workers and service."""
    tls_cert_file: Path | None = None
    """For engine `dask`: the certificate that this service, or this worker, shows."""
    tls_key_file: Path | None = None
    """For engine `dask`: the private key of that certificate."""
    shared_folder: Path = Field(default_factory=lambda given: Path(given.get("home", ".")))
    """The folder of sealed buffers, progress and what jobs put aside. Every replica must reach it, and with
    engine `dask` every worker at the same path. Default: the home."""
    workers: Annotated[int, Field(ge=1)] = Field(default_factory=available_cores)
    """Worker processes, which is the number of jobs that run at once. Default: one a core."""
    worker_threads: Annotated[int, Field(ge=1)] = Field(default_factory=_default_threads)
    """Threads of one worker. Default: the cores shared out among the workers."""
    worker_memory_bytes: Annotated[int, Field(ge=16 * 2**20)] = Field(default_factory=_default_worker_memory)
    """Memory one job may take beyond an idle worker's own. Default: 80 % of the machine's, shared
    out among the workers. Held by the operating system on Linux."""
    warm_workers: bool = True
    """Whether a worker loads every kernel before it is ready, so that no call waits for one; else each is
    loaded when it is first used, and a worker is ready some seconds sooner."""
    units_per_job: Annotated[int, Field(ge=1)] = Field(default_factory=_default_units)
    """Units that a job too large for one worker's memory is shared out in, among the workers that are free;
    1: it stays on one worker. Default: 8 with engine `dask`, else 1."""
    job_time_limit: Annotated[float, Field(gt=0)] = 3600.0
    """Seconds a job may run before it is stopped."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on; 0 takes a free one."""
    mode: str = "local"
    """`production` refuses to start on what only a machine of one's own may have: keys made at the first
    start or readable by others, authentication off, plain http to an issuer or a scheduler."""
    auth: str = "on"
    """Whether callers must say who they are: `on`; `off`, for a laptop alone."""
    oidc_issuer: str = ""
    """The issuer whose tokens are taken besides keys, as its tokens name it. Default: none."""
    oidc_audience: str = ""
    """What tokens must be meant for (`aud`)."""
    oidc_jwks_url: str = ""
    """Where the issuer's keys lie. Default: where its own configuration says."""
    oidc_algorithms: str = "RS256,PS256,ES256,EdDSA"
    """What tokens may be signed by, separated by commas; never a shared secret (HS256), never none."""
    oidc_scope_claim: str = "scope"
    """The claim with the scopes: a list, or words with spaces between them."""
    oidc_scope_prefix: str = "rowveil:"
    """What stands before a scope in a token, such as `rowveil:run`."""
    oidc_project_claim: str = ""
    """The claim with the project. Default: tokens have no project."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose pages may call the service from a browser, separated by commas. Default: none."""
    request_patience: Annotated[float, Field(gt=0)] = 20.0
    """Seconds in which the head of a request must have come, and that its body may pause."""
    least_body_rate: Annotated[int, Field(ge=0)] = 1024
    """Bytes a second that a body must bring on average, beyond that patience."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**20
    """The largest JSON request body."""
    max_buffer_bytes: Annotated[int, Field(ge=1024)] = 16 * 2**30
    """The largest uploaded buffer, as it comes over the wire, a content coding undone."""
    max_table_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**30
    """The largest table that an upload may decode to, as it is stored."""
    max_wait_seconds: Annotated[float, Field(ge=0)] = 60.0
    """The longest that one request waits for a job, or for a free worker."""
    default_wait_seconds: Annotated[float, Field(ge=0)] = 10.0
    """How long a request waits for its job when it does not say."""
    source_prefixes: str = ""
    """Where a `source` by reference may lie: `s3://bucket`, `s3://bucket/folder` and `file:///folder`,
    separated by commas. Default: nowhere; references are refused."""
    destination_prefixes: str = ""
    """Where a `destination` by reference may be written, in the same form. Default: nowhere."""
    buffer_ttl: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Seconds after which an uploaded buffer goes."""
    result_retention: Annotated[float, Field(gt=0)] = 7 * 24 * 3600.0
    """Seconds after a job's end at which its destination buffer and a retained source go."""
    job_retention: Annotated[float, Field(gt=0)] = 90 * 24 * 3600.0
    """Seconds after a job's end at which the job itself goes, with its report, manifest and seed."""
    purge_interval: Annotated[float, Field(gt=0)] = 60.0
    """Seconds between two looks for what is to go."""
    idempotency_ttl: Annotated[float, Field(gt=0)] = 24 * 3600.0
    """Seconds for which an `Idempotency-Key` stands for what was made under it; then it may be used anew."""
    priority_seconds: Annotated[float, Field(ge=0)] = 300.0
    """A job of priority `high` is claimed as if it had come so many seconds earlier, one of `low` later."""
    caller_jobs: Annotated[int, Field(ge=1)] = 1000
    """Jobs of one caller that may be queued or run at a time."""
    caller_rows: Annotated[int, Field(ge=1)] = 10**10
    """Rows of the sources of those jobs, together."""
    caller_bytes: Annotated[int, Field(ge=1)] = 2**40
    """Bytes of the tables that those jobs were given, together."""
    caller_buffer_bytes: Annotated[int, Field(ge=1)] = 2**40
    """Bytes of the buffers that one caller may keep at a time, as they are stored."""
    webhook_insecure: bool = False
    """Allow `http://` in webhooks: what is told of a job travels in the clear. For tests, and in-house."""
    webhook_networks: str = ""
    """Networks that webhooks may reach though they are not public, such as `10.20.0.0/16,fd00:12::/32`."""
    webhook_attempts: Annotated[int, Field(ge=1, le=30)] = 10
    """How often a message to a webhook is tried before it is given up."""
    webhook_retry_seconds: Annotated[float, Field(gt=0)] = 5.0
    """Seconds from the first attempt to the second; three times as long each time after, 6 hours at most."""
    webhook_timeout: Annotated[float, Field(gt=0, le=60)] = 10.0
    """Seconds that one attempt may take in all."""
    webhook_retention: Annotated[float, Field(gt=0)] = 7 * 24 * 3600.0
    """Seconds for which it is kept that a message arrived, or was given up."""
    log_format: Literal["text", "json"] = "text"
    """How a log line is written: `text`, or `json`, one object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default_factory=lambda given: "info" if given.get("log_format") == "json" else "warning"
    )
    """The least that is logged; each request is told at `info`. Default: `info` as `json`, else `warning`."""
    shutdown_grace: Annotated[float, Field(ge=0)] = 10.0
    """Seconds that running jobs are given at shutdown; then they go back into the queue."""
    key: SecretStr | None = None
    """Master keys, each 32 bytes in base64 or hex, separated by commas: the first seals, all of
    them open. Default: those in the key file."""
    key_file: Path = Field(default_factory=lambda given: Path(given.get("home", ".")) / "keys" / "master.key")
    """The file of master keys, one a line. Made at the first start where there is none."""
    signing_key_file: Path = Field(
        default_factory=lambda given: Path(given.get("home", ".")) / "keys" / "signing.key"
    )
    """The file of the Ed25519 key that signs manifests. Made at the first start."""

    @model_validator(mode="after")
    def _is_available_in_this_version(self) -> Self:
        if self.engine not in ("local", "dask"):
            raise ValueError(f"unknown engine '{self.engine}'; known are 'local' and 'dask'")
        if self.auth not in ("on", "off"):
            raise ValueError(f"unknown auth '{self.auth}'; known are 'on' and 'off'")
        if self.mode not in ("local", "production"):
            raise ValueError(f"unknown mode '{self.mode}'; known are 'local' and 'production'")
        return self

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _separated_by_commas(cls, value: Any) -> Any:
        return (
            tuple(word.strip() for word in value.split(",") if word.strip())
            if isinstance(value, str)
            else value
        )

    @property
    def oidc_algorithm_list(self) -> tuple[str, ...]:
        """The algorithms by themselves."""
        return tuple(name.strip() for name in self.oidc_algorithms.split(",") if name.strip())

    @model_validator(mode="after")
    def _lets_nobody_in(self) -> Self:
        if self.auth == "off" and self.host not in LOOPBACK:
            raise ValueError("auth 'off' is for one's own machine: ROWVEIL_HOST must be 127.0.0.1 then")
        for origin in self.cors_origins:
            place = urlsplit(origin)
            if place.scheme not in ("http", "https") or origin != f"{place.scheme}://{place.netloc}":
                raise ValueError(
                    "ROWVEIL_CORS_ORIGINS names origins such as https://desk.example, with no path and no '*'"
                )
        if self.oidc_issuer:
            if not self.oidc_audience:
                raise ValueError("ROWVEIL_OIDC_ISSUER needs ROWVEIL_OIDC_AUDIENCE: what tokens are meant for")
            for url in (self.oidc_issuer, self.oidc_jwks_url or self.oidc_issuer):
                place = urlsplit(url)
                if place.scheme != "https" and not (place.scheme == "http" and place.hostname in LOOPBACK):
                    raise ValueError("ROWVEIL_OIDC_ISSUER and ROWVEIL_OIDC_JWKS_URL are https:// addresses")
            unknown = [name for name in self.oidc_algorithm_list if name not in ALGORITHMS]
            if unknown or not self.oidc_algorithm_list:
                raise ValueError(f"ROWVEIL_OIDC_ALGORITHMS: known are {', '.join(ALGORITHMS)}")
        return self

    @model_validator(mode="after")
    def _fits_production(self) -> Self:
        if self.mode != "production":
            return self
        plain = [url for url in (self.oidc_issuer, self.oidc_jwks_url) if url.startswith("http://")]
        faults = {
            "ROWVEIL_AUTH is 'off'": self.auth == "off",
            "ROWVEIL_OIDC_ISSUER or ROWVEIL_OIDC_JWKS_URL is http://": bool(plain),
            "ROWVEIL_CORS_ORIGINS has an http:// origin": any(
                origin.startswith("http://") for origin in self.cors_origins
            ),
            "ROWVEIL_SCHEDULER_INSECURE is set": self.scheduler_insecure,
        }
        found = [fault for fault, there in faults.items() if there]
        if found:
            raise ValueError(f"mode 'production' does not start while {' and '.join(found)}")
        return self

    @model_validator(mode="after")
    def _cluster_is_reached_safely(self) -> Self:
        if self.engine != "dask":
            return self
        scheme = self.scheduler_address.partition("://")[0]
        if scheme == "tls":
            for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
                if getattr(self, name) is None:
                    raise ValueError(f"engine 'dask' over tls needs ROWVEIL_{name.upper()}")
        elif scheme != "tcp":
            raise ValueError("engine 'dask' needs ROWVEIL_SCHEDULER_ADDRESS, such as tls://scheduler:8786")
        elif not self.scheduler_insecure:
            raise ValueError(
                "ROWVEIL_SCHEDULER_ADDRESS is tcp://, over which keys and seeds would travel in the clear; "
                "use tls://, or set ROWVEIL_SCHEDULER_INSECURE for a test"
            )
        return self

    @model_validator(mode="after")
    def _references_stay_out_of_the_home(self) -> Self:
        own = [self.home, self.shared_folder, self.key_file.parent, self.signing_key_file.parent]
        if self.tls_key_file is not None:
            own.append(self.tls_key_file.parent)
        for name in ("source_prefixes", "destination_prefixes"):
            try:
                prefixes = parse_prefixes(getattr(self, name))
            except ReferenceRefused as error:
                raise ValueError(f"{name}: {error.message}") from None
            folders = [Path("/", *each.path).resolve() for each in prefixes if each.scheme == "file"]
            for folder, mine in product(folders, (path.resolve() for path in own)):
                if folder.is_relative_to(mine) or mine.is_relative_to(folder):
                    raise ValueError(
                        f"{name}: a folder of references must not hold, or lie in, the service's own folders "
                        "(home, shared folder, keys); give it one of its own"
                    )
        return self

    @model_validator(mode="after")
    def _waits_fit(self) -> Self:
        if self.default_wait_seconds > self.max_wait_seconds:
            raise ValueError("default_wait_seconds must not be over max_wait_seconds")
        return self

    @model_validator(mode="after")
    def _a_job_outlives_its_result(self) -> Self:
        if self.job_retention < self.result_retention:
            raise ValueError("job_retention must not be under result_retention")
        return self

    @model_validator(mode="after")
    def _networks_are_networks(self) -> Self:
        try:
            webhook_networks(self)
        except ValueError as error:
            raise ValueError(f"webhook_networks: {error}; a network is like 10.20.0.0/16") from None
        return self


def webhook_networks(settings: Settings) -> tuple[IPv4Network | IPv6Network, ...]:
    """The networks that webhooks may reach though they are not public."""
    return tuple(ip_network(part.strip()) for part in settings.webhook_networks.split(",") if part.strip())


_OF_OTHERS = ("ROWVEIL_API_KEY", "ROWVEIL_DATA", "ROWVEIL_SEED")
"""No settings: a caller's key (`examples/`), where tests find real tables, a seed (`app.cli.seeds`)."""


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """What is wrong with each variable that looks like a setting and is none."""
    known = [f"ROWVEIL_{name.upper()}" for name in Settings.model_fields]
    return [
        f"{name}: there is no such setting{did_you_mean(name, known)}"
        for name in sorted(environment)
        if name.startswith("ROWVEIL_") and name not in known and name not in _OF_OTHERS
    ]
