"""Parking: a session's container is saved on its host and what it held is free; resumed, it goes on from there.

RUNNING -> TERMINATING with `is_parking`, during which it holds its lease until the container has stopped, -> PARKED ->
PENDING, bound to its host, -> RUNNING. The host's side is hostworker/containers/parking.py.
"""

from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import F
from django.db.models.expressions import Combinable
from django.db.models.functions import Least
from django.utils.translation import gettext as _

from accounts import audit, limits
from accounts.limits import Amounts
from accounts.models import Project, User
from accounts.policies import least
from resources import clock
from resources.kick import kick_scheduler
from resources.models import HostStatus
from sessions import notify
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Kind, Reason, Status
from sessions.limits import policy_checks
from sessions.models import (
    ACTIVE_CONVERSIONS,
    COUNTS_AS_PARKED,
    Endpoint,
    EndpointState,
    Session,
    SessionQuerySet,
    StaleSessionError,
)
from translation.english import from_english

MAX_PARKS: Final = 40  # of one session: each is a layer of its image, of which there can be 127
PARKED_BY_OWNER: Final = "Parked by its owner: its files are kept, and what it held is free."
READ_AGAIN: Final = "INSERT INTO compute_change (sessions) VALUES (NULL)"  # by schedulers: a host offers something new


def parked_of(owner: User) -> SessionQuerySet:
    """Return the owner's sessions that count against `max_parked`."""
    return Session.objects.filter(COUNTS_AS_PARKED, owner=owner)


def is_offered(session: Session) -> bool:
    """Return whether pages offer to park the session; `refusal` then says whether it can be."""
    is_waiting_again = session.status == Status.PENDING and session.parked_on_id is not None
    return is_waiting_again or (session.status == Status.RUNNING and session.kind == Kind.INTERACTIVE)


def refusal(session: Session) -> str:
    """Return why the session cannot be parked, "" if it can; fetch its policies with it. Up to three queries."""
    if session.status == Status.PENDING and is_offered(session):
        return ""
    if session.status != Status.RUNNING:
        return _("Only a running session can be parked.")
    if session.kind != Kind.INTERACTIVE:
        return _("A batch session cannot be parked: its command would begin anew.")
    if session.resize is not None:
        return _("It is being resized; park it when that is done.")
    if session.conversions.filter(state__in=ACTIVE_CONVERSIONS).exists():
        return _("It is being saved as an image; park it when that is done.")
    if session.parked_attempt and session.events.filter(new_status=Status.PARKED).count() >= MAX_PARKS:
        return _("It was parked %(count)s times, and cannot be once more.") % {"count": MAX_PARKS}
    most = least(session.policies, lambda policy: policy.max_parked)
    if most is None or (count := parked_of(session.owner).count()) < most:
        return ""
    if most == 0:
        return _("The policy allows no parked sessions.")
    return _("The policy allows %(most)s parked sessions, and %(count)s are parked already.") % {
        "most": most,
        "count": count,
    }


def resume_refusal(session: Session) -> str:
    """Return why the session could never be resumed as it is, or not now; "" if it can."""
    if session.status != Status.PARKED:
        return _("Only a parked session can be resumed.")
    owner, project = session.owner, session.project
    if policy_checks.group_errors(owner, session.resource_group, project, is_batch=False):
        return _("Its owner may not use its resource group any more.")
    if session.parked_on is not None and session.parked_on.status == HostStatus.LOST:
        return _("Its host %(host)s, which has its files, is unreachable.") % {"host": session.parked_on.name}
    asked = Amounts(cpu=session.cpu, memory=session.memory, fgpu=session.fgpu, sessions=1)
    if any(limits.exceeded(each.limits(), asked) for each in session.policies):
        return _("The policy allows less by now than this session needs.")
    try:
        policy_checks.check_pending(owner, project, 1)
    except RejectedError as refused:
        return from_english(" ".join(refused.errors.values()))
    return ""


