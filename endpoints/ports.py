"""The ports that apps may have to themselves: COMPUTE_APP_PORTS, handed out one by one.

Where there is no domain for apps, every app has one in place of a host name, and it is the app's origin. Browsers keep
what an origin has stored, so there a port goes on to another person only when no other is left.
"""

import re
import secrets
import socket
from collections.abc import Iterator
from typing import Final

from django.conf import settings
from django.db import connection
from django.utils import timezone

from sessions.app_addresses import site
from sessions.errors import RejectedError
from sessions.lifecycle import FINAL
from sessions.models import AppPort, Endpoint

PORTS_LOCK: Final = 0x504F5254  # "PORT": the advisory lock under which one transaction at a time hands out ports
HIGHEST_PORT: Final = 65535
NONE_LEFT: Final = (
    "All ports for apps are taken. Close an app that you do not need any more, or ask an administrator for more ports."
)
_RANGE: Final = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")


def pool() -> list[int]:
    """Return the ports that may be handed out. Raises ValueError where COMPUTE_APP_PORTS cannot be read."""
    return list(_read(settings.COMPUTE_APP_PORTS))


def held() -> list[int]:
    """Return the ports on which proxies listen whether or not an app has them.

    By port, browsers send the platform's cookies to each of them: no other program may get hold of one.
    """
    return pool() if site().is_by_port else []


def assign(endpoint: Endpoint, preferred: int | None) -> str:
    """Give the endpoint, in its transaction, the preferred port or another; return what the user should know.

    Without a preference it gets one where it needs one, and keeps the one it has. Raises RejectedError at `app` where
    it needs one and none is left.
    """
    is_needed = site().is_by_port
    is_content = bool(endpoint.listen_port) or not is_needed if preferred is None else endpoint.listen_port == preferred
    if is_content:
        return ""
    ports = pool()
    if not ports and not is_needed:
        return "This platform gives apps no ports of their own; it is reached by its address alone."
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PORTS_LOCK])
    free = _free(ports, endpoint) if is_needed else list(filter(_can_listen, _untaken(ports)))
    if preferred in free:
        chosen = preferred
    elif endpoint.listen_port:
        chosen = endpoint.listen_port
    elif free:
        chosen = secrets.choice(free)
    elif is_needed:
        raise RejectedError({"app": NONE_LEFT})
    else:
        return "All ports for apps are taken; it is reached by its address alone."
    _give(endpoint, chosen)
    if preferred in (None, chosen):
        return ""
    why = "is taken" if preferred in ports else f"is not one of {settings.COMPUTE_APP_PORTS}"
    return f"Port {preferred} {why}; it has port {chosen} instead."


def _give(endpoint: Endpoint, port: int) -> None:
    endpoint.listen_port = port
    endpoint.save(update_fields=["listen_port"])
    AppPort.objects.update_or_create(port=port, defaults={"user": endpoint.session.owner, "at": timezone.now()})


def _untaken(ports: list[int]) -> list[int]:
    """Return the ports that no app has; those of ended sessions are free again."""
    Endpoint.objects.filter(listen_port__isnull=False, session__status__in=FINAL).update(listen_port=None)
    taken = set(Endpoint.objects.filter(listen_port__in=ports).values_list("listen_port", flat=True))
    return [port for port in ports if port not in taken]


def _can_listen(port: int) -> bool:
    """Return whether no program listens there, where the web process would: its page would be taken for the app."""
    host = settings.COMPUTE_HTTP_ADDRESS.rpartition(":")[0].strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free(ports: list[int], endpoint: Endpoint) -> list[int]:
    """Return the ports that the endpoint may have: all that nobody else ever had, or else the one given longest ago."""
    untaken = _untaken(ports)
    others = AppPort.objects.filter(port__in=untaken).exclude(user=endpoint.session.owner).order_by("at")
    used = list(others.values_list("port", flat=True))
    return [port for port in untaken if port not in used] or used[:1]


def _read(written: str) -> Iterator[int]:
    for part in filter(None, (part.strip() for part in written.split(","))):
        match = _RANGE.fullmatch(part)
        ports = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not ports or ports[0] < 1 or ports[-1] > HIGHEST_PORT:
            raise ValueError(f"{part!r} is no range of ports")
        yield from ports
