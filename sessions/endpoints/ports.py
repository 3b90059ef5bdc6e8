"""The ports that apps may have to themselves: COMPUTE_APP_PORTS, handed out one by one."""

import re
import secrets
import socket
from collections.abc import Iterator
from typing import Final

from django.conf import settings
from django.db import connection

from sessions.lifecycle import FINAL
from sessions.models import Endpoint

PORTS_LOCK: Final = 0x504F5254  # "PORT": the advisory lock under which one transaction at a time hands out ports
HIGHEST_PORT: Final = 65535
_RANGE: Final = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")


def pool() -> list[int]:
    """Return the ports that may be handed out. Raises ValueError where COMPUTE_APP_PORTS cannot be read."""
    return list(_read(settings.COMPUTE_APP_PORTS))


def assign(endpoint: Endpoint, preferred: int) -> str:
    """Give the endpoint, in its transaction, this port or another of the pool; return what the user should know."""
    ports = pool()
    if not ports:
        return "This platform gives apps no ports of their own; it is reached by its address alone."
    if endpoint.listen_port == preferred:
        return ""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PORTS_LOCK])
    Endpoint.objects.filter(listen_port__isnull=False, session__status__in=FINAL).update(listen_port=None)
    taken = set(Endpoint.objects.filter(listen_port__in=ports).values_list("listen_port", flat=True))
    chosen = _choose([port for port in ports if port not in taken], preferred, endpoint.listen_port)
    if chosen is None:
        return "All ports for apps are taken; it is reached by its address alone."
    endpoint.listen_port = chosen
    endpoint.save(update_fields=["listen_port"])
    if chosen == preferred:
        return ""
    why = "is taken" if preferred in ports else f"is not one of {settings.COMPUTE_APP_PORTS}"
    return f"Port {preferred} {why}; it has port {chosen} instead."


def _choose(free: list[int], preferred: int, current: int | None) -> int | None:
    """Return the preferred port if it can be had, else the one that the app has already, else another; None: all taken.

    `free` are those that no app has; another program of this machine may have one all the same.
    """
    if preferred in free and _can_listen(preferred):
        return preferred
    if current:
        return current
    others = (port for port in secrets.SystemRandom().sample(free, len(free)) if port != preferred)
    return next(filter(_can_listen, others), None)


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


def _read(written: str) -> Iterator[int]:
    for part in filter(None, (part.strip() for part in written.split(","))):
        match = _RANGE.fullmatch(part)
        ports = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not ports or ports[0] < 1 or ports[-1] > HIGHEST_PORT:
            raise ValueError(f"{part!r} is no range of ports")
        yield from ports