def longest(session: Session) -> timedelta | None:
    """Return how long the session may be parked; None where nothing limits that. Fetch its policies with it."""
    return least(session.policies, lambda policy: policy.max_parked_time)


def retained_until(session: Session) -> datetime | None:
    """Return when a parked session ends, and its files are deleted; None where it is not parked, or for ever."""
    span = longest(session)
    return None if span is None or session.status != Status.PARKED else session.status_at + span


def retained_until_expression() -> Combinable:
    """Return `retained_until` of parked sessions for queries; NULL for ever."""
    return F("status_at") + Least("owner__policy__max_parked_time", "project__policy__max_parked_time")


@audit.recorded_for_others("park")
def park(
    session: Session, reason: Reason = Reason.PARKED, detail: str = PARKED_BY_OWNER, *, actor: User | None = None
) -> None:
    """Stop the session and keep its files on its host, or put one that waits to be resumed back.

    Does nothing if it is parked or being parked. Raises RejectedError with a message for GENERAL where it cannot be.
    """
    with transaction.atomic():
        # Serializes the count per user; no_key, so that rows that only refer to the user do not wait.
        User.objects.select_for_update(no_key=True).get(pk=session.owner_id)
        session.refresh_from_db()
        if session.status == Status.PARKED or (session.status == Status.TERMINATING and session.is_parking):
            return
        if error := refusal(session):
            raise RejectedError({GENERAL: error})
        try:
            if session.status == Status.PENDING:
                return_parked(session, reason, detail, actor)
            else:
                _stop(session, reason, detail, actor)
        except StaleSessionError:
            raise RejectedError({GENERAL: _("Its status has just changed; try again.")}) from None


@audit.recorded_for_others("resume")
def resume(session: Session, *, actor: User | None = None) -> None:
    """Have the parked session wait for its host, to go on with its files. Does nothing if it waits or runs already.

    Raises RejectedError with a message for GENERAL where it could never start.
    """
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=session.owner_id)
        if session.project_id is not None:  # for the pending limit of the project, as `submit` does
            Project.objects.select_for_update(no_key=True, of=("self",)).get(pk=session.project_id)
        session.refresh_from_db()
        if session.parked_attempt and session.status in (Status.PENDING, Status.SCHEDULED, Status.PREPARING):
            return
        if error := resume_refusal(session):
            raise RejectedError({GENERAL: error})
        now = clock.now()
        fields: dict[str, object] = {
            "host_id": None,
            "is_parking": False,
            "not_before": now,  # from when it waits: its place in the queue, and its pending timeout
            "extension": timedelta(0),
            "avoided_hosts": [],
            "refused_until": None,
            "group_choices": [],
            "start_failures": 0,
            "start_by": None,
            "container_id": "",
            "address": None,
            "exit_code": None,
            "log_tail": "",
        }
        session.move_to(Status.PENDING, Reason.RESUMED, "Resumed; waiting for its host.", actor=actor, fields=fields)
        # Its apps are started again at their addresses once it runs.
        opened = Endpoint.objects.unclosed().filter(session=session)
        opened.update(state=EndpointState.STARTING, detail="", output="", opened_at=now)
        with connection.cursor() as cursor:
            cursor.execute(READ_AGAIN)
        kick_scheduler()


def return_parked(session: Session, reason: Reason, detail: str, actor: User | None = None) -> None:
    """Move a session that was to be resumed back to PARKED, from PENDING or PREPARING. Raises StaleSessionError."""
    with transaction.atomic():
        Session.objects.filter(pk=session.pk, status=Status.PENDING).update(claim=None)
        session.move_to(Status.PARKED, reason, detail[:300], actor=actor)
        kick_scheduler()


def _stop(session: Session, reason: Reason, detail: str, actor: User | None) -> None:
    fields = {"is_parking": True, "parked_on_id": session.host_id, "parked_attempt": session.attempt}
    session.move_to(Status.TERMINATING, reason, detail, actor=actor, fields=fields)
    if session.host is not None:
        notify.send_to_host(session.host.name, "stop_session", session.pk, session.attempt)
