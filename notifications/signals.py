"""Writes notifications in the transaction of the change that they tell of."""

from datetime import datetime, timedelta
from typing import Any, Final

from django.db.models.signals import m2m_changed, post_delete, post_save
from django.dispatch import receiver

from accounts.models import User
from arrays.models import Array
from arrays.services import array_ended, array_held, cancelled_by
from notifications.announcements import services as announcements
from notifications.kinds import NoticeKind
from notifications.models import Announcement
from notifications.services import tell
from resources import clock
from resources.hosts.elastic_pools import pool_failing
from resources.hosts.health import health_changed
from resources.models import ElasticPool, Host, HostHealth
from sessions.conversion.services import conversion_ended
from sessions.lifecycle import FINAL, Kind, Reason, Result, Status, result_of
from sessions.models import Conversion, ConversionState, SessionEvent

SEEN_WITHIN: Final = timedelta(seconds=10)  # of the launch: whoever launched it still looks
NOTED: Final = {  # reasons of events that change no status
    "PROCESS_OUT_OF_MEMORY": NoticeKind.OUT_OF_MEMORY,
    "IDLE_WARNED": NoticeKind.IDLE,
    "RESIZE_REFUSED": NoticeKind.RESIZE_REFUSED,
}
NOTICES_TO_SUPERADMINS: Final[dict[str, NoticeKind]] = {  # the same
    Reason.GPU_TIME_EXCEEDED: NoticeKind.GPU_OVERUSE,
    Reason.HOOK_BYPASSED: NoticeKind.GPU_OVERUSE,
    Reason.OUTPUT_SLOWED: NoticeKind.OUTPUT_FLOOD,
    Reason.SHARED_LIMIT: NoticeKind.SHARED_LIMIT,
}


@receiver(post_save, sender=SessionEvent)
def _session_has_changed(instance: SessionEvent, created: bool, **kwargs: Any) -> None:
    kind = _kind_of(instance) if created else None
    if created and instance.old_status == instance.new_status and instance.reason in NOTICES_TO_SUPERADMINS:
        _tell_superadmins(instance)
    if kind is None:
        return
    session = instance.session
    is_seen = kind == NoticeKind.STARTED and instance.at - session.created_at < SEEN_WITHIN
    facts = {"name": session.full_name, "reason": instance.reason, "detail": instance.detail}
    facts["device"] = session.resource_group.accelerator_name
    tell(session.owner_id, kind, f"event:{instance.pk}", session=session, facts=facts, is_seen=is_seen)


def _tell_superadmins(event: SessionEvent) -> None:
    """Tell superadmins of a session that takes more of its host than its share and goes on."""
    session = event.session
    facts = {"name": session.full_name, "host": session.host.name if session.host else "", "detail": event.detail}
    for admin in User.objects.filter(is_superuser=True, is_active=True).values_list("pk", flat=True):
        key = f"{event.reason}:{session.pk}:{int(event.at.timestamp())}"
        tell(admin, NOTICES_TO_SUPERADMINS[event.reason], key, facts=facts)


@receiver(conversion_ended)
def _conversion_has_ended(conversion: Conversion, **kwargs: Any) -> None:
    session, is_done = conversion.session, conversion.state == ConversionState.DONE
    kind = NoticeKind.IMAGE_READY if is_done else NoticeKind.IMAGE_FAILED
    facts = {
        "name": session.name,
        "image": f"{conversion.name}:{conversion.tag}",
        "reference": conversion.reference,
        "detail": conversion.problem,
    }
    tell(session.owner_id, kind, f"conversion:{conversion.pk}", session=session, facts=facts)


@receiver(array_ended)
@receiver(array_held)
def _array_has_changed(array: Array, **kwargs: Any) -> None:
    if array.has_ended:
        kind, at = (NoticeKind.ARRAY_FAILED if array.failed else NoticeKind.ARRAY_ENDED), array.ended_at
        if array.reason == cancelled_by(array.owner):
            return  # they need not be told of their own doing
    else:
        kind, at = NoticeKind.ARRAY_HELD, clock.now()
    facts = {"name": array.name, "array": array.pk, "size": array.size, "detail": array.reason, **array.counts}
    tell(array.owner_id, kind, f"array:{array.pk}:{int(at.timestamp()) if at else 0}", facts=facts)


@receiver(health_changed)
def _host_health_has_changed(host: Host, health: HostHealth, **kwargs: Any) -> None:
    kind = NoticeKind.HOST_FAULTY if health.faulty_since else NoticeKind.HOST_BACK
    at = health.faulty_since or health.returned_at or health.host.heartbeat_at
    facts = {"host": host.name, "detail": health.problem}
    for admin in User.objects.filter(is_superuser=True, is_active=True).values_list("pk", flat=True):
        tell(admin, kind, f"host:{host.pk}:{kind}:{int(at.timestamp())}", facts=facts)


@receiver(pool_failing)
def _pool_fails(pool: ElasticPool, since: datetime, problem: str, **kwargs: Any) -> None:
    facts = {"group": pool.group.name, "detail": problem}
    for admin in User.objects.filter(is_superuser=True, is_active=True).values_list("pk", flat=True):
        tell(admin, NoticeKind.POOL_FAILING, f"pool:{pool.pk}:{int(since.timestamp())}", facts=facts)


@receiver((post_save, post_delete), sender=Announcement)
@receiver(m2m_changed, sender=Announcement.resource_groups.through)
def _announcements_have_changed(**kwargs: Any) -> None:
    announcements.changed()


def _kind_of(event: SessionEvent) -> NoticeKind | None:
    """Return what the event is to the session's owner; None for what they need not be told, such as their own doing."""
    if event.old_status == event.new_status:
        return NOTED.get(event.reason) or _kind_of_whole(event)
    if event.session.is_task:
        return None  # its array says how all have ended
    if event.session.kind == Kind.REPLICA:
        return None  # its deployment replaces it, and says what is wrong
    if event.session.cluster_id is not None:
        return None  # what it means for the whole is an event of its own
    if event.new_status == Status.RUNNING:
        return NoticeKind.STARTED
    if event.new_status not in FINAL or event.reason == Reason.USER_REQUEST:
        return None
    result = result_of(event.session.kind, Status(event.new_status), Reason(event.reason))
    has_failed = event.new_status == Status.ERROR or result == Result.FAILURE
    return NoticeKind.FAILED if has_failed else NoticeKind.ENDED


def _kind_of_whole(event: SessionEvent) -> NoticeKind | None:
    """Return what an event is to the owner by which a cluster is noted to run as a whole, or to have ended."""
    if event.reason == Reason.STARTED:
        return NoticeKind.STARTED
    if event.reason != Reason.CLUSTER_ENDED or event.new_status not in FINAL:
        return None
    ends = list(event.session.members.filter(is_elastic=False).values_list("status", "result", "reason"))
    if any(reason == Reason.USER_REQUEST for _, _, reason in ends):
        return None
    own = [end for *end, reason in ends if reason != Reason.CLUSTER_ENDED]
    has_failed = any(status == Status.ERROR or result == Result.FAILURE for status, result in own)
    return NoticeKind.FAILED if has_failed else NoticeKind.ENDED
