"""Settings of the service, read from environment variables with the prefix ``ROWVEIL_``."""

import os
import sys
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, ValidationInfo, field_validator, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.references import Reference, ReferenceRefused, parse_prefix, parse_prefixes
from providers.attacks.thresholds import Thresholds
from providers.cores import available_cores
from providers.errors import did_you_mean
from providers.kernel_cpu import NATIVE, choose

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Host names and addresses that only this machine can reach."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Allowed signature algorithms of tokens: only those with a private key that the issuer alone has."""

RELEASE_POLICIES = ("allow", "warn", "require_reason", "refuse")
"""Policies for a source that has been released before."""

_CGROUP_MEMORY = Path("/sys/fs/cgroup/memory.max")


_CENTURY = 100 * 365 * 24 * 3600


def at_most_a_century(seconds: float) -> float:
    """Return the number of seconds; raise ValueError if a date that far away may not exist."""
    if seconds > _CENTURY:
        raise ValueError(f"must be at most {_CENTURY} seconds (100 years)")
    return seconds


Seconds = Annotated[float, Field(allow_inf_nan=False), AfterValidator(at_most_a_century)]
"""Finite number of seconds that can be added to a date, and that every timer accepts."""


def available_memory() -> int:
    """Return the bytes of memory this process may use: the machine's, or its container's if that is less."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(memory, int(_CGROUP_MEMORY.read_text()))
    except (OSError, ValueError):  # no such group, or "max" for no limit
        return memory


def _default_database(given: dict[str, Any]) -> str:
    return f"sqlite:///{Path(given['home']).resolve() / 'rowveil.db'}" if "home" in given else ""


def _default_threads(given: dict[str, Any]) -> int:
    return max(1, available_cores() // int(given.get("workers", 1)))


def _default_worker_memory(given: dict[str, Any]) -> int:
    return int(available_memory() * 0.8) // int(given.get("workers", 1))


def _default_body_memory(given: dict[str, Any]) -> int:
    wanted = 32 * int(given.get("max_body_bytes", 0))
    return max(256 * 2**20, min(wanted, available_memory() // 8))


def _default_request_memory(given: dict[str, Any]) -> int:
    return max(512 * 2**20, available_memory() // 8)


def _default_open_requests(given: dict[str, Any]) -> int:
    return max(1, int(given.get("max_connections", 1)) // 2)


def _default_units(given: dict[str, Any]) -> int:
    return 8 if given.get("engine") == "dask" else 1


def is_issuer_address(url: str, loopback: bool = True) -> bool:
    """Whether keys of an issuer may come from the address: by https, or from this machine.

    ``loopback``: whether http is accepted from this machine.
    """
    try:
        place = urlsplit(url)
    except ValueError:  # such as an address of IP version 6 without its end
        return False
    plain = loopback and place.scheme == "http" and place.hostname in LOOPBACK
    return plain or (place.scheme == "https" and bool(place.hostname))


_NO_FILE = "names no file; unset the variable for the default"

_EMPTY = {
    "home": "names no folder; unset the variable for ./var",
    "shared_folder": "names no folder; unset the variable for the home",
    "host": "names no address; unset the variable for 127.0.0.1, or set 0.0.0.0 for all IPv4 addresses",
    **dict.fromkeys(("key_file", "signing_key_file", "metrics_key_file"), _NO_FILE),
    **dict.fromkeys(("tls_ca_file", "tls_cert_file", "tls_key_file"), _NO_FILE),
}
"""Setting -> what an empty text is wrong about: a path takes it for the current folder, a socket for every
address."""


class Settings(BaseSettings):
    """Settings of the service. Creating an instance reads the environment and touches nothing else."""

    model_config = SettingsConfigDict(env_prefix="ROWVEIL_", frozen=True, extra="forbid")

    home: Path = Path("./var")
    """The folder for all state of the embedded default: database, keys and sealed tables."""
    database_url: str = Field(default_factory=_default_database)
    """The database: SQLite for one service, `postgresql://user:password@host/name` for several replicas.
    Default: a SQLite file below the home."""
    lease_seconds: Annotated[Seconds, Field(ge=1)] = 20.0
    """Seconds without a heartbeat after which a replica's lease expires and its jobs are taken over."""
    engine: str = "local"
    """Engine that runs the jobs: `local` uses worker processes on this machine; `dask` uses child processes
    of the workers of a Dask cluster."""
    scheduler_address: str = ""
    """For engine `dask`: the scheduler's address, such as `tls://scheduler.example:8786`."""
    scheduler_insecure: bool = False
    """Allow `tcp://` to the scheduler, which sends keys and seeds unencrypted. Only for tests."""
    tls_ca_file: Path | None = None
    """For engine `dask`: the certificate authority that signed the certificates of scheduler, workers and
    service."""
    tls_cert_file: Path | None = None
    """For engine `dask`: the certificate that this service or worker presents."""
    tls_key_file: Path | None = None
    """For engine `dask`: the private key of that certificate."""
    shared_folder: Path = Field(default_factory=lambda given: Path(given.get("home", ".")))
    """The folder of sealed buffers, progress files and scratch space. Every replica must reach it, and
    with engine `dask` every worker at the same path. With `ROWVEIL_STORAGE` it is the work folder of this
    machine. Default: the home."""
    storage: str = ""
    """Bucket of all sealed tables, such as `s3://bucket/prefix`, with the credentials and the endpoint of
    the usual AWS variables. The shared folder is then a work folder of each machine. Default: none; the
    tables are in the shared folder."""
    small_table_bytes: Annotated[int, Field(ge=0, le=2**20)] = 131_072
    """Largest table of a job, in bytes of an Arrow stream, that is stored sealed in the job's row. Larger
    ones are sealed files of the shared folder. 0: every table is a file."""
    workers: Annotated[int, Field(ge=1)] = Field(default_factory=available_cores)
    """Number of worker processes, which is the number of jobs that run at the same time. Default: one per
    core."""
    worker_threads: Annotated[int, Field(ge=1)] = Field(default_factory=_default_threads)
    """Threads of one worker. Default: the cores divided by the number of workers."""
    worker_memory_bytes: Annotated[int, Field(ge=16 * 2**20)] = Field(default_factory=_default_worker_memory)
    """Memory in bytes that one job may use beyond an idle worker's own. Default: 80 % of the machine's
    memory, divided by the number of workers. Enforced by the operating system on Linux."""
    compile_kernels: bool = True
    """Whether the service compiles kernels that its cache folder lacks, in the background while it runs. A
    job waits for the kernels of its own service. If false, a job compiles the kernels that it needs."""
    warm_workers: bool = False
    """Whether a worker loads every kernel before it is ready. It then takes some seconds longer to start and
    about 110 MB more. If false, a worker loads a kernel at its first use, in some hundredths of a second."""
    kernel_cpu: str = NATIVE
    """Processor that kernels are compiled for: `native`, this machine's; `baseline`, the instructions that
    all usual processors of its architecture have; or the name of a baseline, such as `x86-64-v3`. A machine
    without the baseline compiles for itself."""
    confine_workers: bool = True
    """Whether workers on Linux give up access to files, network and other programs before their first task,
    as far as the system supports it (Landlock, seccomp)."""
    separate_owners: bool = False
    """Whether a worker process runs tasks of one owner only: of one API key's name, or of one subject of
    tokens. A free worker that has run tasks of another owner gets a new process first, and loads its kernels
    again: about a tenth of a second."""
    worker_environment: str = ""
    """Names of environment variables that workers get in addition to an allow-list, separated by commas. No
    secret belongs here."""
    units_per_job: Annotated[int, Field(ge=1)] = Field(default_factory=_default_units)
    """Number of units that a job too large for one worker's memory is divided into, for all free workers;
    1: it stays on one worker. Default: 8 with engine `dask`, else 1."""
    unit_repeats: Annotated[int, Field(ge=0)] = 3
    """Times that a unit, or another step of a job that may be divided, is started again after its worker was
    lost; 0: the job fails."""
    slow_unit_factor: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 3.0
    """Multiple of the median time of a job's finished units after which a running unit is started a second
    time, on a free worker; 0: never."""
    job_time_limit: Annotated[Seconds, Field(gt=0)] = 3600.0
    """Seconds that a job may run before it is stopped."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8080
    """The port to listen on; 0 takes a free one."""
    api_processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes that answer requests on the port, if one core does not answer enough calls a
    second. They share the workers: each process starts its part of them, at least one. More than 1 needs
    Linux."""
    mode: str = "local"
    """`production` refuses to start with settings that are only acceptable on a single user's machine:
    keys created at the first start or readable by others, authentication off, plain http to an issuer or a
    scheduler."""
    auth: str = "on"
    """Authentication of callers: `on`; `off` only on a single user's machine."""
    oidc_issuer: str = ""
    """The issuer whose tokens are accepted in addition to API keys, exactly as in its tokens. Default:
    none."""
    oidc_audience: str = ""
    """Required audience of tokens (`aud`)."""
    oidc_jwks_url: str = ""
    """URL of the issuer's keys. Default: taken from the issuer's discovery document."""
    oidc_algorithms: str = "RS256,PS256,ES256,EdDSA"
    """Accepted signature algorithms of tokens, separated by commas. Shared secrets (HS256) and `none` are
    never accepted."""
    oidc_typed_tokens: bool = False
    """Accept only tokens whose header has the type `at+jwt` (RFC 9068). By default a token without this type
    is accepted, unless its claims are those of an ID token."""
    oidc_scope_claim: str = "scope"
    """The claim with the scopes: a list, or words separated by spaces."""
    oidc_scope_prefix: str = "rowveil:"
    """Prefix of a scope in a token, such as `rowveil:run`."""
    oidc_project_claim: str = ""
    """The claim with the project. Default: tokens have no project."""
    release_policy: str = "warn"
    """Policy for a source that its owner or project has released before: `allow`; `warn`, which adds the
    event `released_before` with the measured risk; `require_reason`; or `refuse`."""
    release_policies: Annotated[dict[str, str], NoDecode] = Field(default={})
    """Policies of single projects, separated by commas, such as `trials=refuse,demo=allow`."""
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    """Origins whose pages may call the service from a browser, separated by commas. Default: none."""
    request_patience: Annotated[Seconds, Field(gt=0)] = 20.0
    """Seconds within which a request head must arrive, and for which a request body may pause."""
    least_body_rate: Annotated[int, Field(ge=0)] = 1024
    """Minimum average bytes per second of a request body, after `ROWVEIL_REQUEST_PATIENCE` seconds; 0: no
    limit."""
    keep_alive_seconds: Annotated[int, Field(ge=1), AfterValidator(at_most_a_century)] = 15
    """Seconds for which a connection may stay open after a response without another request. A proxy in
    front must keep its connections for less."""
    linger_seconds: Annotated[Seconds, Field(ge=0)] = 5.0
    """Seconds for which a client that got a response before the end of its body may continue sending, so
    that it can read the response; then the connection is closed. 0: immediately, and the response may be
    lost."""
    response_patience: Annotated[Seconds, Field(gt=0)] = 30.0
    """Seconds for which a client may read nothing of a response; then the connection is reset."""
    least_response_rate: Annotated[int, Field(ge=0)] = 1024
    """Minimum average bytes per second that a client must read of a response, after
    `ROWVEIL_RESPONSE_PATIENCE` seconds; 0: no limit."""
    max_connections: Annotated[int, Field(ge=1)] = 512
    """Maximum number of connections. Requests on up to 32 further connections are rejected with 503, except
    health checks; more connections are reset."""
    max_body_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**20
    """Maximum size of a JSON request body, in bytes."""
    body_memory_bytes: Annotated[int, Field(ge=64 * 2**20)] = Field(default_factory=_default_body_memory)
    """Memory in bytes that parsing one large JSON body may take, in a process of its own. Default: 32 times
    the maximum size of a body, at most an eighth of the machine's memory, at least 256 MiB."""
    request_memory_bytes: Annotated[int, Field(ge=1)] = Field(default_factory=_default_request_memory)
    """Memory in bytes that the bodies of all requests in flight may take together, weighted by the growth in
    parsing. Further requests get a 503. One body of the maximum size always fits. Default: an eighth of the
    machine's memory, at least 512 MiB."""
    max_buffer_bytes: Annotated[int, Field(ge=1024)] = 16 * 2**30
    """Maximum size of an uploaded buffer in bytes, after undoing its content encoding."""
    max_table_bytes: Annotated[int, Field(ge=1024)] = 64 * 2**30
    """Maximum size of a stored table in bytes, after decoding an upload."""
    max_wait_seconds: Annotated[Seconds, Field(ge=0)] = 60.0
    """Maximum number of seconds that a request waits for a job. A plan, a preview, a profile or a comparison
    of rows that takes longer is stopped."""
    default_wait_seconds: Annotated[Seconds, Field(ge=0)] = 10.0
    """Number of seconds that a request waits for its job if it has no `Prefer: wait`."""
    source_prefixes: str = ""
    """Allowed prefixes of a `source` by reference, separated by commas, each after the project that may use
    it: `census=s3://bucket`, `census=s3://bucket/folder` or `census=file:///folder`. `*=...` is for every
    caller. Default: none; references are rejected."""
    destination_prefixes: str = ""
    """Allowed prefixes of a `destination` by reference, in the same form. Default: none."""
    overwrite_prefixes: str = ""
    """Allowed prefixes of a `destination` that may replace an existing file or object, in the same form.
    Default: none; a destination is written only if nothing exists there."""
    buffer_ttl: Annotated[Seconds, Field(gt=0)] = 24 * 3600.0
    """Seconds after which an uploaded buffer is deleted."""
    result_retention: Annotated[Seconds, Field(gt=0)] = 7 * 24 * 3600.0
    """Seconds after a job's end after which its destination buffer and a retained source are deleted."""
    job_retention: Annotated[Seconds, Field(gt=0)] = 90 * 24 * 3600.0
    """Seconds after a job's end after which the job is deleted, with its report, manifest and seed."""
    trash_days: Annotated[int, Field(ge=0, le=3650)] = 7
    """Days for which an unreferenced sealed table is kept in the trash of the shared folder before it is
    deleted; 0: it is deleted immediately, and cannot be restored."""
    purge_interval: Annotated[Seconds, Field(gt=0)] = 60.0
    """Seconds between two searches for expired data."""
    idempotency_ttl: Annotated[Seconds, Field(gt=0)] = 24 * 3600.0
    """Seconds after which an `Idempotency-Key` expires and may be reused."""
    priority_weight: Annotated[float, Field(ge=1, le=1000, allow_inf_nan=False)] = 4.0
    """Number of jobs of one priority that start for each job of the priority below it, if callers wait with
    both; 1: priorities make no difference."""
    caller_jobs: Annotated[int, Field(ge=1)] = 1000
    """Maximum number of queued and running jobs, plans and uploads of one caller."""
    caller_rows: Annotated[int, Field(ge=1)] = 10**10
    """Maximum number of source rows of these jobs, together."""
    caller_bytes: Annotated[int, Field(ge=1)] = 2**40
    """Maximum number of bytes of the input tables of these jobs, together."""
    caller_buffer_bytes: Annotated[int, Field(ge=1)] = 2**40
    """Maximum number of bytes of the buffers that one caller may store."""
    caller_request_rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 100.0
    """Requests per second that one caller may send to one API process on average; 0: no limit."""
    caller_request_burst: Annotated[int, Field(ge=1)] = 1000
    """Requests that one caller may send at once after a pause."""
    caller_open_requests: Annotated[int, Field(ge=1)] = Field(default_factory=_default_open_requests)
    """Maximum number of requests of one caller that are answered at the same time. A request that waits
    for its job or follows events counts as long as it lasts. Default: half of the maximum number of
    connections."""
    attack_thresholds: dict[str, Thresholds] = {}
    """Risks above which a report's headline and the verdict on attacks are `elevated` and `high`, by
    project, as JSON such as `{"*": {"elevated": 0.05, "high": 0.09}}`; `*` is every other project.
    Default: 0.05 and 0.09."""
    webhook_insecure: bool = False
    """Allow `http://` in webhooks, which sends the state of jobs unencrypted. For tests and internal
    networks."""
    webhook_networks: str = ""
    """Non-public networks that webhooks may reach, such as `10.20.0.0/16,fd00:12::/32`."""
    audit_anchor_url: str = ""
    """Address to which each checkpoint of the audit log is published: `https://host/path` gets it as a
    request, `s3://bucket/prefix` as an object. Default: none; the newest anchor is only stored in the
    home."""
    audit_anchor_secret: SecretStr | None = None
    """Secret that signs these requests, `whsec_` and base64, as for webhooks. Default: none; they are not
    signed."""
    webhook_attempts: Annotated[int, Field(ge=1, le=30)] = 10
    """Number of attempts to deliver a webhook message."""
    webhook_retry_seconds: Annotated[Seconds, Field(gt=0)] = 5.0
    """Seconds between the first and the second attempt; the delay triples each time, up to 6 hours."""
    webhook_timeout: Annotated[float, Field(gt=0, le=60, allow_inf_nan=False)] = 10.0
    """Time limit of one attempt in seconds."""
    webhook_retention: Annotated[Seconds, Field(gt=0)] = 7 * 24 * 3600.0
    """Seconds for which the record of a delivered or failed message is kept."""
    log_format: Literal["text", "json"] = "text"
    """Format of log lines: `text`, or `json` with one object per line."""
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default_factory=lambda given: "info" if given.get("log_format") == "json" else "warning"
    )
    """Minimum level of log lines; requests are logged at `info`. Default: `info` with `json`, else
    `warning`."""
    shutdown_grace: Annotated[Seconds, Field(ge=0)] = 10.0
    """Seconds that running jobs may continue after a shutdown begins; then they return to the queue."""
    key: SecretStr | None = None
    """Master keys, each 32 bytes in base64 or hex, separated by commas: the first one seals, all of them
    open. Default: the keys in the key file."""
    key_file: Path = Field(default_factory=lambda given: Path(given.get("home", ".")) / "keys" / "master.key")
    """The file of master keys, one per line. Created at the first start if it does not exist. Default:
    `keys/master.key` below the home."""
    signing_key_file: Path = Field(
        default_factory=lambda given: Path(given.get("home", ".")) / "keys" / "signing.key"
    )
    """The file of the Ed25519 key that signs manifests. Created at the first start if it does not exist.
    Default: `keys/signing.key` below the home."""
    metrics_key_file: Path | None = None
    """The file of keys for `/metrics` alone, each 32 bytes in base64 or hex, one per line, which are checked
    without the database. Created at the first start if it does not exist. Default: none; a scraper needs an
    API key or a token with the scope `metrics:read`."""

    @model_validator(mode="after")
    def _is_available_in_this_version(self) -> Self:
        if self.engine not in ("local", "dask"):
            raise ValueError(f"ROWVEIL_ENGINE: unknown engine '{self.engine}'; known are 'local' and 'dask'")
        if self.auth not in ("on", "off"):
            raise ValueError(f"ROWVEIL_AUTH: unknown auth '{self.auth}'; known are 'on' and 'off'")
        if self.mode not in ("local", "production"):
            raise ValueError(f"ROWVEIL_MODE: unknown mode '{self.mode}'; known are 'local' and 'production'")
        return self

    @model_validator(mode="after")
    def _each_process_has_a_worker(self) -> Self:
        if self.api_processes > 1 and sys.platform != "linux":
            raise ValueError("ROWVEIL_API_PROCESSES over 1 needs Linux")
        if self.engine == "local" and self.api_processes > self.workers:
            raise ValueError(
                f"ROWVEIL_API_PROCESSES is {self.api_processes}, which is over ROWVEIL_WORKERS "
                f"({self.workers}): each process starts at least one worker"
            )
        return self

    def of_process(self, number: int) -> Self:
        """Return the settings of one of the API processes, with its part of workers and request limits."""
        count = self.api_processes
        return self.model_copy(
            update={
                "workers": self.workers // count + (number < self.workers % count),
                "max_connections": -(-self.max_connections // count),
                "caller_open_requests": -(-self.caller_open_requests // count),
                "request_memory_bytes": -(-self.request_memory_bytes // count),
            }
        )

    @field_validator(*_EMPTY, mode="before")
    @classmethod
    def _is_not_empty(cls, value: Any, info: ValidationInfo) -> Any:
        if value == "":
            raise ValueError(f"an empty text {_EMPTY[str(info.field_name)]}")
        return value

    @field_validator("kernel_cpu")
    @classmethod
    def _is_a_processor(cls, value: str) -> str:
        choose(value)
        return value

    @field_validator("release_policies", mode="before")
    @classmethod
    def _pairs(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        pairs = [pair.partition("=") for pair in value.split(",") if pair.strip()]
        return {project.strip(): policy.strip() for project, _, policy in pairs}

    @field_validator("release_policy", "release_policies")
    @classmethod
    def _are_release_policies(cls, value: Any) -> Any:
        for given in value.values() if isinstance(value, dict) else (value,):
            if given not in RELEASE_POLICIES:
                raise ValueError(f"'{given}' is not one of {', '.join(RELEASE_POLICIES)}")
        return value

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
        """Return the accepted algorithms as a tuple."""
        return tuple(name.strip() for name in self.oidc_algorithms.split(",") if name.strip())

    @field_validator("slow_unit_factor")
    @classmethod
    def _is_a_multiple(cls, value: float) -> float:
        if 0 < value < 1:
            raise ValueError("must be 0, or at least 1")
        return value

    @model_validator(mode="after")
    def _lets_nobody_in(self) -> Self:
        if self.auth == "off" and self.host not in LOOPBACK:
            raise ValueError(
                "ROWVEIL_AUTH 'off' is only for one's own machine: set ROWVEIL_HOST to 127.0.0.1"
            )
        for origin in self.cors_origins:
            place = urlsplit(origin)
            if place.scheme not in ("http", "https") or origin != f"{place.scheme}://{place.netloc}":
                raise ValueError(
                    "ROWVEIL_CORS_ORIGINS names origins such as https://desk.example, with no path and no '*'"
                )
        if self.oidc_issuer:
            if not self.oidc_audience:
                raise ValueError(
                    "ROWVEIL_OIDC_ISSUER needs ROWVEIL_OIDC_AUDIENCE, the audience of its tokens"
                )
            for url in (self.oidc_issuer, self.oidc_jwks_url or self.oidc_issuer):
                if not is_issuer_address(url):
                    raise ValueError(
                        "ROWVEIL_OIDC_ISSUER and ROWVEIL_OIDC_JWKS_URL must be https:// addresses"
                    )
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
            raise ValueError(f"ROWVEIL_MODE 'production' does not start while {' and '.join(found)}")
        return self

    @model_validator(mode="after")
    def _anchors_are_published_safely(self) -> Self:
        url, plain = self.audit_anchor_url, "http://" if self.webhook_insecure else "https://"
        if url.startswith("s3://"):
            try:
                parse_prefix(url)
            except ReferenceRefused as error:
                raise ValueError(f"ROWVEIL_AUDIT_ANCHOR_URL: {error.message}") from None
            if "," in url:
                raise ValueError("ROWVEIL_AUDIT_ANCHOR_URL names one bucket or prefix")
        elif url and not (url.startswith(("https://", plain)) and urlsplit(url).hostname):
            raise ValueError(
                "ROWVEIL_AUDIT_ANCHOR_URL is like https://log.example/rowveil or s3://bucket/prefix"
            )
        return self

    @model_validator(mode="after")
    def _cluster_is_reached_safely(self) -> Self:
        if self.engine != "dask":
            return self
        scheme = self.scheduler_address.partition("://")[0]
        if scheme == "tls":
            for name in ("tls_ca_file", "tls_cert_file", "tls_key_file"):
                if getattr(self, name) is None:
                    raise ValueError(f"ROWVEIL_ENGINE 'dask' over tls needs ROWVEIL_{name.upper()}")
        elif scheme != "tcp":
            raise ValueError(
                "ROWVEIL_ENGINE 'dask' needs ROWVEIL_SCHEDULER_ADDRESS, such as tls://scheduler:8786"
            )
        elif not self.scheduler_insecure:
            raise ValueError(
                "ROWVEIL_SCHEDULER_ADDRESS is tcp://, over which keys and seeds would travel in the clear; "
                "use tls://, or set ROWVEIL_SCHEDULER_INSECURE for a test"
            )
        return self

    @model_validator(mode="after")
    def _references_stay_out_of_the_home(self) -> Self:
        own = [self.home, self.shared_folder, self.key_file.parent, self.signing_key_file.parent]
        own += [file.parent for file in (self.tls_key_file, self.metrics_key_file) if file is not None]
        for name in ("source_prefixes", "destination_prefixes", "overwrite_prefixes"):
            try:
                prefixes = parse_prefixes(getattr(self, name))
            except ReferenceRefused as error:
                raise ValueError(f"ROWVEIL_{name.upper()}: {error.message}") from None
            found = [each.prefix for each in prefixes]
            folders = [Path("/", *each.path).resolve() for each in found if each.scheme == "file"]
            for folder, mine in product(folders, (path.resolve() for path in own)):
                if folder.is_relative_to(mine) or mine.is_relative_to(folder):
                    raise ValueError(
                        f"ROWVEIL_{name.upper()}: a folder of references must neither contain nor be inside "
                        "the service's own folders (home, shared folder, keys); use a separate one"
                    )
        return self

    @model_validator(mode="after")
    def _storage_is_a_bucket_of_its_own(self) -> Self:
        if not self.storage:
            return self
        try:
            storage = parse_prefix(self.storage)
        except ReferenceRefused as error:
            raise ValueError(f"ROWVEIL_STORAGE: {error.message}") from None
        if storage.scheme != "s3" or "," in self.storage:
            raise ValueError(
                "ROWVEIL_STORAGE names one bucket or prefix, such as s3://bucket/prefix; for a folder, set "
                "ROWVEIL_SHARED_FOLDER"
            )
        names = ("source_prefixes", "destination_prefixes", "overwrite_prefixes")
        given = {name: parse_prefixes(getattr(self, name)) for name in names}
        used = {f"ROWVEIL_{name.upper()}": [each.prefix for each in found] for name, found in given.items()}
        if self.audit_anchor_url.startswith("s3://"):
            used["ROWVEIL_AUDIT_ANCHOR_URL"] = [parse_prefix(self.audit_anchor_url)]
        for name, prefixes in used.items():
            if any(_overlap(storage, prefix) for prefix in prefixes):
                raise ValueError(
                    f"{name}: a prefix must neither contain nor be inside ROWVEIL_STORAGE, whose objects are "
                    "the service's own; use a separate one"
                )
        return self

    @model_validator(mode="after")
    def _waits_fit(self) -> Self:
        if self.default_wait_seconds > self.max_wait_seconds:
            raise ValueError("ROWVEIL_DEFAULT_WAIT_SECONDS must not be over ROWVEIL_MAX_WAIT_SECONDS")
        return self

    @model_validator(mode="after")
    def _a_job_outlives_its_result(self) -> Self:
        if self.job_retention < self.result_retention:
            raise ValueError("ROWVEIL_JOB_RETENTION must not be under ROWVEIL_RESULT_RETENTION")
        return self

    @model_validator(mode="after")
    def _networks_are_networks(self) -> Self:
        try:
            webhook_networks(self)
        except ValueError as error:
            raise ValueError(f"ROWVEIL_WEBHOOK_NETWORKS: {error}; a network is like 10.20.0.0/16") from None
        return self


def _overlap(one: Reference, other: Reference) -> bool:
    return one == other or one.is_below(other) or other.is_below(one)


def webhook_networks(settings: Settings) -> tuple[IPv4Network | IPv6Network, ...]:
    """Return the non-public networks that webhooks may reach."""
    return tuple(ip_network(part.strip()) for part in settings.webhook_networks.split(",") if part.strip())


def thresholds_of(settings: Settings, project: str | None) -> Thresholds:
    """Return the thresholds by which attacks are judged in a project."""
    given = settings.attack_thresholds
    return given.get(project or "*") or given.get("*") or Thresholds()


_OF_OTHERS = ("ROWVEIL_API_KEY", "ROWVEIL_DATA", "ROWVEIL_SEED")
"""Variables with the prefix that are not settings: a caller's key (`examples/`), the folder of real tables
for the tests, a seed (`app.cli.seeds`)."""


def unknown_variables(environment: Iterable[str]) -> list[str]:
    """Return an error message for each variable that has the prefix and is not a setting."""
    known = [f"ROWVEIL_{name.upper()}" for name in Settings.model_fields]
    return [
        f"{name}: there is no such setting{did_you_mean(name, known)}"
        for name in sorted(environment)
        if name.startswith("ROWVEIL_") and name not in known and name not in _OF_OTHERS
    ]
