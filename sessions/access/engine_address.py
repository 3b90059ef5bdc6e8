"""The container engine of a host: this machine's own, or another host's through its gateway."""

from functools import lru_cache

from channels.db import database_sync_to_async
from django.conf import settings

from engine.engine import Engine
from engine.gateway import signer
from hostaccess.keys import HostKeyError, gateway_keys
from proxy.authorization.signing import Keys
from resources.addresses import is_gateway_url
from resources.models import Host


class HostUnreachableError(Exception):
    """The host cannot be reached from here; the message is fit for the session's owner."""


def is_here(host: Host | None) -> bool:
    """Return whether the host is this machine, so that its containers are reached directly."""
    return host is not None and host.name == settings.COMPUTE_HOST_NAME


def gateway_of(host: Host | None) -> str:
    """Return the URL of the host's gateway, "" for this machine, which needs none. Raises HostUnreachableError."""
    if is_here(host):
        return ""
    if host is None or not host.gateway_url:
        raise HostUnreachableError("The host of this session cannot be reached from the web server: it has no gateway.")
    if not is_gateway_url(host.gateway_url):
        raise HostUnreachableError("The address of the gateway of this session's host is not http://host:port.")
    return host.gateway_url


def engine_of(host: Host | None) -> Engine:
    """Return the engine of the host, for terminals and logs. Raises HostUnreachableError."""
    gateway = gateway_of(host)
    if not gateway or host is None:
        return Engine(settings.COMPUTE_DOCKER_URL)
    try:
        return engine_behind(gateway, host.name)
    except HostKeyError as error:
        raise HostUnreachableError(str(error)) from error


async def find_engine(host: Host | None) -> Engine:
    """Return the engine of the host, as `engine_of` does; another host's key takes a query, in a thread."""
    if is_here(host):
        return engine_of(host)
    found: Engine = await database_sync_to_async(engine_of)(host)
    return found


def engine_behind(gateway: str, host_name: str) -> Engine:
    """Return the engine of a host by the URL of its gateway."""
    return Engine(gateway, signer(gateway_keys(host_name), host_name))


def signing_keys() -> Keys:
    """Return the keys of COMPUTE_APPS_KEYS, which sign the cookies of apps."""
    return _keys(tuple(settings.COMPUTE_APPS_KEYS))


@lru_cache
def _keys(named: tuple[str, ...]) -> Keys:
    return Keys(named)
