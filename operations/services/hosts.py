"""Host workers and gateways of all hosts: whether they are alive, and a restart of a host worker."""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

from django.db.models import F

from accounts import audit
from accounts.models import User
from resources import clock
from resources.models import Host, HostStatus
from sessions.notify import send_to_host

MAX_HOSTS: Final = 100  # that are shown and asked, those in trouble first
CONNECT_SECONDS: Final = 1.0
ALL_SECONDS: Final = 2.0  # for all gateways together
THREADS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class HostServices:
    """The services of one host."""

    host: str
    status: str  # of HostStatus
    heartbeat_at: datetime | None
    gateway_responds: bool | None  # None where the host has none, or it did not respond in time


def read() -> list[HostServices]:
    """Return the hosts, those in trouble first. Blocks for ALL_SECONDS at most."""
    hosts = list(Host.objects.order_by(F("status").asc(), "name")[:MAX_HOSTS])
    hosts.sort(key=lambda host: host.status == HostStatus.READY)
    found = _responding({host.gateway_url for host in hosts if host.gateway_url})
    return [
        HostServices(
            host=host.name,
            status=host.status,
            heartbeat_at=host.heartbeat_at,
            gateway_responds=found.get(host.gateway_url),
        )
        for host in hosts
    ]


def restart_worker(host: Host, *, actor: User) -> None:
    """Have the host's worker end, whose supervisor starts it again; its sessions run on."""
    audit.record(actor, "restart_service", host, {"service": (None, "host")})
    send_to_host(host.name, "restart_worker", clock.now().timestamp())


def _responding(urls: Iterable[str]) -> dict[str, bool | None]:
    """Return which gateways accept a connection; None for those that are not known in time."""
    pool = ThreadPoolExecutor(THREADS, thread_name_prefix="gateways")
    asked = {url: pool.submit(_accepts, url) for url in urls}
    done, _late = wait(asked.values(), ALL_SECONDS)
    pool.shutdown(wait=False, cancel_futures=True)
    return {url: future.result() if future in done else None for url, future in asked.items()}


def _accepts(url: str) -> bool:
    parts = urlsplit(url)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), CONNECT_SECONDS):
            return True
    except OSError:
        return False
