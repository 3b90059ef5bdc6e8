"""Parking: a session's container is saved on its host and what it held is free; resumed, it goes on from there.

RUNNING -> TERMINATING with `is_parking`, during which it holds its lease until the container has stopped, -> PARKED ->
PENDING, bound to its host, -> RUNNING. The host's side is hostworker/containers/parking.py.

All members of a cluster are parked and resumed in one transaction, or none, but elastic ones, which wait for room
again; these, and the others where one is parked again as it was to start, follow (`clusters.settling`).
"""

from datetime import datetime, timedelta
from typing import Final

from django.db import connection, transaction
from django.db.models import F, Prefetch
from django.db.models.expressions import Combinable
from django.db.models.functions import Least
from django.utils.translation import gettext as _

from accounts import audit, limits
from accounts.limits import Amounts
from accounts.models import Project, User
from accounts.policies import least
from resources import clock
from resources.kick import kick_scheduler
from resources.models import END_BEFORE, ElasticHost, HostStatus
from sessions import notify
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Kind, Reason, Status
from sessions.limits import policy_checks
from sessions.models import (
    ACTIVE_CONVERSIONS,
    COUNTS_AS_PARKED,
    Cluster,
    Conversion,
    Endpoint,
    EndpointState,
    Session,
    SessionEvent,
    SessionQuerySet,
    StaleSessionError,
    alike,
    first_refusal,
    locked_members,
    size_of,
)
from translation.english import from_english

MAX_PARKS: Final = 40  # of one session: each is a layer of its image, of which there can be 127
PARKED_BY_OWNER: Final = "Parked by its owner: its files are kept, and what it held is free."
_FETCHED: Final = ("host", "parked_on", "owner__policy", "project__policy", "resource_group")  # fetched for refusals
_ON_THE_WAY: Final = (Status.PENDING, Status.SCHEDULED, Status.PREPARING)
READ_AGAIN: Final = "INSERT INTO compute_change (sessions) VALUES (NULL)"  # by schedulers: a host offers something new


def parked_of(owner: User) -> SessionQuerySet:
    """Return the owner's sessions that count against `max_parked`."""
    return Session.objects.filter(COUNTS_AS_PARKED, owner=owner)


def is_offered(session: Session) -> bool:
    """Return whether pages offer to park the session; `refusal` then says whether it can be."""
    status = session.whole_status
    is_waiting_again = status == Status.PENDING and session.parked_on_id is not None and session.kind != Kind.REPLICA
    return is_waiting_again or (status == Status.RUNNING and session.kind == Kind.INTERACTIVE)


def refusal(session: Session) -> str:
    """Return why the session, or a member of its cluster, cannot be parked; "" if all can.

    Fetch its policies with it. Four queries, for any number of members.
    """
    members = _members(session)
    if error := first_refusal(members, _refusal):
        return error
    more = sum(member.status == Status.RUNNING for member in members)
    most = least(session.policies, lambda policy: policy.max_parked)
    if not more or most is None or (count := parked_of(session.owner).count()) + more <= most:
        return ""
    if most == 0:
        return _("The policy allows no parked sessions.")
    text = _("The policy allows %(most)s parked sessions, and %(count)s are parked already.")
    if more > 1:
        text = _("The policy allows %(most)s parked sessions, and %(count)s are parked already; each member is one.")
    return text % {"most": most, "count": count}


def _members(session: Session) -> list[Session]:
    """Return it, or the members that are parked with it; of `conversions` those that go on, of `events` its parks."""
    conversions = Prefetch("conversions", Conversion.objects.filter(state__in=ACTIVE_CONVERSIONS))
    parks = Prefetch("events", SessionEvent.objects.filter(new_status=Status.PARKED))
    members = session.members.filter(is_elastic=False).select_related("parked_on")
    return list(members.prefetch_related(conversions, parks))


