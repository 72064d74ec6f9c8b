"""Policy for a source that has been released before."""

from typing import Literal, cast

from app.errors import InvalidRequest, ReleasedBefore
from app.settings import Settings

Policy = Literal["allow", "warn", "require_reason", "refuse"]


def policy_of(settings: Settings, project: str | None) -> Policy:
    """Return the policy for the jobs of a project; None: of callers without one."""
    found = settings.release_policies.get(project or "", settings.release_policy)
    return cast(Policy, found)


def check_policy(policy: Policy, reason: str | None, earlier: int) -> None:
    """Raise ReleasedBefore or InvalidRequest if the policy does not allow another release.

    Parameters
    ----------
    policy : Policy
    reason : str or None
        Reason that the request gives.
    earlier : int
        Number of earlier releases of the source.
    """
    if not earlier:
        return
    if policy == "refuse":
        raise ReleasedBefore(
            f"this source has been released {_times(earlier)}, and the project's policy refuses another "
            "release; GET /v1/ledger lists the earlier ones"
        )
    if policy == "require_reason" and not reason:
        raise InvalidRequest(
            f"this source has been released {_times(earlier)}, and the project's policy requires a reason "
            "for another release: give 'release_reason'",
            "/release_reason",
        )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
