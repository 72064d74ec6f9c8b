"""Scope that each operation needs. A route without an entry here cannot be created."""

from app.callers import METRICS, READ, RUN, SEEDS
from providers import PROVIDERS

NEEDED: dict[str, str | None] = {
    "listServices": READ,
    "getService": READ,
    **{f"run{identifier.title()}": RUN for identifier in PROVIDERS},
    "measure": RUN,
    "compareServices": RUN,
    "attack": RUN,
    "listJobs": READ,
    "listReleases": READ,
    "getJob": READ,
    "annotateJob": RUN,
    "cancelJob": RUN,
    "deleteJob": RUN,
    "watchJob": READ,
    "getJobRows": READ,
    "compareJobRows": READ,
    "getJobReport": READ,
    "getJobManifest": READ,
    "revealSeed": SEEDS,
    "rerunJob": RUN,
    "listSeries": READ,
    "getSeries": READ,
    "deleteSeries": RUN,
    "createBuffer": RUN,
    "createBufferFromForm": RUN,
    "listBuffers": READ,
    "getBuffer": READ,
    "getBufferRows": READ,
    "getBufferProfile": READ,
    "annotateBuffer": RUN,
    "copyBuffer": RUN,
    "deleteBuffer": RUN,
    "getLiveness": None,
    "getReadiness": None,
    "getMetrics": METRICS,
}
"""Operation id -> scope; None: no authentication needed."""
