"""The deadlines of every state, so that no session stays in one for ever: run every few seconds by the scheduler."""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import DurationField, ExpressionWrapper, F, Max, Q
from django.db.models.functions import Greatest, Now

from resources import clock
from resources.hosts import services as hosts
from resources.kick import kick_scheduler
from resources.models import Host, HostStatus, ResourceGroup
from sessions.clusters import settling
from sessions.conversion import services as conversions
from sessions.launching import services
from sessions.launching.dependencies import end_text
from sessions.lifecycle import HOSTED, IN_CONTAINER, DependencyKind, Reason, Status
from sessions.models import (
    ACTIVE_CONVERSIONS,
    Conversion,
    ConversionState,
    Dependency,
    Session,
    SessionQuerySet,
    StaleSessionError,
    clock_expression,
    met_at,
)
from sessions.parking import services as parking
from sessions.projects import services as projects
from sessions.requeueing import cluster_restarts, host_faults, preemption
from sessions.resizing import services as resizing

logger = logging.getLogger(__name__)

CLAIM_DEADLINE: Final = timedelta(seconds=30)
CONVERSION_DEADLINE: Final = timedelta(minutes=30)  # until its host begins, after those that were asked for before
PREPARE_DEADLINE: Final = timedelta(minutes=31)  # 30 for the pull, 1 for the start
DRAINED: Final = "Its host was taken out of service."
PARKED_LONG: Final = "It was parked for as long as its owner's policy allows."
HOST_RETURNED: Final = "Its host was made for sessions that run, and is not kept any longer for parked ones."
WAITED_IN_ONE: Final = "It waited for longer than its resource group allows."
WAITED_IN_SEVERAL: Final = "It waited for longer than its resource groups allow."


def enforce_deadlines() -> None:
    """Declare silent hosts lost, and end or requeue sessions that exceeded the deadline of their state. Idempotent."""
    if hosts.declare_lost():
        kick_scheduler()
    settling.settle_all()
    requeue_unclaimed()
    end_unprepared()
    end_on_lost_hosts()
    end_expired()
    end_over_limit()
    end_on_drained_hosts()
    cancel_timed_out()
    end_long_parked()
    cancel_dependents()
    projects.cancel_of_former_members()
    fail_stranded_conversions()
    resizing.give_up_late(clock.now())


def requeue_unclaimed() -> None:
    """Requeue sessions that their host did not claim in time; they keep their place in the queue."""
    late = Session.objects.filter(status=Status.SCHEDULED, status_at__lt=Now() - CLAIM_DEADLINE)
    on_lost_host = Session.objects.filter(status=Status.SCHEDULED, host__status=HostStatus.LOST)
    for session in (late | on_lost_host).select_related("host"):
        detail = f"Host {session.host} did not answer; waiting for another."
        fields = {"host_id": None, "avoided_hosts": host_faults.avoiding(session, session.host_id), "start_by": None}
        _move(session, Status.PENDING, Reason.CLAIM_TIMEOUT, detail, fields)


def end_unprepared() -> None:
    """Requeue sessions that did not start within the deadline; their host removes what it had created."""
    late = Session.objects.filter(status=Status.PREPARING, status_at__lt=Now() - PREPARE_DEADLINE)
    for session in late.select_related("host", "image"):
        try:
            host_faults.note_failed_start(session, Reason.START_TIMEOUT, "It did not start within half an hour.")
        except StaleSessionError:
            logger.info("session %s: moved on before its deadline was enforced", session.pk)


def end_on_lost_hosts() -> None:
    """End sessions whose host has been silent for longer than its group's grace period, and free their leases.

    Those that it had not started yet return to the queue.
    """
    overdue = Session.objects.filter(
        status__in=IN_CONTAINER,
        host__status=HostStatus.LOST,
        host__lost_at__lt=Now() - F("host__group__host_loss_grace"),
    )
    for host_id in set(overdue.filter(status=Status.PREPARING).values_list("host", flat=True)):
        host_faults.requeue_prepared(Host.objects.get(pk=host_id), "It did not come back.")
    for session in overdue.select_related("host", "cluster"):
        if session.status == Status.TERMINATING and session.is_parking:  # it saves the container when it is back
            _move(session, Status.PARKED, Reason.PARKED, f"Parked, but host {session.host} is unreachable.")
            continue
        returns = session.status == Status.TERMINATING and session.reason in preemption.RETURNING
        target = Status.TERMINATED if session.status == Status.TERMINATING else Status.ERROR
        if returns:
            _conclude(session)
        elif session.status == Status.RUNNING:
            _fail(session, f"Host {session.host} did not come back.")
        else:
            _move(session, target, Reason.HOST_LOST, f"Host {session.host} did not come back.")


def end_expired() -> None:
    """End sessions that have reached the lifetime limit of their owner's policy, or of their project's or group's."""
    details = {
        "owner": "It reached the maximum lifetime of its owner's policy.",
        "project": "It reached the maximum lifetime of its project's policy.",
    }
    for whose, detail in details.items():
        for session in _past(F(f"{whose}__policy__max_lifetime")).select_related("host"):
            services.end(session, Reason.LIFETIME, detail)
    for session in _past(F("resource_group__max_lifetime")).select_related("host"):
        services.end(session, Reason.LIFETIME, "It reached the maximum lifetime of its resource group.")


