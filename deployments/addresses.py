"""The addresses of deployments: each has an origin of its own, which lasts as long as it does, and perhaps others."""

from deployments.models import Deployment
from sessions.access.app_addresses import site


def origin(deployment: Deployment) -> str:
    """Return scheme, host and port of the deployment; "" where it needs a port of its own and has none."""
    place = site()
    if not place.is_by_port:
        return place.origin(deployment.label)
    return place.origin(deployment.label, deployment.listen_port) if deployment.listen_port else ""


def origins(deployment: Deployment) -> list[str]:
    """Return all addresses of the deployment, those that an administrator gave first; fetch `hosts` with it."""
    place = site()
    own = [place.origin_of(host.name) for host in deployment.hosts.all()]
    return [each for each in (*own, origin(deployment)) if each]


def first_origin(deployment: Deployment) -> str:
    """Return the address to tell users; "" where it has none."""
    return next(iter(origins(deployment)), "")


def tried_origin(deployment: Deployment) -> str:
    """Return the address for the platform's own page: the usual one, which needs no DNS of others, if there is one."""
    return origin(deployment) or first_origin(deployment)


def origin_at(deployment: Deployment, host_name: str) -> str:
    """Return the deployment's address with this host name, its usual one for ""; "" where it has no such address."""
    if not host_name:
        return origin(deployment)
    return site().origin_of(host_name) if deployment.hosts.filter(name=host_name).exists() else ""
