"""What a change would launch beside the replicas that serve: checked as its command checks it, and nothing is written.

Each raises RejectedError where the command would. The scheduler's advice says whether there is room.
"""

from dataclasses import dataclass, replace

from accounts.models import User
from deployments import services
from deployments.models import Deployment, Revision
from deployments.replicas import launching
from deployments.requests import DeploymentRequest, RevisionRequest
from sessions.launching.requests import LaunchRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPreview:
    """The replicas that are launched at once, while others serve."""

    owner: User
    launch: LaunchRequest  # of all of them
    launches: int
    in_place: bool = False  # none is launched beside those that serve: each takes the place of one


def of_creation(owner: User, request: DeploymentRequest) -> LaunchPreview:
    """Return what a new deployment launches."""
    deployment, resolved = services.check(owner, request)
    return _preview(deployment, resolved.launch, deployment.replicas)


def of_revision(deployment: Deployment, request: RevisionRequest) -> LaunchPreview:
    """Return what the rollout of a new revision launches."""
    return _of_rollout(deployment, services.check_revision(deployment, request).launch)


def of_activation(deployment: Deployment, revision: Revision) -> LaunchPreview:
    """Return what the rollout of a stored revision launches."""
    services.check_activation(deployment, revision)
    launch = launching.launch_request(deployment, revision)
    return _preview(deployment, launch, 0) if revision == deployment.revision else _of_rollout(deployment, launch)


def of_scale(deployment: Deployment, replicas: int) -> LaunchPreview:
    """Return what another number of replicas of the current revision launches."""
    assert deployment.revision is not None  # each is made with one
    services.check_scale(deployment, replicas)
    launch = launching.launch_request(deployment, deployment.revision)
    return _preview(deployment, launch, replicas - deployment.replicas)


def _of_rollout(deployment: Deployment, launch: LaunchRequest) -> LaunchPreview:
    most, _ = launching.beside(deployment)
    return replace(_preview(deployment, launch, most), in_place=not most and deployment.replicas > 0)


def _preview(deployment: Deployment, launch: LaunchRequest, count: int) -> LaunchPreview:
    launches = max(0, count)
    return LaunchPreview(owner=deployment.owner, launch=replace(launch, count=max(1, launches)), launches=launches)