def _refusal(session: Session) -> str:
    if session.status == Status.PENDING and session.parked_on_id is not None:
        return ""
    if session.status != Status.RUNNING:
        return _("Only a running session can be parked.")
    if session.kind == Kind.BATCH:
        return _("A batch session cannot be parked: its command would begin anew.")
    if session.resize is not None:
        return _("It is being resized; park it when that is done.")
    if session.conversions.all():
        return _("It is being saved as an image; park it when that is done.")
    if len(session.events.all()) >= MAX_PARKS:
        return _("It was parked %(count)s times, and cannot be once more.") % {"count": MAX_PARKS}
    return ""


def resume_refusal(session: Session) -> str:
    """Return why the session, or its cluster, could never be resumed as it is, or not now; "" if it can."""
    return _refusal_of_all(session, list(session.members.filter(is_elastic=False).select_related("parked_on")))


def _refusal_of_all(session: Session, members: list[Session]) -> str:
    if error := first_refusal(members, _resume_refusal):
        return error
    owner, project = session.owner, session.project
    if policy_checks.group_errors(owner, session.resource_group, project, is_batch=False):
        return _("Its owner may not use its resource group any more.")
    amounts = {name: sum(getattr(member, name) for member in members) for name in ("cpu", "memory", "fgpu")}
    asked = Amounts(**amounts, sessions=len(members))
    if any(limits.exceeded(each.limits(), asked) for each in session.policies):
        return _("The policy allows less by now than this session needs.")
    try:
        policy_checks.check_pending(owner, project, len(members))
    except RejectedError as refused:
        return from_english(" ".join(refused.errors.values()))
    return ""


def _resume_refusal(session: Session) -> str:
    if session.status != Status.PARKED:
        return _("Only a parked session can be resumed.")
    if session.parked_on is not None and session.parked_on.status == HostStatus.LOST:
        return _("Its host %(host)s, which has its files, is unreachable.") % {"host": session.parked_on.name}
    return ""


def longest(session: Session) -> timedelta | None:
    """Return how long the session may be parked; None where nothing limits that. Fetch its policies with it.

    One query: a host that was made for sessions is not kept for parked ones for as long as others, and may be
    taken back before.
    """
    spans = [least(session.policies, lambda policy: policy.max_parked_time)]
    host_ids = [session.host_id or session.parked_on_id]
    for max_parked_time, ends_at in ElasticHost.objects.filter(host__in=host_ids).values_list(
        "pool__max_parked_time", "ends_at"
    ):
        spans += [max_parked_time, max(timedelta(), ends_at - END_BEFORE - clock.now()) if ends_at else None]
    return min((span for span in spans if span is not None), default=None)


def retained_until(session: Session) -> datetime | None:
    """Return when a parked session ends, and its files are deleted; None where it is not parked, or for ever."""
    parked = Session.objects.filter(pk=session.pk, status=Status.PARKED) if session.status == Status.PARKED else None
    return None if parked is None else parked.values_list(retained_until_expression(), flat=True).first()


def retained_until_expression() -> Combinable:
    """Return `retained_until` of parked sessions for queries; NULL for ever."""
    by_pool = F("status_at") + F("parked_on__elastic_host__pool__max_parked_time")
    by_provider = F("parked_on__elastic_host__ends_at") - END_BEFORE
    return Least(policy_end_expression(), by_pool, by_provider)


def policy_end_expression() -> Combinable:
    """Return when parked sessions end by the policies of their owners and projects; NULL for ever."""
    return F("status_at") + Least("owner__policy__max_parked_time", "project__policy__max_parked_time")


