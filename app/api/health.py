"""Whether the service lives, whether it can take work, and what it counts."""

from fastapi import APIRouter, Response, status
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from app.api.context import Service
from app.api.requests import JsonRoute
from app.api.schemas import Health

router = APIRouter(tags=["health"], route_class=JsonRoute)


@router.get("/livez", operation_id="getLiveness", summary="Does the process answer?")
async def live() -> Health:
    """Ok as long as the process answers at all; nothing else is looked at."""
    return Health(status="ok")


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Can the service take work?",
    responses={503: {"model": Health, "description": "Something that it needs is missing."}},
)
async def ready(response: Response, service: Service) -> Health:
    """Ok when the database, the storage and at least one worker are there."""
    checks = await service.health()
    ok = all(result == "ok" for result in checks.values())
    if not ok:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    return Health(status="ok" if ok else "unavailable", checks=checks)


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="What is counted",
    response_class=Response,
    responses={
        200: {
            "content": {"text/plain": {"schema": {"type": "string"}}},
            "description": "Prometheus' text format.",
        }
    },
)
async def metrics(service: Service) -> Response:
    """Requests, jobs, queue, workers, webhooks and what was purged; no label holds an id or a value."""
    return Response(await service.sampled_metrics(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
