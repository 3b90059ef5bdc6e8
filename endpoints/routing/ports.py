"""Assigns ports of the pool COMPUTE_APP_PORTS to apps, and to deployments where apps are told apart by port.

Without a domain for apps, the port makes the app's origin. Browsers keep the data of an origin, so a port that another
user's app had is assigned only when no other is free.
"""

import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from django.conf import settings
from django.db import connection, transaction
from django.utils import timezone

from accounts.models import User
from deployments import events
from deployments.models import Deployment
from sessions.access.app_addresses import site
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import FINAL
from sessions.models import AppPort, Endpoint

PORTS_LOCK: Final = 0x504F5254  # "PORT": key of the advisory lock that serializes the assignment of ports
MAX_PORT: Final = 65535
NONE_LEFT: Final = (
    "All ports for apps are taken. Close an app that you do not need any more, or ask an administrator for more ports."
)
OWNER_SHARE: Final = 10  # one owner's deployments hold a tenth of the pool at most: each keeps its port until it ends
_RANGE: Final = re.compile("([0-9]{1,5})(?:-([0-9]{1,5}))?")


def pool() -> list[int]:
    """Return the ports of the pool. Raises ValueError for a malformed COMPUTE_APP_PORTS."""
    return list(_read(settings.COMPUTE_APP_PORTS))


def held() -> list[int]:
    """Return the ports on which proxies listen even while no app has them: by port, all of the pool.

    Browsers send the platform's cookies to all ports of its host name, so no other program may listen on one.
    """
    return pool() if site().is_by_port else []


def assign(endpoint: Endpoint, preferred: int | None) -> str:
    """Assign the endpoint the preferred port or another, in the caller's transaction; return a note for the user.

    Without a preference it gets a port only if it needs one, and keeps the one it has. Raises RejectedError at
    `app` where it needs one and none is left.
    """
    is_needed = site().is_by_port
    is_satisfied = (
        bool(endpoint.listen_port) or not is_needed if preferred is None else endpoint.listen_port == preferred
    )
    if is_satisfied:
        return ""
    ports = pool()
    if not ports and not is_needed:
        return "This platform gives apps no ports of their own; it is reached by its address alone."
    _lock()
    free = _free(ports, endpoint.session.owner) if is_needed else list(filter(_can_listen, _untaken(ports)))
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
    endpoint.listen_port = chosen
    endpoint.save(update_fields=["listen_port"])
    _note(chosen, endpoint.session.owner)
    if preferred in (None, chosen):
        return ""
    reason = "is taken" if preferred in ports else f"is not one of {settings.COMPUTE_APP_PORTS}"
    return f"Port {preferred} {reason}; it has port {chosen} instead."


def assign_to_deployment(deployment: Deployment) -> None:
    """Assign the deployment a port until it ends, if it needs one and has none, in the caller's transaction.

    Raises RejectedError where none is left, or its owner has as many as one may.
    """
    if not site().is_by_port or deployment.listen_port or deployment.ended_at is not None:
        return
    _lock()
    ports = pool()
    most = max(1, len(ports) // OWNER_SHARE)
    if Deployment.objects.filter(owner=deployment.owner, listen_port__in=ports).count() >= most:
        raise RejectedError(
            {GENERAL: f"The deployments of one owner hold at most {most} of the ports for apps; end one first."}
        )
    free = _free(ports, deployment.owner)
    if not free:
        raise RejectedError({GENERAL: NONE_LEFT})
    deployment.listen_port = secrets.choice(free)
    live = Deployment.objects.live().filter(pk=deployment.pk, listen_port=None)
    if live.update(listen_port=deployment.listen_port):
        _note(deployment.listen_port, deployment.owner)


def assign_to_deployments() -> None:
    """Assign ports to deployments that need one and have none, while any are left: of a time with a domain, perhaps."""
    if not site().is_by_port:
        return
    for deployment in Deployment.objects.live().filter(listen_port=None).select_related("owner").order_by("created_at"):
        with suppress(RejectedError), transaction.atomic():  # the next may have another owner
            assign_to_deployment(deployment)
            events.changed(deployment.pk)


def _lock() -> None:
    """Have others who assign a port wait for the end of the caller's transaction."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PORTS_LOCK])


def _note(port: int, user: User) -> None:
    """Note whose pages a port has last shown."""
    AppPort.objects.update_or_create(port=port, defaults={"user": user, "at": timezone.now()})


def _untaken(ports: list[int]) -> list[int]:
    """Return the ports that no app and no deployment has, after releasing those of ended sessions."""
    Endpoint.objects.filter(listen_port__isnull=False, session__status__in=FINAL).update(listen_port=None)
    holders = (Endpoint.objects.filter(listen_port__in=ports), Deployment.objects.filter(listen_port__in=ports))
    taken = {port for rows in holders for port in rows.values_list("listen_port", flat=True)}
    return [port for port in ports if port not in taken]


def _can_listen(port: int) -> bool:
    """Return whether no other program listens on the port: its pages would pass for the app's."""
    host = settings.COMPUTE_HTTP_ADDRESS.rpartition(":")[0].strip("[]")
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _free(ports: list[int], user: User) -> list[int]:
    """Return the candidates for an app of the user: free ports that no other had, else the least recently assigned."""
    untaken = _untaken(ports)
    others = AppPort.objects.filter(port__in=untaken).exclude(user=user).order_by("at")
    used = list(others.values_list("port", flat=True))
    return [port for port in untaken if port not in used] or used[:1]


def _read(written: str) -> Iterator[int]:
    for part in filter(None, (part.strip() for part in written.split(","))):
        match = _RANGE.fullmatch(part)
        ports = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not ports or ports[0] < 1 or ports[-1] > MAX_PORT:
            raise ValueError(f"{part!r} is no range of ports")
        yield from ports
