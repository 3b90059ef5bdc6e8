"""Launches replicas, through the service by which users launch sessions: the same limits, policies and queue."""

import secrets
from collections.abc import Iterator, Sequence
from typing import Final

from accounts.limits import Amounts, exceeded
from accounts.models import User
from deployments.models import Deployment, Replica, Revision
from deployments.replicas import stepwise
from resources import clock
from resources.amounts.units import amount_text
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest
from sessions.limits import policy_checks
from sessions.models import Endpoint, EndpointState, Session

REPLICA_APP: Final = "serve"  # the name of a replica's endpoint
_LETTERS: Final = "abcdefghijkmnpqrstuvwxyz23456789"


def launch(deployment: Deployment, revision: Revision) -> Replica:
    """Queue a session that runs the revision, in the caller's transaction. Raises RejectedError."""
    suffix = "".join(secrets.choice(_LETTERS) for _ in range(6))
    request = launch_request(deployment, revision, f"{deployment.name}-{revision.number}-{suffix}")
    [session] = services.submit(deployment.owner, request)
    Endpoint.objects.create(
        session=session,
        app=REPLICA_APP,
        title=deployment.name,
        port=revision.port,
        state=EndpointState.READY.value,  # whether requests go to it depends on its health
        opened_by=deployment.owner,
        opened_at=clock.now(),
    )
    return Replica.objects.create(session=session, deployment=deployment, revision=revision, created_at=clock.now())


def launch_request(deployment: Deployment, revision: Revision, name: str = "") -> LaunchRequest:
    """Return the request for a session that runs the stored revision. Raises RejectedError for a deleted folder."""
    rows = list(revision.mounts.select_related("folder__root"))
    if gone := next((row.folder_name for row in rows if row.folder is None), None):
        raise RejectedError({"mounts": f"The folder {gone} was deleted."})
    model_path = next((row.path for row in rows if row.is_model), "")
    return LaunchRequest(
        image=revision.image,
        resource_group=deployment.resource_group,
        project=deployment.project,
        name=name,
        cpu=revision.cpu,
        memory=revision.memory,
        shared_memory=revision.shared_memory,
        fgpu=revision.asked_fgpu,
        gpu_memory=revision.gpu_memory,
        environment=environment_of(revision.environment, revision.port, model_path),
        command=revision.command,
        is_replica=True,
        mounts=[
            MountRequest(folder=row.folder, path=row.path, is_read_only=row.is_read_only) for row in rows if row.folder
        ],
    )


def environment_of(own: dict[str, str], port: int, model_path: str) -> dict[str, str]:
    """Return the environment variables of a replica: those of its revision, where it serves, and where its model is."""
    return ({"MODEL_PATH": model_path} if model_path else {}) | own | {"PORT": str(port)}


def replicas_error(owner: User, deployment: Deployment, replicas: int, each: Amounts) -> str | None:
    """Return why so many replicas can never run at once under the policies, or None."""
    for whose, most in _exceeded_limits(owner, deployment, times(each, replicas)):
        return f"{whose} allows {most} at once, which is too little for {replicas} replicas."
    return None


def rollout_error(deployment: Deployment, serving: Sequence[Session], least: int, each: Amounts) -> str | None:
    """Return why so many new replicas can never run beside these that serve, under the policies; or None."""
    together = times(each, least)
    for session in serving:
        together += Amounts(cpu=session.cpu, memory=session.memory, fgpu=session.fgpu, sessions=1)
    for whose, most in _exceeded_limits(deployment.owner, deployment, together):
        return (
            f"{whose} allows {most} at once, which is too little for the {len(serving)} that serve and {least} of the"
            " new revision: let some be unavailable in a rollout, or scale down first."
        )
    return None


def beside(deployment: Deployment) -> tuple[int, int]:
    """Return how many new replicas a rollout launches beside those that serve: at most, and at least.

    Where none serves, there is nothing to keep: all are launched at once, in the place of those that are there.
    """
    if not deployment.replica_rows.taking_requests().exists():
        return deployment.replicas, 0
    return stepwise.beside(
        deployment.strategy,
        wanted=deployment.replicas,
        surge=deployment.max_surge,
        unavailable=deployment.max_unavailable,
        steps=deployment.canary_steps,
    )


def times(each: Amounts, count: int) -> Amounts:
    """Return what so many replicas have together."""
    return Amounts(**{name: getattr(each, name) * count for name in ("cpu", "memory", "fgpu", "sessions")})


def _exceeded_limits(owner: User, deployment: Deployment, together: Amounts) -> Iterator[tuple[str, str]]:
    """Yield whose policy allows how little, of those limits that the amounts exceed."""
    for whose, _, limits in policy_checks.holders(owner, deployment.project):
        for name in exceeded(limits, together):
            yield (
                whose,
                amount_text(name, getattr(limits, name)) if name != "sessions" else f"{limits.sessions} sessions",
            )
