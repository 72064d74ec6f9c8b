"""Prometheus metrics of the service.

Every label takes its values from a list that is known in the code. An identifier, an owner or anything else
that a caller can choose would let the number of series grow without bound.
"""

from collections.abc import Callable, Collection
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

from app.telemetry.metrics_folder import metrics_folder
from app.telemetry.shared_metrics import text_of_all

_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_LAG_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_JOB_SECONDS = (0.01, 0.05, 0.1, 0.5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600)

# How the values of several API processes make one of the service.
_NEWEST: Final = "livemostrecent"
_SUM: Final = "livesum"
_MOST: Final = "livemax"
_LEAST: Final = "livemin"

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
UPLOAD_RESULTS = ("stored", "repeated", "failed")
AUTHENTICATION_FAILURES = ("unauthenticated", "invalid_token", "insufficient_scope", "forbidden")
"""Problem codes of requests without the credentials or the scope that they need."""
OTHER = "other"
"""Label value that replaces any value outside of the label's list."""


class Metrics:
    """All metrics, in a registry of their own."""

    def __init__(self, version: str = "") -> None:
        self.registry = registry = CollectorRegistry()
        self._folder = metrics_folder()
        self._followed: list[tuple[Gauge, Callable[[], float]]] = []
        ProcessCollector(registry=registry)
        self.build = Gauge(
            "rowveil_build_info",
            "1, with the version.",
            ["version"],
            multiprocess_mode=_MOST,
            registry=registry,
        )
        self.build.labels(version).set(1)

        self.requests = Counter(
            "rowveil_http_requests",
            "Requests answered. The route is a template, such as /v1/jobs/{job_id}.",
            ["method", "route", "status"],
            registry=registry,
        )
        self.server_errors = Counter(
            "rowveil_http_server_errors",
            "Responses with a status of 500 or more, whatever the route.",
            registry=registry,
        )
        self.request_seconds = Histogram(
            "rowveil_http_request_seconds",
            "Time to the end of the response, including streams and waiting.",
            ["method", "route"],
            buckets=_REQUEST_SECONDS,
            registry=registry,
        )
        self.accepted = Counter(
            "rowveil_jobs_accepted", "Jobs accepted.", ["service", "priority"], registry=registry
        )
        self.ended = Counter(
            "rowveil_jobs_ended",
            "Jobs ended. The code is that of the error, `none` where there is none.",
            ["service", "state", "code"],
            registry=registry,
        )
        self.requeued = Counter("rowveil_jobs_requeued", "Jobs put back into the queue.", registry=registry)
        self.repeated = Counter(
            "rowveil_units_repeated",
            "Tasks of divided jobs started again: their worker was lost, or they were slow.",
            ["reason"],
            registry=registry,
        )
        self.wait_seconds = Histogram(
            "rowveil_job_wait_seconds",
            "From a job's acceptance to its start.",
            ["service"],
            buckets=_JOB_SECONDS,
            registry=registry,
        )
        self.run_seconds = Histogram(
            "rowveil_job_run_seconds",
            "From a job's start to its end.",
            ["service"],
            buckets=_JOB_SECONDS,
            registry=registry,
        )
        self.rows = Counter(
            "rowveil_job_rows", "Rows of jobs that succeeded.", ["service"], registry=registry
        )
        self.uploads = Counter(
            "rowveil_uploads",
            "Uploads of buffers: stored, repeated under an idempotency key, or failed.",
            ["result"],
            registry=registry,
        )
        for result in UPLOAD_RESULTS:
            self.uploads.labels(result)  # exported as 0, so that an alert notices the first one
        self.uploaded = Counter(
            "rowveil_uploaded_bytes",
            "Bytes of uploads as they arrive, after undoing their content encoding.",
            registry=registry,
        )
        self.requests_refused = Counter(
            "rowveil_requests_refused",
            "Requests refused because those in flight take all the memory that they may.",
            registry=registry,
        )
        self.request_memory = Gauge(
            "rowveil_request_memory_bytes",
            "Memory that the bodies of requests in flight may take.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.request_memory_limit = Gauge(
            "rowveil_request_memory_limit_bytes",
            "Memory that the bodies of all requests in flight may take together.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.limited = Counter(
            "rowveil_limited", "Requests refused by a limit on their caller.", ["limit"], registry=registry
        )
        self.deliveries = Counter(
            "rowveil_webhook_attempts",
            "Attempts to deliver a message to a webhook.",
            ["result"],
            registry=registry,
        )
        self.purged = Counter(
            "rowveil_purged", "Things deleted at their expiry.", ["what"], registry=registry
        )
        self.purge_failures = Counter(
            "rowveil_purge_failures",
            "Purges that failed; what is due is tried again at the next one.",
            ["what"],
            registry=registry,
        )
        self.purge_lag = Gauge(
            "rowveil_purge_lag_seconds",
            "Time since all that was due at a moment had been deleted by this replica.",
            ["what"],
            multiprocess_mode=_LEAST,
            registry=registry,
        )
        self._make_counters_of_faults()
        self._make_gauges()

    def _make_counters_of_faults(self) -> None:
        """Create the metrics of sweeps, lease, authentication and load; every series exists from 0 on."""
        registry = self.registry
        self.sweep_failures = Counter(
            "rowveil_sweep_failures",
            "Sweeps that failed, or found the folder of another deployment.",
            registry=registry,
        )
        self.sweep_lag = Gauge(
            "rowveil_sweep_lag_seconds",
            "Time since this replica's last complete sweep.",
            multiprocess_mode=_LEAST,
            registry=registry,
        )
        self.audit_anchor_failures = Counter(
            "rowveil_audit_anchor_failures",
            "Checkpoints of the audit log that could not be published.",
            registry=registry,
        )
        self.leases_lost = Counter(
            "rowveil_leases_lost", "Leases of this replica that expired.", registry=registry
        )
        self.renewal_failures = Counter(
            "rowveil_lease_renewal_failures", "Renewals of the lease that failed.", registry=registry
        )
        self.authentication_failures = Counter(
            "rowveil_authentication_failures",
            "Requests refused for their credentials or scopes.",
            ["reason"],
            registry=registry,
        )
        for reason in AUTHENTICATION_FAILURES:
            self.authentication_failures.labels(reason)
        self.loop_lag = Histogram(
            "rowveil_event_loop_lag_seconds",
            "Delay of a timer of the event loop, twice a second.",
            buckets=_LAG_SECONDS,
            registry=registry,
        )
        self.pool_full = Counter(
            "rowveil_pool_full_seconds",
            "Time during which all database connections, or all workers, were in use; mean of API processes.",
            ["pool"],
            registry=registry,
        )
        for pool in ("connections", "workers"):
            self.pool_full.labels(pool)

    def _make_gauges(self) -> None:
        """Create the gauges that are read when the metrics are scraped."""
        registry = self.registry
        self.database_up = Gauge(
            "rowveil_database_up",
            "1 if the database answered this request.",
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.jobs = Gauge(
            "rowveil_jobs",
            "Jobs that have not ended, of all replicas.",
            ["state"],
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.oldest = Gauge(
            "rowveil_oldest_queued_seconds",
            "Age of the job queued longest, 0 if none is queued.",
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.buffers = Gauge(
            "rowveil_buffers", "Uploaded buffers that are kept.", multiprocess_mode=_NEWEST, registry=registry
        )
        self.buffer_bytes = Gauge(
            "rowveil_buffer_bytes", "Their bytes.", multiprocess_mode=_NEWEST, registry=registry
        )
        self.pending = Gauge(
            "rowveil_webhooks_pending",
            "Webhook messages that are not delivered yet.",
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.blobs = Gauge(
            "rowveil_blobs", "Sealed files in the store.", multiprocess_mode=_NEWEST, registry=registry
        )
        self.blob_bytes = Gauge(
            "rowveil_blob_bytes", "Their bytes.", multiprocess_mode=_NEWEST, registry=registry
        )
        self.trash = Gauge(
            "rowveil_trash",
            "Sealed files in the trash of the store.",
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.trash_bytes = Gauge(
            "rowveil_trash_bytes", "Their bytes.", multiprocess_mode=_NEWEST, registry=registry
        )
        self.sweep_held = Gauge(
            "rowveil_sweep_held",
            "Files that the last sweep left in place because they were too many; else 0.",
            multiprocess_mode=_MOST,
            registry=registry,
        )
        self.workers = Gauge(
            "rowveil_workers",
            "Jobs that this replica may run at once.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.free = Gauge(
            "rowveil_workers_free",
            "Jobs that could start here at once.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.connections = Gauge(
            "rowveil_database_connections",
            "Database connections in use.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.connections_limit = Gauge(
            "rowveil_database_connections_limit",
            "Most of them at once.",
            multiprocess_mode=_SUM,
            registry=registry,
        )
        self.disk_free = Gauge(
            "rowveil_disk_free_bytes",
            "Bytes free to the service on the file system of a folder.",
            ["folder"],
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.disk_size = Gauge(
            "rowveil_disk_bytes",
            "Size of that file system in bytes.",
            ["folder"],
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.certificate_expiry = Gauge(
            "rowveil_certificate_expiry_timestamp_seconds",
            "Moment at which a certificate expires, in Unix seconds.",
            ["certificate"],
            multiprocess_mode=_NEWEST,
            registry=registry,
        )
        self.kernels_missing = Gauge(
            "rowveil_kernels_missing",
            "Kernels that are still to be compiled in the background.",
            multiprocess_mode=_MOST,
            registry=registry,
        )
        self.ready = Gauge(
            "rowveil_workers_ready",
            "1 if at least one worker is up.",
            multiprocess_mode=_MOST,
            registry=registry,
        )

    @property
    def shared(self) -> bool:
        """Whether other API processes count as well."""
        return self._folder is not None

    def follow(self, gauge: Gauge, read: Callable[[], float]) -> None:
        """Let a gauge have the value that ``read`` returns at each `refresh`."""
        self._followed.append((gauge, read))

    def refresh(self) -> None:
        """Set the gauges that follow something, for the scrape, which may arrive at another API process."""
        for gauge, read in self._followed:
            gauge.set(read())

    def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        self.refresh()
        return generate_latest(self.registry) if self._folder is None else text_of_all(self._folder)


def known(value: str, values: Collection[str]) -> str:
    """Return the value if it is on the list, else `OTHER`."""
    return value if value in values else OTHER