@audit.recorded_for_others("park")
def park(
    session: Session, reason: Reason = Reason.PARKED, detail: str = PARKED_BY_OWNER, *, actor: User | None = None
) -> None:
    """Stop the session and keep its files on its host, or put one that waits to be resumed back.

    So all members of a cluster, or none; its elastic ones come back once it runs again. Does nothing if it is parked or
    being parked. Raises RejectedError with a message for GENERAL where it cannot be.
    """
    _check_actor(session, actor)
    with transaction.atomic():
        # Serializes the count per user; no_key, so that rows that only refer to the user do not wait.
        User.objects.select_for_update(no_key=True).get(pk=session.owner_id)
        members = _locked(session)
        if all(is_put_aside(member) for member in members):
            return
        if error := refusal(session):
            raise RejectedError({GENERAL: error})
        try:
            for member in members:
                put_aside(member, reason, detail, actor)
        except StaleSessionError:
            raise RejectedError({GENERAL: _("Its status has just changed; try again.")}) from None
        if session.cluster_id is not None:
            Cluster.objects.filter(pk=session.cluster_id).update(started_at=None)
            session.members.filter(is_elastic=True, status=Status.PENDING).update(status_at=clock.now())  # noted


@audit.recorded_for_others("resume")
def resume(session: Session, *, actor: User | None = None) -> None:
    """Have the parked session wait for its host, to go on with its files. Does nothing if it waits or runs already.

    All members of a cluster wait for their hosts together, for what the first of their size had.

    Raises RejectedError with a message for GENERAL where it could never start.
    """
    _check_actor(session, actor)
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=session.owner_id)
        if session.project_id is not None:  # for the pending limit of the project, as `submit` does
            Project.objects.select_for_update(no_key=True, of=("self",)).get(pk=session.project_id)
        members = _locked(session)
        if any(member.parked_attempt and member.status in _ON_THE_WAY for member in members):
            return
        if error := _refusal_of_all(session, members):
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
        for each in members:
            changes = {**fields, "previous_output": each.log_tail}
            each.move_to(Status.PENDING, Reason.RESUMED, "Resumed; waiting for its host.", actor=actor, fields=changes)
        if session.cluster_id is not None:
            _resize_alike(session)
        if session.kind != Kind.REPLICA:  # its apps are started again at their addresses once it runs
            opened = Endpoint.objects.unclosed().filter(session__in=members)
            opened.update(state=EndpointState.STARTING, detail="", output="", opened_at=now)
        with connection.cursor() as cursor:
            cursor.execute(READ_AGAIN)
        kick_scheduler()


def _resize_alike(session: Session) -> None:
    """Give members of a cluster that were launched with one size the same: one of them may not have been resized."""
    for of_one in alike(session.members.filter(status=Status.PENDING).select_related("cluster")):
        session.members.filter(pk__in=[each.pk for each in of_one]).update(**size_of(of_one[0]))


def _check_actor(session: Session, actor: User | None) -> None:
    """Raise RejectedError where somebody parks or resumes what only its deployment does."""
    if actor is not None and session.kind == Kind.REPLICA:
        raise RejectedError({GENERAL: _("Its deployment parks it while nobody uses it, and resumes it.")})


def _locked(session: Session) -> list[Session]:
    """Return the session itself, or the members of its cluster that are parked, under the locks of their rows."""
    members = locked_members(session.pk, "host", "parked_on")
    session.refresh_from_db(from_queryset=Session.objects.select_related(*_FETCHED))
    return [session if member == session else member for member in members if not member.is_elastic]


def is_put_aside(session: Session) -> bool:
    """Return whether the session is parked, or being parked."""
    return session.status == Status.PARKED or (session.status == Status.TERMINATING and session.is_parking)


def put_aside(session: Session, reason: Reason, detail: str, actor: User | None = None) -> None:
    """Park a session of whatever state before that, unless it is being stopped. Raises StaleSessionError."""
    if session.status == Status.RUNNING:
        _stop(session, reason, detail, actor)
    elif session.status == Status.SCHEDULED:  # not begun yet
        session.move_to(Status.PENDING, reason, detail[:300], actor=actor, fields={"host_id": None, "start_by": None})
    if session.status in (Status.PENDING, Status.PREPARING):
        return_parked(session, reason, detail, actor)


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
