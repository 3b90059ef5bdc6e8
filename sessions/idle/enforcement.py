"""Warns the owners of idle sessions, and ends what stays idle: run every half minute by the scheduler.

A rule is judged on whole periods of five minutes. Before anything ends, the records after the last of them are looked
at too, and the session's last use under its row's lock. A cluster is idle once all of its members are; the first that
is left stands for all.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Count, Exists, OuterRef, Q, Sum
from django.db.models.functions import Coalesce, Greatest
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import User
from accounts.signing_in.language import language_of
from resources import clock
from resources.amounts.units import span_text
from sessions import notes, notify
from sessions.errors import GENERAL, RejectedError
from sessions.idle import usage_periods
from sessions.idle_rules import (
    PERIOD,
    IdleAction,
    IdleCause,
    Idleness,
    WindowUse,
    contradicts,
    is_unused,
    low_use,
    periods_in,
    start_of_period,
)
from sessions.launching import services
from sessions.lifecycle import Kind, Reason, Status
from sessions.models import (
    ACTIVE_CONVERSIONS,
    Conversion,
    IdleNotice,
    IdleRule,
    Session,
    SessionQuerySet,
    UsagePeriod,
    locked_members,
)
from sessions.parking import services as parking
from translation.english import from_english

logger = logging.getLogger(__name__)

MIN_SNOOZE: Final = timedelta(minutes=1)
MAX_SNOOZE_BY_SUPERADMIN: Final = timedelta(days=7)
STEPS: Final = tuple(timedelta(minutes=minutes) for minutes in (30, 60, 120, 240, 480, 1440))  # offered by the pages


def enforce_idle_rules(now: datetime) -> None:
    """Warn owners of sessions that have become idle, withdraw warnings of those that have not, and end the overdue.

    Idempotent.
    """
    usage_periods.record_periods(now)
    usage_periods.delete_old_records(now)
    notices = {notice.session_id: notice for notice in IdleNotice.objects.select_related("rule", "session")}
    for rule in IdleRule.objects.enabled():
        found = idle_sessions(rule, now)
        due = {pk for pk in found if pk not in notices or _is_due(notices[pk], rule, now)}
        for session_id in due - _at_work(rule, {pk: found[pk] for pk in due}, now):
            if session_id in notices:
                _end(notices[session_id], found[session_id], now)
            else:
                _warn(session_id, rule, found[session_id], now)
                notices[session_id] = IdleNotice(session_id=session_id, rule=rule, ends_at=now + rule.warning)
        for notice in [each for each in notices.values() if each.rule_id == rule.pk and each.session_id not in found]:
            _withdraw(notices.pop(notice.session_id))
    for notice in notices.values():
        if not notice.rule.is_enabled:
            _withdraw(notice)


def sessions_under(rule: IdleRule) -> SessionQuerySet:
    """Return the sessions, of whatever status, to which the rule applies."""
    sessions = Session.objects.order_by()
    if policies := list(rule.policies.values_list("pk", flat=True)):
        sessions = sessions.filter(Q(owner__policy__in=policies) | Q(project__policy__in=policies))
    if projects := list(rule.projects.values_list("pk", flat=True)):
        sessions = sessions.filter(project__in=projects)
    if groups := list(rule.resource_groups.values_list("pk", flat=True)):
        sessions = sessions.filter(resource_group__in=groups)
    return sessions


def idle_sessions(rule: IdleRule, now: datetime) -> dict[str, Idleness]:
    """Return the running sessions that are idle by the rule, by id; seven queries for any number of them.

    Of a cluster all of whose members are, the first.
    """
    converting = Conversion.objects.filter(session=OuterRef("pk"), state__in=ACTIVE_CONVERSIONS)
    running = sessions_under(rule).filter(~Exists(converting), status=Status.RUNNING)
    end = start_of_period(now - usage_periods.SETTLE)
    found = _low_use(rule, running, end) | _unused(rule, running, end, now)
    members = _live_members(found)
    return {pk: idleness for pk, idleness in found.items() if members[pk][0] == pk and found.keys() >= set(members[pk])}


def _live_members(session_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return for each of these sessions the live members of its cluster, by rank; it alone without one.

    One query, where there are any sessions.
    """
    wholes = {pk: [pk] for pk in session_ids}
    clusters: dict[str, list[str]] = {}
    if wholes:
        of_these = Session.objects.filter(pk__in=wholes, cluster__isnull=False).values("cluster")
        for cluster_id, pk in (
            Session.objects.live()
            .exclude(is_elastic=True, host=None)
            .filter(cluster__in=of_these)
            .order_by("rank")
            .values_list("cluster", "pk")
        ):
            clusters.setdefault(cluster_id, []).append(pk)
    return wholes | {pk: members for members in clusters.values() for pk in members if pk in wholes}


