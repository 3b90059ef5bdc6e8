"""The addresses of deployments: each has an origin of its own, which lasts as long as it does."""

from deployments.models import Deployment
from sessions.access.app_addresses import site


def origin(deployment: Deployment) -> str:
    """Return scheme and host of the deployment; "" where the platform has no domain for apps."""
    names = site()
    return "" if names.is_by_port else names.origin(deployment.label)