def end_over_limit() -> None:
    """End sessions that have reached the time limit that their owner set."""
    for session in _past(F("time_limit")).select_related("host"):
        detail = "It reached its time limit." if session.started_at else "Its start took longer than its time limit."
        services.end(session, Reason.TIME_LIMIT, detail)


def _past(limit: F) -> SessionQuerySet:
    """Return the sessions that are past a limit on how long they run, whether they have started yet or not."""
    begun = Session.objects.filter(status__in=(Status.PREPARING, Status.RUNNING)).annotate(clock=clock_expression())
    return begun.filter(clock__lt=Now() - limit - F("extension"))


def end_on_drained_hosts() -> None:
    """End sessions on hosts that are to be free of them by now; elastic members of clusters wait for another."""
    late = Session.objects.filter(status__in=HOSTED, host__drain_by__lte=Now()).exclude(status=Status.TERMINATING)
    preemption.return_elastic(late.filter(is_elastic=True).select_related("host"), DRAINED)
    for session in late.filter(is_elastic=False).select_related("host"):
        services.end(session, Reason.HOST_DRAINED, DRAINED)


def cancel_timed_out() -> None:
    """Cancel sessions that have waited for resources for longer than their group allows; the first of a cluster's.

    What returned to the queue counts from then: it did not wait while a host had it.
    """
    limits = {group.pk: group.pending_timeout for group in ResourceGroup.objects.all() if group.pending_timeout}
    in_several = Q(group_choices__contained_by=list(limits)) & ~Q(group_choices=[])
    waiting = Session.objects.mains().filter(Q(group_choices=[], resource_group__in=limits) | in_several)
    waiting = waiting.filter(status=Status.PENDING).exclude(reason__in=(Reason.DEPENDENCY, Reason.START_TIME))
    begun = Greatest("status_at", "not_before", Max(met_at("dependencies__")))
    span = ExpressionWrapper(Now() - begun, output_field=DurationField())
    waited = dict(waiting.annotate(span=span).values_list("pk", "span"))
    for session in waiting.filter(pk__in=waited):
        groups = session.group_choices or [session.resource_group_id]
        if waited[session.pk] <= max(limits[group_id] for group_id in groups):
            continue
        if session.parked_attempt:
            _return_parked(session)
        else:
            services.end(session, Reason.PENDING_TIMEOUT, WAITED_IN_ONE if len(groups) == 1 else WAITED_IN_SEVERAL)


def _return_parked(session: Session) -> None:
    try:
        detail = "It waited for longer than its resource group allows; parked as before."
        parking.return_parked(session, Reason.PENDING_TIMEOUT, detail)
    except StaleSessionError:
        logger.info("session %s: moved on before its deadline was enforced", session.pk)


def end_long_parked() -> None:
    """End sessions that have been parked for longer than their owner's policy allows; their host removes the files.

    So those that would keep a host that was made for sessions, which costs, or whose host is taken back.
    """
    parked = Session.objects.filter(status=Status.PARKED)
    ends = parked.annotate(end=parking.retained_until_expression(), policy_end=parking.policy_end_expression())
    session: Any  # with both
    for session in ends.filter(end__lt=Now()):
        detail = PARKED_LONG if session.end == session.policy_end else HOST_RETURNED
        services.end(session, Reason.PARK_TIMEOUT, detail)


def cancel_dependents() -> None:
    """Cancel waiting sessions for which something they wait for can never come, and those that it concerns in turn."""
    hopeless = Dependency.objects.impossible().filter(from_session__status=Status.PENDING)
    while found := list(hopeless.select_related("from_session", "to_session", "to_array")):
        for dependency in found:
            detail = end_text(dependency.target.name, DependencyKind(dependency.kind))
            services.end(dependency.from_session, Reason.DEPENDENCY_FAILED, detail)


def fail_stranded_conversions() -> None:
    """Give up conversions whose host was silent for too long, or has not begun one in time."""
    active = Conversion.objects.filter(state__in=ACTIVE_CONVERSIONS).select_related("session", "host")
    on_lost_host = active.filter(
        host__status=HostStatus.LOST, host__lost_at__lt=Now() - F("host__group__host_loss_grace")
    )
    for conversion in on_lost_host:
        conversions.fail(conversion, f"Host {conversion.host} did not come back.")
    for conversion in active.filter(state=ConversionState.QUEUED, created_at__lt=Now() - CONVERSION_DEADLINE):
        conversions.fail(conversion, f"Its host {conversion.host} has not begun in time.")


def _move(
    session: Session, target: Status, reason: Reason, detail: str, fields: Mapping[str, object] | None = None
) -> None:
    try:
        with transaction.atomic():
            session.move_to(target, reason, detail, fields=fields)
            kick_scheduler()
    except StaleSessionError:
        logger.info("session %s: moved on before its deadline was enforced", session.pk)


def _fail(session: Session, detail: str) -> None:
    """End a session whose host is lost, or return it to the queue with its cluster."""
    try:
        with transaction.atomic():
            cluster_restarts.fail(session, Reason.HOST_LOST, detail)
            kick_scheduler()
    except StaleSessionError:
        logger.info("session %s: moved on before its deadline was enforced", session.pk)


def _conclude(session: Session) -> None:
    """End a session that was ended for another, or return it to the queue, although its host did not confirm it."""
    try:
        with transaction.atomic():
            preemption.conclude(session)
            kick_scheduler()
    except StaleSessionError:
        logger.info("session %s: moved on before its deadline was enforced", session.pk)
