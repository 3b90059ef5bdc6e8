"""System checks of the settings for apps: an invalid value stops the start with a message and a hint."""

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning

from endpoints.routing import ports
from proxy.authorization.signing import Keys
from proxy.site import DEFAULT_PORTS
from sessions.access import app_addresses

WEAKER: Final = (
    "COMPUTE_APPS_DOMAIN is empty: apps are at ports of the platform's own host name, and browsers keep them apart "
    "less well, from each other and from the platform."
)
WEAKER_HINT: Final = "See docs/apps-by-port.md. A wildcard name such as *.apps.gpu.example.org is the cure."


def check_app_ports(**kwargs: Any) -> list[CheckMessage]:
    """Return an error for a malformed COMPUTE_APP_PORTS."""
    try:
        ports.pool()
    except ValueError as error:
        hint = "Write for example 10200-10299; leave it empty for none."
        return [Error(f"COMPUTE_APP_PORTS: {error}.", hint=hint, id="compute.E001")]
    return []


def check_apps_origins(**kwargs: Any) -> list[CheckMessage]:
    """Return a warning if apps share the platform's host name, and errors if they would have no ports or its own."""
    if not app_addresses.site().is_by_port or check_app_ports() or check_public_url():
        return []
    found: list[CheckMessage] = [Warning(WEAKER, hint=WEAKER_HINT, id="compute.W001")]
    if not ports.pool():
        message = "COMPUTE_APPS_DOMAIN and COMPUTE_APP_PORTS are empty: apps have no address."
        found.append(Error(message, hint="Set COMPUTE_APP_PORTS, for example to 10200-10299.", id="compute.E006"))
    if clashing := set(ports.pool()) & _own_ports():
        message = f"COMPUTE_APP_PORTS: the platform itself is at port {min(clashing)}."
        found.append(Error(message, hint="Leave out the platform's own ports.", id="compute.E007"))
    return found


def _own_ports() -> set[int]:
    """Return the ports at which browsers reach the platform, and those on which this machine's processes listen."""
    listening = (settings.COMPUTE_HTTP_ADDRESS, settings.COMPUTE_SSH_ADDRESS, settings.COMPUTE_GATEWAY_ADDRESS)
    written = [address.rpartition(":")[2] for address in listening]
    site = urlsplit(settings.COMPUTE_PUBLIC_URL)
    return {site.port or DEFAULT_PORTS[site.scheme], *(int(port) for port in written if port.isdecimal())}


def check_networks(**kwargs: Any) -> list[CheckMessage]:
    """Return an error for COMPUTE_SESSION_SUBNETS and COMPUTE_TRUSTED_PROXIES if they contain an invalid network."""
    hint = "Write networks such as 172.16.0.0/12, separated by commas."
    errors: list[CheckMessage] = []
    for name, code in (("COMPUTE_SESSION_SUBNETS", "compute.E002"), ("COMPUTE_TRUSTED_PROXIES", "compute.E005")):
        try:
            for written in getattr(settings, name):
                ipaddress.ip_network(written)
        except ValueError as error:
            errors.append(Error(f"{name}: {error}.", hint=hint, id=code))
    return errors


def check_apps_keys(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_APPS_KEYS contains no valid keys, where browsers are served."""
    if settings.COMPUTE_HOST_KEY:
        return []  # a host that has joined serves no browsers
    try:
        Keys(settings.COMPUTE_APPS_KEYS)
    except ValueError as error:
        hint = "Write for example 2026a:<32 random characters>; leave it empty to use SECRET_KEY."
        return [Error(f"COMPUTE_APPS_KEYS: {error}.", hint=hint, id="compute.E003")]
    return []


def check_public_url(**kwargs: Any) -> list[CheckMessage]:
    """Return an error if COMPUTE_PUBLIC_URL is not an origin, or its scheme contradicts COMPUTE_HTTPS."""
    try:
        parts = urlsplit(settings.COMPUTE_PUBLIC_URL)
        is_origin = bool(parts.hostname) and (parts.port or 1) > 0 and parts.path in ("", "/") and not parts.query
    except ValueError:
        is_origin = False
    schemes = ("https",) if settings.COMPUTE_HTTPS else ("http", "https")
    if is_origin and parts.scheme in schemes:
        return []
    message = f"COMPUTE_PUBLIC_URL: {settings.COMPUTE_PUBLIC_URL!r} is no address at which browsers reach this site."
    hint = "Write for example https://gpu.example.org, without a path; with COMPUTE_HTTPS it begins with https."
    return [Error(message, hint=hint, id="compute.E004")]


CHECKS: Final = (check_app_ports, check_apps_origins, check_networks, check_apps_keys, check_public_url)
