"""Hosts that fail to start sessions: counted, cordoned after three failures in a row, probed, put back into service.

The host's worker makes the probes (`hostworker/agent/host_probe.py`). A cordon by an administrator is not touched.
"""

import logging
from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.dispatch import Signal

from resources import clock
from resources.kick import kick_scheduler
from resources.models import Host, HostHealth

logger = logging.getLogger(__name__)

MAX_FAILURES: Final = 3  # in a row; with so many the host is cordoned
FIRST_PAUSE: Final = timedelta(seconds=30)  # before the first probe
MAX_PAUSE: Final = timedelta(hours=1)  # between two probes
health_changed: Final = Signal()  # with `host` and `health`, in the transaction that cordoned it or put it back


def note_failure(host: Host, problem: str, *, has_gpu: bool) -> bool:
    """Count a start that failed by the host's fault; return whether that cordoned the host. In a transaction."""
    HostHealth.objects.bulk_create([HostHealth(host=host)], ignore_conflicts=True)
    health = HostHealth.objects.select_for_update().get(host=host)
    counter = "gpu_failures" if has_gpu else "failures"
    setattr(health, counter, getattr(health, counter) + 1)
    health.problem = problem[:300]
    is_too_often = getattr(health, counter) >= MAX_FAILURES and health.faulty_since is None
    text = f"{MAX_FAILURES} sessions in a row could not be started."
    free = Host.objects.filter(pk=host.pk, is_cordoned=False)
    if is_too_often and free.update(is_cordoned=True, cordon_reason=f"{text} {problem}"[:200]):
        now = clock.now()
        was_well = health.returned_at is None or now - health.returned_at > MAX_PAUSE
        health.probe_pause = FIRST_PAUSE if was_well else min(health.probe_pause * 2, MAX_PAUSE)
        health.faulty_since, health.probe_at = now, now + health.probe_pause
        logger.error("host %s: cordoned, probed from %s on: %s", host.name, health.probe_at, problem)
    health.save()
    if health.probe_at and is_too_often:
        kick_scheduler()
        health_changed.send(HostHealth, host=host, health=health)
        return True
    return False


def note_start(host_id: int | None, *, has_gpu: bool) -> None:
    """Note that the host has started a session: no failure before it is in a row with the next. One query."""
    failed = Q(gpu_failures__gt=0) | Q(failures__gt=0) if has_gpu else Q(failures__gt=0)
    reset = {"failures": 0, "gpu_failures": 0} if has_gpu else {"failures": 0}
    HostHealth.objects.filter(failed, host=host_id, faulty_since=None).update(**reset)


def due_probes(host: Host) -> QuerySet[HostHealth]:
    """Return the row of the host if it is to be probed now."""
    return HostHealth.objects.filter(host=host, probe_at__lte=Now())


def note_probe(host: Host, problem: str) -> None:
    """Put the host back into service where the probe found no problem (""), else set the time of the next probe.

    The pause doubles with each probe that fails, and where the host is cordoned again within MAX_PAUSE of its return.
    Does nothing where an administrator has decided meanwhile.
    """
    now = clock.now()
    with transaction.atomic():
        health = HostHealth.objects.select_for_update().filter(host=host, faulty_since__isnull=False).first()
        if health is None:
            return
        if problem:
            health.probe_pause = min(health.probe_pause * 2, MAX_PAUSE)
            health.problem, health.probe_at = problem[:300], now + health.probe_pause
            logger.warning("host %s: stays cordoned: %s", host.name, problem)
            health.save()
            return
        health.failures = health.gpu_failures = 0
        health.problem, health.faulty_since, health.probe_at, health.returned_at = "", None, None, now
        health.save()
        Host.objects.filter(pk=host.pk).update(is_cordoned=False, cordon_reason="")
        kick_scheduler()
        health_changed.send(HostHealth, host=host, health=health)
    logger.warning("host %s: back in service", host.name)


def forget(hosts: QuerySet[Host]) -> None:
    """Forget failures and probes of these hosts, as an administrator decides."""
    HostHealth.objects.filter(host__in=hosts).delete()