def _unused(rule: IdleRule, running: SessionQuerySet, end: datetime, now: datetime) -> dict[str, Idleness]:
    limits, timeout = rule.limits(), rule.idle_timeout
    if timeout is None:
        return {}
    used_at = Greatest("last_activity_at", "started_at")  # a session that was parked has started since
    quiet = running.filter(kind=Kind.INTERACTIVE).annotate(used_at=used_at).filter(used_at__lte=now - timeout)
    last_uses = dict(quiet.values_list("pk", "used_at"))
    uses = _uses(last_uses, end, timeout)
    return {
        pk: Idleness(IdleCause.UNUSED, timeout)
        for pk, use in uses.items()
        if is_unused(limits, use, last_uses[pk], now)
    }


def _low_use(rule: IdleRule, running: SessionQuerySet, end: datetime) -> dict[str, Idleness]:
    limits, window = rule.limits(), rule.low_use_window
    if window is None:
        return {}
    held = dict(running.filter(started_at__lte=end - window).values_list("pk", "fgpu"))
    found = {pk: low_use(limits, use, has_gpu=held[pk] > 0) for pk, use in _uses(held, end, window).items()}
    return {pk: idleness for pk, idleness in found.items() if idleness}


def _uses(session_ids: Iterable[str], end: datetime, window: timedelta) -> dict[str, WindowUse]:
    """Return the sums over the periods of the window that ends at `end`; one query."""
    periods = UsagePeriod.objects.filter(session__in=list(session_ids), at__lt=end)
    periods = periods.filter(at__gte=end - periods_in(window) * PERIOD).order_by()
    sums = periods.values_list("session_id").annotate(
        idle=Count("pk", filter=Q(is_idle=True)),
        cpu_periods=Count("cpu_percent"),
        cpu_percent_sum=Coalesce(Sum("cpu_percent"), 0.0),
        gpu_periods=Count("gpu_percent"),
        gpu_percent_sum=Coalesce(Sum("gpu_percent"), 0.0),
    )
    return {
        pk: WindowUse(idle=idle, cpu_periods=cpus, cpu_percent=cpu, gpu_periods=gpus, gpu_percent=gpu)
        for pk, idle, cpus, cpu, gpus, gpu in sums
    }


def cause_text(idleness: Idleness) -> str:
    """Return in English why the session is idle."""
    span = span_text(idleness.span)
    if idleness.cause == IdleCause.UNUSED:
        return f"Nobody used it for {span}, and it computed nothing."
    cpu, gpu = idleness.cpu_percent, idleness.gpu_percent
    if cpu is None:
        return f"It used {gpu:.0f} % of its GPU share over {span}."
    if gpu is None:
        return f"It used {cpu:.0f} % of its CPU over {span}."
    return f"It used {cpu:.0f} % of its CPU and {gpu:.0f} % of its GPU share over {span}."


def _is_due(notice: IdleNotice, rule: IdleRule, now: datetime) -> bool:
    return notice.rule_id == rule.pk and notice.ends_at <= now


def _at_work(rule: IdleRule, found: Mapping[str, Idleness], now: datetime) -> set[str]:
    """Return those of the sessions of which the records since the last whole period speak against it, or are missing.

    Four queries, where there are any sessions.
    """
    if not found:
        return set()
    since, members = start_of_period(now - usage_periods.SETTLE), _live_members(found)
    latest = usage_periods.latest_uses({each for whole in members.values() for each in whole}, since, now)
    limits = rule.limits()

    def works(pk: str, idleness: Idleness) -> bool:
        return pk not in latest or contradicts(limits, idleness.cause, latest[pk])

    return {pk for pk, idleness in found.items() if any(works(member, idleness) for member in members[pk])}


def _warn(session_id: str, rule: IdleRule, idleness: Idleness, now: datetime) -> None:
    """Store that the session is idle, and tell its owner: on the timeline, by notification and in its terminals."""
    ends_at, cause = now + rule.warning, cause_text(idleness)
    with transaction.atomic():
        members = _locked(session_id)
        if not members:
            return
        session = members[0]
        IdleNotice.objects.create(session=session, rule=rule, cause=cause, warned_at=now, ends_at=ends_at)
        at = f"{ends_at:%Y-%m-%d %H:%M}"
        is_parked = will_be_parked(session, rule)
        end = f"It is parked at {at} UTC unless it is used." if is_parked else f"It ends at {at} UTC unless it is used."
        notes.note(session.main, Reason.IDLE_WARNED, f"{cause} {end}")
        with language_of(session.owner):
            parked = _("%(name)s is idle and is parked in %(span)s. %(cause)s")
            ended = _("%(name)s is idle and ends in %(span)s. %(cause)s")
            text = (parked if is_parked else ended) % {
                "name": session.name,
                "span": span_text(rule.warning),
                "cause": from_english(cause),
            }
        notes.show_in_terminals(session, text, ends_at)
    logger.info("session %s: idle by rule %s, ends at %s", session_id, rule, ends_at)


