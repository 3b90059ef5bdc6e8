"""Whether the installation does its work, as metrics for Prometheus: heartbeats, backups, disks, gateways, certificate.

Every scrape finds it anew, in bounded time: file systems, gateways and the certificate are asked at once, and one that
hangs holds up no other. The certificate is read once in an hour.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
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
from operations.health.ages import NEVER, pass_ages, service_ages
from operations.health.checks import Probe
from operations.metrics.families import gauge
from resources.addresses import is_gateway_url
from resources.heartbeats import HeartbeatName
from resources.models import Host

GATEWAY_SECONDS: Final = 1.0
GATEWAYS_AT_ONCE: Final = 500
CERTIFICATE_SECONDS: Final = 3600.0  # for which it is not read anew
CONNECT_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class FolderReport:
    """A file system with its newest backup, as a folder shows them; without what it does not tell."""

    space_free: float | None = None
    inodes_free: float | None = None
    backup: os.stat_result | None = None


class ServicesCollector(Collector):
    """Collects what the services, disks and the site's certificate say of themselves."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the metrics as they are now. Raises django.db.Error where the database does not respond."""
        yield from _heartbeats()
        yield from _roots()
        hosts = Host.objects.filter(lost_at=None).values_list("name", "gateway_url")
        gateways = {name: url for name, url in hosts if is_gateway_url(url)}
        folders = {"var": settings.COMPUTE_VAR_DIR, "backups": settings.COMPUTE_BACKUP_DIR}
        reports, reached, certificate_end = _found(folders, gateways)
        yield from _backups(reports["backups"].backup)
        yield from _disks(reports)
        text = "Whether the gateway of a host accepts connections"
        yield gauge("gateway_up", text, ("host",), (((name,), float(is_up)) for name, is_up in reached.items()))
        left = (certificate_end - datetime.now(UTC)).total_seconds() if certificate_end else None
        text = "For how long the certificate of the site is valid"
        yield gauge("certificate_expiry_seconds", text, (), (((), left),))


def _heartbeats() -> Iterator[GaugeMetricFamily]:
    try:
        services, groups = service_ages(), pass_ages()
    except RedisError:  # nothing is known
        services, groups = dict.fromkeys((HeartbeatName.SCHEDULER, HeartbeatName.BEAT), NEVER), {}
    text = "Time since a service last showed that it works"
    yield gauge("service_heartbeat_age_seconds", text, ("service",), (((name,), age) for name, age in services.items()))
    text = "Time since the last scheduling pass over the group"
    yield gauge("scheduler_pass_age_seconds", text, ("group",), (((name,), age) for name, age in groups.items()))


def _backups(newest: os.stat_result | None) -> Iterator[GaugeMetricFamily]:
    age = time.time() - newest.st_mtime if newest else NEVER if settings.COMPUTE_BACKUP_HOURS else None
    yield gauge("backup_age_seconds", "Age of the newest backup of this machine", (), (((), age),))
    yield gauge("backup_bytes", "Size of the newest backup", (), (((), newest.st_size if newest else None),))


def _disks(reports: Mapping[str, FolderReport]) -> Iterator[GaugeMetricFamily]:
    free = {name: report.space_free for name, report in reports.items()}
    inodes = {name: report.inodes_free for name, report in reports.items()}
    for name, what, values in (("disk", "space", free), ("inodes", "inodes", inodes)):
        text = f"Free part of the {what} of this machine's file systems"
        yield gauge(f"{name}_free_ratio", text, ("folder",), (((folder,), each) for folder, each in values.items()))


def _roots() -> Iterator[GaugeMetricFamily]:
    rows = HostRoot.objects.filter(is_present=True).values_list("root__name", "host__name", "total_bytes", "free_bytes")
    found = [((root, host), free / total) for root, host, total, free in rows if total and free is not None]
    yield gauge("storage_root_free_ratio", "Free part of a storage root", ("root", "host"), found)


def _found(
    folders: Mapping[str, str], gateways: Mapping[str, str]
) -> tuple[dict[str, FolderReport], dict[str, bool], datetime | None]:
    """Return what folders, gateways and the certificate tell, all asked at once."""

    async def ask() -> tuple[list[FolderReport], dict[str, bool], datetime | None]:
        reports = asyncio.gather(*(_folder_probe(path).result() for path in folders.values()))
        return await asyncio.gather(reports, _reach(gateways), _certificate_probe(settings.COMPUTE_PUBLIC_URL).result())

    loop = asyncio.new_event_loop()
    try:
        found, reached, certificate_end = loop.run_until_complete(ask())
    finally:
        loop.close()  # asyncio.run would wait for a name server that hangs
    return dict(zip(folders, found, strict=True)), reached, certificate_end


@cache
def _folder_probe(path: str) -> Probe[FolderReport]:
    return Probe(lambda: _report_of(Path(path)), FolderReport(), max_age_seconds=0.0)


def _report_of(folder: Path) -> FolderReport:
    if not folder.exists():
        return FolderReport()
    stat = os.statvfs(folder)
    newest = next(iter(backups_in(folder)), None)
    return FolderReport(
        stat.f_bavail / stat.f_blocks if stat.f_blocks else None,
        stat.f_favail / stat.f_files if stat.f_files else None,
        newest.stat() if newest else None,
    )


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


@cache
def _certificate_probe(url: str) -> Probe[datetime | None]:
    return Probe(lambda: _end_of_certificate(url), None, max_age_seconds=CERTIFICATE_SECONDS)


def _end_of_certificate(url: str) -> datetime | None:
    """Return when the certificate that the server of an address presents ends, valid or not; None without one."""
    address = urlsplit(url)
    if address.scheme != "https" or not address.hostname:
        return None
    try:
        pem = ssl.get_server_certificate((address.hostname, address.port or 443), timeout=CONNECT_SECONDS)
    except (OSError, ValueError):
        return None
    return x509.load_pem_x509_certificate(pem.encode()).not_valid_after_utc
