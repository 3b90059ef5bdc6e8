"""Operations on hosts: register, heartbeat, declare lost or ready, cordon, drain; and readings of their GPUs."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from resources.accelerators.discovery import PROBLEM_LENGTH
from resources.gpus.discovery import Device, Machine
from resources.gpus.tiers import Tier
from resources.hosts import health as host_health
from resources.hosts import kinds
from resources.hosts.frequent import insert_rows
from resources.kick import kick_scheduler
from resources.models import Gpu, GpuReading, Host, HostStatus, ResourceGroup

logger = logging.getLogger(__name__)

HEARTBEAT_SECONDS: Final = 5
REGISTERED: Final = (  # what a host says of itself; all else is the platform's to change
    *("cpu", "memory", "gateway_url", "architecture", "status", "machine_id", "engine_id", "boot_id"),
    *("gpu_topology", "gpu_driver", "cluster_address"),
)
SILENCE: Final = timedelta(seconds=20)  # a host without a heartbeat for this long is LOST


def register_host(
    name: str,
    machine: Machine,
    group_name: str,
    *,
    has_mps: bool = False,
    gateway_url: str = "",
    cluster_address: str = "",
    identity: Mapping[str, str] | None = None,
) -> Host:
    """Store the resources of the host and return it as JOINING: it gets no sessions until it is reconciled.

    A new host joins the group `group_name`, created if needed with the kind of its first real device; a known one
    stays in its group. Devices of another kind than the group's are left out. Idempotent.
    `has_mps` says whether an MPS control daemon runs on it; `gateway_url` is the URL of its gateway, "" without one,
    and `cluster_address` that of the host for the networks of clusters, "" where it can have none.
    `identity` are the fields that bind its name to this machine (`claims`).
    """
    with transaction.atomic():
        host = Host.objects.select_for_update().filter(name=name).first() or _join(name, machine, group_name)
        devices = [device for device in machine.devices if device.kind == host.group.accelerator]
        for problem in kinds.left_out([device.kind for device in machine.devices], host.group):
            logger.warning("host %s: %s", name, problem)
        host.cpu, host.memory, host.gateway_url = machine.cpu, machine.memory, gateway_url
        host.architecture, host.gpu_topology = machine.architecture, machine.topology.as_json()
        host.gpu_driver = machine.driver
        host.cluster_address, host.status = cluster_address, HostStatus.JOINING.value
        for field, value in (identity or {}).items():
            setattr(host, field, value)
        host.save(update_fields=REGISTERED)
        Host.objects.filter(pk=host.pk).update(heartbeat_at=Now())
        host.refresh_from_db(fields=["heartbeat_at"])
        host.gpus.exclude(uuid__in=[device.uuid for device in devices]).update(is_present=False, problem="")
    for device in devices:
        _register_gpu(host, device, _tier(device, uses_mps=has_mps and host.group.use_mps))
    logger.info("host %s: %d cores, %d bytes, %d GPUs", name, machine.cpu, machine.memory, len(devices))
    return host


def withdraw_gpus(host: Host, problems: Mapping[str, str]) -> list[Gpu]:
    """Lend devices to nobody, by their UUIDs and for what reason; return those that were lent before."""
    gone = []
    for gpu in host.gpus.filter(uuid__in=problems):
        problem = problems[gpu.uuid][:PROBLEM_LENGTH]
        if gpu.is_present or gpu.problem != problem:
            gone += [gpu] if gpu.is_present else []
            gpu.is_present, gpu.problem = False, problem
            gpu.save(update_fields=["is_present", "problem"])
    if gone:
        kick_scheduler()
    return gone


def lend_again(host: Host, devices: Sequence[Device]) -> list[Gpu]:
    """Lend devices that were found since the host registered, and return them; those known keep their index."""
    indexes = dict(host.gpus.values_list("uuid", "index"))
    for device in devices:
        index = indexes.setdefault(device.uuid, max(indexes.values(), default=-1) + 1)
        _register_gpu(host, replace(device, index=index), device.tier)
    kick_scheduler()
    return list(host.gpus.filter(uuid__in=[device.uuid for device in devices]))


def heartbeat(host: Host) -> bool:
    """Store the time of a heartbeat by the database's clock, in one query; False means that the name is another's."""
    mine = Host.objects.filter(pk=host.pk, machine_id=host.machine_id, boot_id=host.boot_id)
    return bool(mine.update(heartbeat_at=Now()))


def unready(host: Host) -> QuerySet[Host]:
    """Return the host unless it is READY."""
    return Host.objects.filter(pk=host.pk).exclude(status=HostStatus.READY)


def declare_ready(host: Host) -> bool:
    """Mark the host READY for sessions, after reconciliation; return whether that changed its status."""
    return bool(unready(host).update(status=HostStatus.READY, heartbeat_at=Now(), lost_at=None))


def declare_joining(host: Host) -> bool:
    """Mark a READY host JOINING until it is reconciled again; return whether that changed its status."""
    return bool(Host.objects.filter(pk=host.pk, status=HostStatus.READY).update(status=HostStatus.JOINING))


def declare_lost() -> list[Host]:
    """Mark hosts without a heartbeat for SILENCE as LOST and return those that were not before."""
    lost = []
    for host in Host.objects.filter(heartbeat_at__lt=Now() - SILENCE).exclude(status=HostStatus.LOST):
        silent = Host.objects.filter(pk=host.pk, heartbeat_at=host.heartbeat_at).exclude(status=HostStatus.LOST)
        if silent.update(status=HostStatus.LOST, lost_at=Now()):
            logger.warning("host %s: silent since %s, now LOST", host.name, host.heartbeat_at)
            lost.append(host)
    return lost


def cordon(hosts: QuerySet[Host], *, cordoned: bool) -> int:
    """Cordon or uncordon these hosts; return how many changed. A cordoned host gets no new sessions.

    Uncordoning also ends a drain.
    """
    with transaction.atomic():
        host_health.forget(hosts)
        changed = hosts.exclude(is_cordoned=cordoned).update(is_cordoned=cordoned, cordon_reason="", drain_by=None)
        kick_scheduler()
    return changed


def set_drain(host: Host, *, end_at: datetime | None, reason: str) -> None:
    """Cordon the host, say why, and store when its sessions are to end; None lets them finish."""
    host.is_cordoned, host.cordon_reason, host.drain_by = True, reason, end_at
    with transaction.atomic():
        host_health.forget(Host.objects.filter(pk=host.pk))
        host.save(update_fields=["is_cordoned", "cordon_reason", "drain_by"])
        kick_scheduler()


def record_readings(readings: Sequence[GpuReading]) -> None:
    """Replace the readings of these GPUs; one statement."""
    insert_rows(readings, ["gpu"], ["at", "utilisation", "memory_used", "temperature", "power"])


def _join(name: str, machine: Machine, group_name: str) -> Host:
    first = min(machine.devices, key=lambda device: device.is_simulated, default=None)  # a real one, if there is any
    own = {"accelerator": first.kind} if first else {}
    group, _ = ResourceGroup.objects.get_or_create(name=group_name, defaults=own)
    new = {"group": group, "cpu": machine.cpu, "memory": machine.memory, "heartbeat_at": Now()}
    return Host.objects.select_for_update().get_or_create(name=name, defaults=new)[0]


def _tier(device: Device, *, uses_mps: bool) -> Tier:
    can_use_mps = device.tier is Tier.HOOK and not device.is_simulated
    return Tier.HOOK_MPS if uses_mps and can_use_mps else device.tier


def _register_gpu(host: Host, device: Device, tier: Tier) -> None:
    known = {
        "host": host,
        "index": device.index,
        "name": device.name,
        "memory": device.memory,
        "is_simulated": device.is_simulated,
        "kind": device.kind,
        "tier": tier.value,
        "is_present": True,
        "problem": "",
    }
    try:
        Gpu.objects.update_or_create(uuid=device.uuid, defaults=known)
    except IntegrityError as error:  # a trigger refuses to move a GPU of which sessions hold shares
        logger.warning("host %s: GPU %s is still leased on another host: %s", host.name, device.uuid, error)
