"""Makers of deployments for tests: valid by default; keyword arguments replace any field."""

from typing import Any

from accounts.models import User
from deployments import services
from deployments.models import Deployment
from deployments.requests import DeploymentRequest, RevisionRequest
from resources.amounts.units import GIB, MIB
from resources.models import Host
from tests.factories import make_host, make_image, make_user

SERVE = 'exec python3 -m http.server "$PORT"'


def revision_request(**overrides: Any) -> RevisionRequest:
    """Return a request for a revision of 1 core and 1 GiB."""
    fields: dict[str, Any] = {"cpu": 1, "memory": GIB, "shared_memory": 64 * MIB, "command": SERVE} | overrides
    if "image" not in fields:
        fields["image"] = make_image()
    return RevisionRequest(**fields)


def deployment_request(*, host: Host | None = None, **overrides: Any) -> DeploymentRequest:
    """Return a request for a deployment of one replica, on a group with a host."""
    fields: dict[str, Any] = {"name": "model"} | overrides
    if "revision" not in fields:
        fields["revision"] = revision_request()
    if "resource_group" not in fields:
        fields["resource_group"] = (host or make_host()).group
    return DeploymentRequest(**fields)


def make_deployment(owner: User | None = None, *, host: Host | None = None, **overrides: Any) -> Deployment:
    """Return a deployment whose replicas are not launched yet."""
    return services.create(owner or make_user(), deployment_request(host=host, **overrides))
