"""What is held and free in a resource group: its GPUs one by one, and its hosts together. The same for every user.

The whole is read again only when the database has logged a change since (`sessions/migrations/0004_change_log.py`), so
many open pages share one reading per process.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import connection

from accounts.limits import Amounts
from resources.amounts.units import CORE_MILLI
from resources.models import HostStatus, ResourceGroup

MAX_AGE_SECONDS: Final = 30.0  # after which it is read again even without a logged change

_VERSION: Final = "SELECT coalesce(max(xid)::text, ''), count(*) FROM compute_change"
_DEVICES: Final = """
    WITH held AS (SELECT gpu_id, sum(milli) AS milli FROM compute_gpushare GROUP BY gpu_id)
    SELECT gpu.id, host.name, gpu.index, gpu.name, gpu.memory, gpu.is_simulated,
           %(ready)s = host.status AND NOT host.is_cordoned, coalesce(held.milli, 0)
    FROM resources_gpu gpu
    JOIN resources_host host ON host.id = gpu.host_id
    LEFT JOIN held ON held.gpu_id = gpu.id
    WHERE host.group_id = %(group)s AND gpu.is_present
    ORDER BY host.name, gpu.index
"""
_HOSTS: Final = """
    SELECT coalesce(sum(host.cpu), 0), coalesce(sum(host.memory), 0), coalesce(sum(leased.cpu), 0),
           coalesce(sum(leased.memory), 0)
    FROM resources_host host
    LEFT JOIN (
        SELECT host_id, sum(cpu * core_milli) AS cpu, sum(memory) AS memory FROM compute_lease GROUP BY host_id
    ) leased ON leased.host_id = host.id
    WHERE host.group_id = %(group)s AND %(ready)s = host.status AND NOT host.is_cordoned
"""


class GpuOccupancy(NamedTuple):
    """A GPU of the group; `held_milli` of its milli-fGPU are held by sessions."""

    id: int
    host: str
    number: int  # on its host
    name: str
    memory_bytes: int
    is_simulated: bool
    is_open: bool  # its host takes sessions
    held_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOccupancy:
    """A reading of one group; `free` is that of the hosts that take sessions, without `sessions`."""

    devices: Mapping[int, GpuOccupancy]  # by their ids, in the order of hosts and numbers
    capacity_milli: int  # of one device
    free: Amounts
    held_milli: int
    free_count: int  # devices that take sessions and of which nothing is held
    partly_free_count: int

    @property
    def free_milli(self) -> int:
        """Milli-fGPU that no session holds, of the devices that take sessions."""
        return self.free.fgpu


Version = tuple[str, int]
_readings: dict[int, tuple[Version, float, int, GroupOccupancy]] = {}
_lock = threading.Lock()


def occupancy_of(group: ResourceGroup, version: Version | None = None) -> GroupOccupancy:
    """Return the state of the group as of `version`, by default now; two queries where something has changed since."""
    version = version or change_version()
    now = time.monotonic()
    known = _readings.get(group.pk)
    if known and known[0] == version and now - known[1] < MAX_AGE_SECONDS and known[2] == group.gpu_capacity:
        return known[3]
    with _lock:  # others wait for the same reading
        known = _readings.get(group.pk)
        if known and known[0] == version and known[1] >= now and known[2] == group.gpu_capacity:
            return known[3]
        reading = _read(group)
        _readings[group.pk] = (version, time.monotonic(), group.gpu_capacity, reading)
        return reading


def change_version() -> Version:
    """Return a value that differs once a change was logged; one short query."""
    with connection.cursor() as cursor:
        cursor.execute(_VERSION)
        return tuple(cursor.fetchone())


def version_text(version: Version) -> str:
    """Return the version as pages carry it."""
    return ".".join(map(str, version))


def _read(group: ResourceGroup) -> GroupOccupancy:
    parameters: dict[str, Any] = {"group": group.pk, "ready": HostStatus.READY.value}
    with connection.cursor() as cursor:
        cursor.execute(_DEVICES, parameters)
        devices = {row[0]: GpuOccupancy(*row) for row in cursor.fetchall()}
        cursor.execute(_HOSTS, parameters)
        cpu, memory, cpu_held, memory_held = map(int, cursor.fetchone())
    capacity = group.gpu_capacity
    is_open = [device for device in devices.values() if device.is_open]
    free_milli = sum(max(0, capacity - device.held_milli) for device in is_open)
    free_cores = max(0, cpu * CORE_MILLI - cpu_held) // group.core_milli  # that sessions may ask for
    free = Amounts(cpu=free_cores, memory=max(0, memory - memory_held), fgpu=free_milli)
    return GroupOccupancy(
        devices=devices,
        capacity_milli=capacity,
        free=free,
        held_milli=sum(device.held_milli for device in devices.values()),
        free_count=sum(not device.held_milli for device in is_open),
        partly_free_count=sum(0 < device.held_milli < capacity for device in is_open),
    )