def _withdraw(notice: IdleNotice) -> None:
    """Forget the warning: the session is used again, has ended, or the rule is off."""
    with transaction.atomic():
        deleted, _rows = IdleNotice.objects.filter(pk=notice.pk, warned_at=notice.warned_at).delete()
        if deleted:
            notify.sessions_changed([(notice.session_id, notice.session.owner_id, notice.session.project_id)])


def _end(notice: IdleNotice, idleness: Idleness, now: datetime) -> None:
    """End or park the session, unless it is used by now, or its owner has just put that off."""
    with transaction.atomic():
        if notice.rule.action == IdleAction.PARK:  # parking locks the owner before the session
            User.objects.select_for_update(no_key=True).get(pk=notice.session.owner_id)
        members = _locked(notice.session_id)
        current = IdleNotice.objects.select_for_update().filter(pk=notice.pk, ends_at__lte=now).first()
        if not members or current is None or any(_was_just_used(member, idleness, now) for member in members):
            return
        _act(members, notice.rule, cause_text(idleness))
        current.delete()
    logger.info("session %s: ended by idle rule %s", notice.session_id, notice.rule)


def _act(members: Sequence[Session], rule: IdleRule, cause: str) -> None:
    """Do with the idle session, or all members of its cluster, what the rule says; what cannot be parked ends."""
    if rule.action == IdleAction.PARK:
        try:
            return parking.park(members[0], Reason.IDLE, cause)
        except RejectedError as error:
            logger.info("session %s: idle, but not parked: %s", members[0].pk, error.errors)
    for member in members:
        services.end(member, Reason.IDLE, cause)


def _locked(session_id: str) -> list[Session]:
    """Return the session, or the live members of its cluster, under the locks of their rows; none unless all run."""
    members = locked_members(session_id, "owner__policy", "project__policy", "host")
    live = [member for member in members if not member.is_final and not member.is_absent]
    return live if all(member.status == Status.RUNNING for member in live) else []


def _was_just_used(session: Session, idleness: Idleness, now: datetime) -> bool:
    used_at = session.last_activity_at
    return idleness.cause == IdleCause.UNUSED and used_at is not None and now - used_at < idleness.span


def notice_of(session: Session) -> IdleNotice | None:
    """Return the warning that the session is idle; None without one. Fetch `idle_notice` with the session."""
    notice: IdleNotice | None = getattr(session, "idle_notice", None)
    return notice if session.status == Status.RUNNING else None


def will_be_parked(session: Session, rule: IdleRule) -> bool:
    """Return whether the rule parks the session, by what is known now; otherwise it ends. See `parking.refusal`."""
    return rule.action == IdleAction.PARK and not parking.refusal(session)


def snooze_allowed(notice: IdleNotice | None, actor: User) -> timedelta:
    """Return by how much `actor` may still put off the end of an idle session; zero where not at all."""
    if notice is None:
        return timedelta(0)
    most = MAX_SNOOZE_BY_SUPERADMIN if actor.is_superuser else notice.rule.max_snooze - notice.snoozed
    return most if most >= MIN_SNOOZE else timedelta(0)


def snooze_offers(notice: IdleNotice | None, actor: User) -> list[timedelta]:
    """Return the lengths to choose from: the STEPS that are allowed, and the most; none where nothing is."""
    most = snooze_allowed(notice, actor)
    steps = [step for step in STEPS if step < most]
    return [*steps, most] if most and not actor.is_superuser else steps


def snooze(session_id: str, by: timedelta, *, actor: User) -> datetime:
    """Put off the end of an idle session by `by` and return the new end.

    Raises RejectedError with a message for `by`, or GENERAL.
    """
    with transaction.atomic():
        rows = IdleNotice.objects.select_for_update(of=("self",)).select_related("rule", "session")
        whole = Q(session=session_id) | Q(session__cluster__members=session_id)
        notice = rows.filter(whole, session__status=Status.RUNNING).first()
        if notice is None:
            raise RejectedError({GENERAL: _("This session is not about to end as idle.")})
        most = snooze_allowed(notice, actor)
        if not most:
            raise RejectedError({GENERAL: _("The rule does not let you put this off; use the session to keep it.")})
        if not MIN_SNOOZE <= by <= most:
            bounds = {"least": span_text(MIN_SNOOZE), "most": span_text(most)}
            raise RejectedError({"by": _("It can be put off by %(least)s to %(most)s.") % bounds})
        notice.ends_at = max(notice.ends_at, clock.now()) + by
        notice.snoozed += by
        with audit.act_for_other(notice.session.owner_id, actor, "snooze", notice):
            notice.save(update_fields=["ends_at", "snoozed"])
        notes.note(notice.session, Reason.SNOOZED, f"Goes on idle for {span_text(by)} longer.", actor=actor)
    return notice.ends_at
