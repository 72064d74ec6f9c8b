"""Liveness, readiness and Prometheus metrics."""

from typing import Any

from fastapi import APIRouter, Response, status
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from app.api.dependencies import Service
from app.api.json_request import JsonRoute
from app.api.problems import MEDIA_TYPE
from app.api.schemas import CompiledKernels, Health

router = APIRouter(tags=["health"], route_class=JsonRoute)

_NOT_HTTP: dict[int | str, dict[str, Any]] = {
    400: {
        "description": "The request is not HTTP/1.1.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


@router.get(
    "/livez",
    operation_id="getLiveness",
    summary="Check that the process responds",
    responses=_NOT_HTTP,
)
async def live() -> Health:
    """Return ok as long as the process responds; no dependency is checked."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Check that the service can accept work",
    responses=_NOT_HTTP | {503: {"model": Health, "description": "A dependency is not available."}},
)
async def ready(response: Response, service: Service) -> Health:
    """Return ok if the database, the storage and at least one worker are available."""
    checks = await service.health()
    ok = all(result == "ok" for result in checks.values())
    if not ok:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    progress = service.kernel_progress()
    kernels = None
    if progress is not None:
        running = [name for name, _ in progress.running]
        kernels = CompiledKernels(compiled=progress.compiled, kernels=progress.kernels, running=running)
    return Health(status="ok" if ok else "unavailable", checks=checks, kernels=kernels)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Get metrics",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "Prometheus text format.",
        }
    },
)
async def metrics(service: Service) -> Response:
    """Metrics of requests, jobs, queue, workers, storage, webhooks and maintenance, for a Prometheus scraper.

    The metrics cover all callers. They need the scope `metrics:read`, or a key of the scraper, which is
    checked without the database. No label contains an id or a value.
    """
    return Response(await service.metrics_text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
