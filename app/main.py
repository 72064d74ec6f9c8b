"""ASGI application: `create_app(settings)` assembles the service; importing this module has no effect."""

import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.routing import BaseRoute, Route

from app import __version__
from app.api import problems
from app.api.large_body import BodyParser
from app.api.middleware.connections import SurplusConnections
from app.api.middleware.content_digest import ContentDigests
from app.api.middleware.cors import Cors
from app.api.middleware.head import HeadIsGetWithoutContent
from app.api.middleware.request_log import RequestLog
from app.api.middleware.security_headers import SecurityHeaders
from app.api.middleware.slow_clients import SlowBodies
from app.api.pages import console, swagger
from app.api.pages.openapi import add_document
from app.api.request_budget import RequestBudget
from app.api.routes import attacks, buffers, frontier, health, jobs, ledger, measures, series, services
from app.api.usual_requests import UsualRequests, usual_handlers
from app.errors import StorageFull, Unavailable
from app.help import routes as help_pages
from app.jobs.fairness.open_requests import OpenRequests
from app.jobs.lifecycle import StartStopped
from app.jobs.maintenance.adoption import StorageInUse
from app.jobs.service import JobService
from app.jobs.stores import HomeInUse, HomeUnusable
from app.processes.api_process import ApiProcess
from app.settings import Settings
from app.store.crypto.key_files import KeyUnreadable, load_metrics_keys
from app.store.crypto.sealing import SealBroken
from app.store.sql.connection.errors import FULL, DatabaseDamaged, DatabaseUnusable
from app.store.sql.deployment import StorageMismatch, StorageUnusable
from app.store.sql.replicas import ReplicasDiffer
from app.telemetry.metrics import Metrics
from app.telemetry.tracing import flush, set_up_tracing

if TYPE_CHECKING:
    from app.api.auth.oidc import Tokens

_log = logging.getLogger("rowveil")
_START_REFUSED = (
    HomeInUse,
    HomeUnusable,
    KeyUnreadable,
    DatabaseDamaged,
    DatabaseUnusable,
    Unavailable,
    ReplicasDiffer,
    SealBroken,
    StorageInUse,
    StorageMismatch,
    StorageUnusable,
)

_NOT_OWNED = (
    "The user of the service (%d) must own the home and the shared folder with all that is in them: "
    "`chown -R` them, for example after a copy by root"
)

_NO_FOLDER = "ROWVEIL_HOME and ROWVEIL_SHARED_FOLDER must be folders that can be made and written"

DESCRIPTION = """\
Statistical disclosure control by data swapping: Rowveil exchanges values between the rows of a table.
Nobody can be sure of having re-identified a person, and the table remains useful for statistics.

Post a table to a service, such as `POST /v1/services/CDSWAP`. The response is a job with the
destination buffer, the events of its rows, and a manifest to verify a rerun against. A seed can undo
a swap: it is stored sealed, and only its fingerprint is shown by default.
"""


def create_app(settings: Settings, process: ApiProcess | None = None) -> FastAPI:
    """Create the service as an ASGI application; its lifespan migrates the database and starts workers.

    Parameters
    ----------
    settings
        Settings of this process.
    process
        This process among the API processes of the service; None: there is no other.
    """
    metrics = Metrics(__version__)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        set_up_tracing()
        job_service = JobService(settings, metrics=metrics, process=process)
        with _logged_refusal(app):
            app.state.metrics_keys = load_metrics_keys(settings)
            await job_service.start()
        app.state.jobs = job_service
        app.state.body_parser = BodyParser(settings)
        try:
            yield
        finally:
            await app.state.body_parser.close()
            await job_service.close()
            flush()

    app = FastAPI(
        title="Rowveil",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        swagger_ui_oauth2_redirect_url=None,
        redirect_slashes=False,  # a redirect names the service's own host, and loses the body in some clients
        separate_input_output_schemas=False,
    )
    app.state.settings = settings
    app.state.request_budget = RequestBudget(settings, metrics)
    app.state.open_requests = OpenRequests(settings, metrics)
    app.state.start_refused = False
    app.state.paths = set()
    app.state.tokens = _tokens(settings)
    app.state.metrics_keys = frozenset()
    problems.install(app)
    # The most frequent first.
    resources = (jobs, services, measures, frontier, attacks, buffers, ledger, series, health)
    every_route = [route for resource in resources for route in resource.router.routes]
    _add_middleware(app, settings, metrics, every_route)
    # The routes themselves. FastAPI's `include_router` would build each of them a second time at the first
    # request, which takes a quarter of a second of processor time.
    app.router.routes.extend(every_route)
    for resource in resources:
        app.state.paths.update(each.path for each in resource.router.routes if isinstance(each, Route))
    add_document(app)
    for pages in (swagger, console, help_pages):
        app.router.routes.extend(pages.router.routes)
    return app


@contextmanager
def _logged_refusal(app: FastAPI) -> Iterator[None]:
    """Log the cause if the service refuses to start: a message that is sufficient without a trace."""
    try:
        yield
    except StorageFull:
        app.state.start_refused = True
        _log.error("%s", FULL)
        raise
    except _START_REFUSED as error:
        app.state.start_refused = True
        _log.error("%s", error)
        raise
    except OSError as error:
        if error.filename is None:
            raise
        app.state.start_refused = True
        advice = _NOT_OWNED % os.geteuid() if isinstance(error, PermissionError) else _NO_FOLDER
        _log.error("%s: %s. %s", error.strerror, error.filename, advice)
        raise
    except StartStopped as stopped:
        app.state.start_refused = True
        _log.info("%s", stopped)
        raise


def _add_middleware(
    app: FastAPI, settings: Settings, metrics: Metrics, every_route: Sequence[BaseRoute]
) -> None:
    """Add the layers around the routes, the innermost first."""
    app.add_middleware(UsualRequests, handlers=usual_handlers(every_route))
    app.add_middleware(problems.UnexpectedErrors)
    app.add_middleware(HeadIsGetWithoutContent)
    app.add_middleware(ContentDigests)
    app.add_middleware(SlowBodies, patience=settings.request_patience, least_rate=settings.least_body_rate)
    app.add_middleware(SurplusConnections)
    if settings.cors_origins:
        app.add_middleware(
            Cors,
            allow_origins=settings.cors_origins,
            allow_methods=["GET", "HEAD", "POST", "PATCH", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
    app.add_middleware(SecurityHeaders)
    app.add_middleware(RequestLog, metrics=metrics)


def _tokens(settings: Settings) -> "Tokens | None":
    """Return the validator of the issuer's tokens, if there is an issuer."""
    if not settings.oidc_issuer:
        return None
    from app.api.auth.oidc import Tokens  # imported late: most services have no issuer

    return Tokens(settings)
