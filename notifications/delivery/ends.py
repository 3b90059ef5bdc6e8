"""Tells owners 10 minutes and 1 minute before a session ends by a limit or as idle, and shows it in its terminals.

Owners of parked sessions, which end after days, are told a day before.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Q
from django.utils.translation import gettext as _

from accounts.signing_in.language import language_of
from notifications.delivery.texts import ending_title, idle_title
from notifications.kinds import NoticeKind
from notifications.models import Notification
from notifications.services import tell
from resources import clock
from sessions import notes
from sessions.idle import enforcement as idle
from sessions.lifecycle import Status
from sessions.models import IdleNotice, Session, end_expression
from sessions.parking import services as parking

PARK_WARNING: Final = timedelta(days=1)  # before a parked session ends
WARNINGS: Final = (timedelta(minutes=1), timedelta(minutes=10))  # before the end; the shortest first


def announce_ends() -> int:
    """Tell the owners of sessions that end soon, once for each warning and end; return how many were told. Idempotent.

    An extension moves the end, of which they are told anew. A cluster ends with the first of its members, elastic ones
    aside. Two queries where there is nothing to tell.
    """
    now = clock.now()
    soon = Session.objects.filter(status=Status.RUNNING, is_elastic=False, is_task=False).annotate(end=end_expression())
    soon = soon.filter(Q(end__lte=now + WARNINGS[-1]) | Q(preempt_by__isnull=False), end__gt=now)
    first: dict[str, Session] = {}  # by the id of the session that its owner knows
    for session in soon.select_related("owner__policy", "project__policy", "resource_group", "host").order_by("end"):
        first.setdefault(session.cluster_id or session.pk, session)
    due = {}
    for session in first.values():
        if (end := session.ends_at) and (key := _key(session, end, now)):
            due[key] = session
    known = set(Notification.objects.filter(session__in=first, key__in=due).values_list("key", flat=True))
    return sum(_announce(session, key, now) for key, session in due.items() if key not in known)


def announce_idle_ends() -> int:
    """Tell the owners of idle sessions that end or are parked soon, once for each warning; return how many. Idempotent.

    That a session is idle was told before; who puts its end off is told anew. One query where there is nothing to tell.
    """
    now = clock.now()
    soon = IdleNotice.objects.filter(ends_at__gt=now, ends_at__lte=now + WARNINGS[-1], session__status=Status.RUNNING)
    due = {}
    for notice in soon.select_related("rule", "session__owner__policy", "session__project__policy", "session__host"):
        before = next(each for each in WARNINGS if notice.ends_at - now <= each)
        if notice.warned_at < notice.ends_at - before:
            key = f"idle-ending:{notice.pk}:{int(before.total_seconds())}:{int(notice.ends_at.timestamp())}"
            due[key] = notice
    known = set(Notification.objects.filter(key__in=due).values_list("key", flat=True)) if due else set()
    return sum(_announce_idle(notice, key, now) for key, notice in due.items() if key not in known)


def announce_parked_ends() -> int:
    """Tell the owners of parked sessions that end within a day, once; return how many were told. Idempotent."""
    now = clock.now()
    soon = Session.objects.mains().filter(status=Status.PARKED).annotate(end=parking.retained_until_expression())
    ending = list(soon.filter(end__gt=now, end__lte=now + PARK_WARNING).values_list("pk", "owner_id", "name", "end"))
    due = {f"park-ending:{pk}:{int(end.timestamp())}": (pk, owner, name, end) for pk, owner, name, end in ending}
    known = set(Notification.objects.filter(key__in=due).values_list("key", flat=True))
    return sum(
        tell(
            owner, NoticeKind.PARK_ENDING, key, session=Session(pk=pk), facts={"name": name, "ends_at": end.isoformat()}
        )
        for key, (pk, owner, name, end) in due.items()
        if key not in known
    )


def _key(session: Session, end: datetime, now: datetime) -> str:
    """Return the key of the warning that is due; "" where the session's whole life is shorter than that.

    The first warning of one that is to end for another comes at once.
    """
    whole = session.cluster_id or session.pk
    if _is_preempted(session, end) and end - now > WARNINGS[0]:
        return f"preempted:{whole}:{int(end.timestamp())}"
    for before in WARNINGS:
        if end - now <= before:
            is_worth_it = session.started_at is not None and (
                session.started_at < end - before or _is_preempted(session, end)
            )
            return f"ending:{whole}:{int(before.total_seconds())}:{int(end.timestamp())}" if is_worth_it else ""
    return ""


def _announce_idle(notice: IdleNotice, key: str, now: datetime) -> bool:
    session = notice.session
    if session.host is None:
        return False
    minutes = max(1, round((notice.ends_at - now).total_seconds() / 60))
    is_parked = idle.will_be_parked(session, notice.rule)
    facts = {"name": session.name, "minutes": minutes, "is_parked": is_parked, "detail": notice.cause}
    title = partial(idle_title, session.name, minutes, is_parked=is_parked)
    return _tell_and_show(NoticeKind.IDLE, key, session, facts, title, notice.ends_at)


def _tell_and_show(
    kind: NoticeKind, key: str, session: Session, facts: dict[str, Any], title: Callable[[], str], end: datetime
) -> bool:
    """Tell the owner, and show the title in the session's terminals until the end; return False if told before."""
    with transaction.atomic():
        is_new = tell(session.owner_id, kind, key, session=session.main, facts=facts)
        if is_new:
            with language_of(session.owner):
                notes.show_in_terminals(session, title(), end)
    return is_new


def _is_preempted(session: Session, end: datetime) -> bool:
    """Return whether it ends then because another session needs what it holds."""
    return session.preempt_by is not None and session.preempt_by == end


def _announce(session: Session, key: str, now: datetime) -> bool:
    end = session.ends_at
    if end is None or session.host is None:
        return False
    minutes = max(1, round((end - now).total_seconds() / 60))
    is_preempted = _is_preempted(session, end)
    facts = {"name": session.name, "minutes": minutes, "ends_at": end.isoformat(), "is_preempted": is_preempted}

    def title() -> str:
        text = ending_title(session.name, minutes)
        return _("%(end)s: another session needs what it holds") % {"end": text} if is_preempted else text

    return _tell_and_show(NoticeKind.ENDING, key, session, facts, title, end)
