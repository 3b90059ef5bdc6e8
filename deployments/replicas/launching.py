"""Launches replicas, through the service by which users launch sessions: the same limits, policies and queue."""

import secrets
from typing import Final

from accounts.limits import Amounts, exceeded
from accounts.models import User
from deployments.models import Deployment, Replica, Revision
from resources import clock
from resources.amounts.units import amount_text
from sessions.errors import RejectedError
from sessions.launching import services
from sessions.launching.mounts import MountRequest
from sessions.launching.requests import LaunchRequest
from sessions.limits import policy_checks
from sessions.models import Endpoint, EndpointState

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
        fgpu=revision.fgpu,
        environment=environment_of(revision.environment, revision.port, model_path),
        command=revision.command,
        is_replica=True,
        mounts=[
            MountRequest(folder=row.folder, path=row.path, is_read_only=row.is_read_only) for row in rows if row.folder
        ],
    )


def environment_of(own: dict[str, str], port: int, model_path: str) -> dict[str, str]:
    """Return the environment variables of a replica: those of its revision, where it serves, and where its model is."""
    return own | {"PORT": str(port)} | ({"MODEL_PATH": model_path} if model_path else {})


def replicas_error(owner: User, deployment: Deployment, replicas: int, each: Amounts) -> str | None:
    """Return why so many replicas can never run at once under the policies, or None."""
    names = ("cpu", "memory", "fgpu", "sessions")
    together = Amounts(**{name: getattr(each, name) * replicas for name in names})
    for whose, _, limits in policy_checks.holders(owner, deployment.project):
        for name in exceeded(limits, together):
            most = amount_text(name, getattr(limits, name)) if name != "sessions" else f"{limits.sessions} sessions"
            return f"{whose} allows {most} at once, which is too little for {replicas} replicas."
    return None
