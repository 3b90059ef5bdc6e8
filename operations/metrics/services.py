"""Whether the installation does its work, as metrics for Prometheus: heartbeats, backups, disks, gateways, certificate.

Every scrape finds it anew, in bounded time: gateways are asked at once, and the certificate is read once in an hour.
"""

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509
from django.conf import settings
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from redis.exceptions import RedisError

from folders.models import HostRoot
from operations.backup_files import backups_in
from operations.metrics.families import gauge
from resources import heartbeats
from resources.addresses import is_gateway_url
from resources.heartbeats import HeartbeatName
from resources.models import Host, ResourceGroup

GATEWAY_SECONDS: Final = 1.0
GATEWAYS_AT_ONCE: Final = 100
CERTIFICATE_SECONDS: Final = 3600.0  # for which it is not read anew
CONNECT_SECONDS: Final = 2.0
NEVER: Final = float("inf")


class ServicesCollector(Collector):
    """Collects what the services, disks and the site's certificate say of themselves."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics as they are now. Raises django.db.Error where the database does not respond."""
        yield from _heartbeats()
        yield from _backups(Path(settings.COMPUTE_BACKUP_DIR))
        yield from _disks({"var": Path(settings.COMPUTE_VAR_DIR), "backups": Path(settings.COMPUTE_BACKUP_DIR)})
        yield from _roots()
        yield _gateways()
        yield _certificate()


def service_ages() -> dict[str, float]:
    """Return the seconds since the heartbeat of each service: infinite for one that was never heard of but must run."""
    found = heartbeats.ages(HeartbeatName)
    return dict.fromkeys((HeartbeatName.SCHEDULER, HeartbeatName.BEAT), NEVER) | found


def pass_ages() -> dict[str, float]:
    """Return the seconds since the last scheduling pass over each resource group, infinite without any; by name."""
    groups = {heartbeats.pass_of(pk): name for pk, name in ResourceGroup.objects.values_list("pk", "name")}
    found = heartbeats.ages(groups)
    return {name: found.get(key, NEVER) for key, name in groups.items()}


def _heartbeats() -> Iterator[GaugeMetricFamily]:
    try:
        services, groups = service_ages(), pass_ages()
    except RedisError:  # nothing is known
        services, groups = dict.fromkeys((HeartbeatName.SCHEDULER, HeartbeatName.BEAT), NEVER), {}
    text = "Time since a service last showed that it works"
    yield gauge("service_heartbeat_age_seconds", text, ("service",), (((name,), age) for name, age in services.items()))
    text = "Time since the last scheduling pass over the group"
    yield gauge("scheduler_pass_age_seconds", text, ("group",), (((name,), age) for name, age in groups.items()))


def _backups(folder: Path) -> Iterator[GaugeMetricFamily]:
    newest = next(iter(backups_in(folder)), None)
    stat = newest.stat() if newest else None
    age = time.time() - stat.st_mtime if stat else NEVER if settings.COMPUTE_BACKUP_HOURS else None
    yield gauge("backup_age_seconds", "Age of the newest backup of this machine", (), (((), age),))
    yield gauge("backup_bytes", "Size of the newest backup", (), (((), stat.st_size if stat else None),))


def _disks(folders: Mapping[str, Path]) -> Iterator[GaugeMetricFamily]:
    stats = {name: os.statvfs(path) for name, path in folders.items() if path.exists()}
    free = {name: each.f_bavail / each.f_blocks for name, each in stats.items() if each.f_blocks}
    inodes = {name: each.f_favail / each.f_files for name, each in stats.items() if each.f_files}
    for name, what, values in (("disk", "space", free), ("inodes", "inodes", inodes)):
        text = f"Free part of the {what} of this machine's file systems"
        yield gauge(f"{name}_free_ratio", text, ("folder",), (((folder,), each) for folder, each in values.items()))


def _roots() -> Iterator[GaugeMetricFamily]:
    rows = HostRoot.objects.filter(is_present=True).values_list("root__name", "host__name", "total_bytes", "free_bytes")
    found = [((root, host), free / total) for root, host, total, free in rows if total and free is not None]
    yield gauge("storage_root_free_ratio", "Free part of a storage root", ("root", "host"), found)


def _gateways() -> GaugeMetricFamily:
    hosts = Host.objects.filter(lost_at=None).values_list("name", "gateway_url")
    reached = asyncio.run(_reach({name: url for name, url in hosts if is_gateway_url(url)}))
    text = "Whether the gateway of a host accepts connections"
    return gauge("gateway_up", text, ("host",), (((name,), float(is_up)) for name, is_up in reached.items()))


async def _reach(gateways: Mapping[str, str]) -> dict[str, bool]:
    turns = asyncio.Semaphore(GATEWAYS_AT_ONCE)

    async def accepts(url: str) -> bool:
        address = urlsplit(url)
        async with turns:
            try:
                async with asyncio.timeout(GATEWAY_SECONDS):
                    _, writer = await asyncio.open_connection(address.hostname, address.port)
            except (OSError, ValueError):
                return False
        writer.close()
        return True

    return dict(zip(gateways, await asyncio.gather(*map(accepts, gateways.values())), strict=True))


_certificates: Final[dict[tuple[str, int], tuple[float, datetime | None]]] = {}  # when read, until when valid


def _certificate() -> GaugeMetricFamily:
    address = urlsplit(settings.COMPUTE_PUBLIC_URL)
    ends_at = None
    if address.scheme == "https" and address.hostname:
        where = address.hostname, address.port or 443
        read_at, ends_at = _certificates.get(where, (float("-inf"), None))
        if time.monotonic() - read_at > CERTIFICATE_SECONDS:
            ends_at = _end_of_certificate(*where)
            _certificates[where] = time.monotonic(), ends_at
    left = (ends_at - datetime.now(UTC)).total_seconds() if ends_at else None
    return gauge("certificate_expiry_seconds", "For how long the certificate of the site is valid", (), (((), left),))


def _end_of_certificate(host: str, port: int) -> datetime | None:
    """Return when the certificate that a server presents ends, valid or not; None without one."""
    try:
        pem = ssl.get_server_certificate((host, port), timeout=CONNECT_SECONDS)
    except (OSError, socket.gaierror, ValueError):
        return None
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
