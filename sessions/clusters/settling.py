"""Brings the members of a cluster to one state: where one has ended, waits again or was parked, so do the others.

That all run, and that all have ended, is an event of the first member, by which its owner is told.

Members move one by one, each on its host. The scheduler settles clusters before each of its passes, which moves of
members request (`Session.move_to`), and every few seconds, as a controller of Kubernetes reconciles. Each step is
safe to repeat.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from django.db import DatabaseError, transaction
from django.db.models import Exists, F, Func, OuterRef, QuerySet, TextField

from resources import clock
from resources.kick import kick_scheduler
from sessions import notes, notify
from sessions.launching import services
from sessions.lifecycle import AT_WORK, FINAL, HOSTED, LIVE, UNPLACED, Reason, Status
from sessions.models import Cluster, Session, StaleSessionError, alike, member_name, size_of
from sessions.parking import services as parking
from sessions.requeueing import preemption
from sessions.words import reason_text

logger = logging.getLogger(__name__)

NO_PLACE: Final[dict[str, Any]] = {"network": None, "host_addresses": [], "first_port": None}


def settle_all() -> None:
    """Settle every cluster that needs it; one that fails does not keep the others from it."""
    for cluster_id in unsettled().values_list("pk", flat=True):
        try:
            settle(cluster_id)
        except StaleSessionError as error:  # a host was faster: its move asks for another time
            logger.info("cluster %s: not settled yet: %s", cluster_id, error)
        except DatabaseError:
            logger.exception("cluster %s: not settled, will try again", cluster_id)


def settle(cluster_id: str) -> None:
    """Have the others end where a member has, or wait again or be parked; note once all run, or none is left.

    What elastic members do concerns no other.

    Raises StaleSessionError where a member moves on meanwhile.
    """
    with transaction.atomic():
        cluster = Cluster.objects.select_for_update(no_key=True).get(pk=cluster_id)
        members = list(cluster.members.select_related("host", "owner", "cluster").order_by("rank"))
        live = [member for member in members if member.status in LIVE]
        firm = [member for member in members if not member.is_elastic]
        if not live:
            _end(cluster, firm)
        elif cause := _end_of(cluster, firm):
            _end_others(cause, live)
        elif any(map(parking.is_put_aside, firm)):
            _park_others(cluster, firm, live)
        elif any(map(_returns, firm)):
            _return_others(cluster, firm, live)
        elif cluster.started_at is None and (starts := _starts(firm)):
            _start(cluster, firm[0], max(starts))
        elif cluster.max_size and cluster.host_addresses:
            _settle_elastic(cluster, members)


def unsettled() -> QuerySet[Cluster]:
    """Return those for which there may be something to do: neither all run, nor all wait, stop, start or are parked."""
    members = Session.objects.filter(cluster=OuterRef("pk"))
    of_cluster, elastic = members.filter(is_elastic=False), members.filter(is_elastic=True)
    noted = Func(
        OuterRef("host_addresses"), F("rank"), template="%(expressions)s", arg_joiner=" ->> ", output_field=TextField()
    )
    live = Cluster.objects.filter(ended_at=None).annotate(
        works=Exists(of_cluster.filter(status__in=AT_WORK)),
        waits=Exists(of_cluster.filter(status=Status.PENDING)),
        stops=Exists(of_cluster.filter(status=Status.TERMINATING)),
        ends=Exists(of_cluster.filter(status__in=FINAL | {Status.TERMINATING})),
        rests=Exists(of_cluster.filter(status=Status.PARKED)),
        grows=Exists(elastic.filter(status__in=AT_WORK)),
        is_starting=Exists(of_cluster.filter(started_at=None)),
        has_lost=Exists(elastic.exclude(status__in=HOSTED).alias(noted=noted).filter(noted__gt="")),
    )
    work = {"works": True, "waits": False, "ends": False, "rests": False, "has_lost": False}
    live = live.exclude(**work, started_at__isnull=False).exclude(**work, is_starting=True)
    live = live.exclude(works=False, waits=False, stops=True, grows=False)
    for other in ("waits", "rests"):
        live = live.exclude(works=False, ends=False, host_addresses=[], **{other: False})
    return live


def _starts(members: Sequence[Session]) -> list[datetime]:
    """Return when each member started; nothing until all have."""
    starts = [member.started_at for member in members if member.started_at]
    return starts if len(starts) == len(members) else []


def _start(cluster: Cluster, head: Session, at: datetime) -> None:
    """Note that all members run: their limits count from then on, but from the deadline at the latest.

    Elastic ones may start from now on, in the same resource group.
    """
    Cluster.objects.filter(pk=cluster.pk).update(started_at=at)
    cluster.members.filter(start_by__gt=at).update(start_by=at)
    elastic = cluster.members.filter(is_elastic=True, status=Status.PENDING)
    elastic.update(resource_group=head.resource_group_id, group_choices=[], status_at=at)  # which is noted
    notes.note(head, Reason.STARTED, f"All {cluster.size} members run.")
    if cluster.max_size:
        kick_scheduler()


def _settle_elastic(cluster: Cluster, members: Sequence[Session]) -> None:
    """Forget the hosts that elastic members have left; have none start any more once one has done its work."""
    if cluster.runs_on_all and any(member.has_succeeded for member in members):
        for member in members:
            if member.is_elastic and member.status == Status.PENDING:
                services.end(member, Reason.CLUSTER_ENDED, "Another member of its cluster has succeeded.")
    addresses = [
        "" if member.is_elastic and member.status not in HOSTED else address
        for member, address in zip(members, cluster.host_addresses, strict=True)
    ]
    Cluster.objects.filter(pk=cluster.pk).update(host_addresses=addresses)


def _end(cluster: Cluster, members: Sequence[Session]) -> None:
    """Forget what a cluster needs while it lives, and note how it ended."""
    ended = {**NO_PLACE, "ended_at": clock.now(), "private_key": "", "public_key": ""}
    if not Cluster.objects.filter(pk=cluster.pk, ended_at=None).update(**ended):
        return
    cause = min(members, key=lambda each: (each.reason == Reason.CLUSTER_ENDED, each.has_succeeded, each.status_at))
    is_success = cluster.runs_on_all and cause.has_succeeded
    notes.note(members[0], Reason.CLUSTER_ENDED, "All members have succeeded." if is_success else _text_of_end(cause))


def _text_of_end(cause: Session) -> str:
    name, reason = member_name(cause.rank), reason_text(cause.reason, cause.detail)
    return f"{name} of its cluster ended: {reason}"[:300]


def _end_of(cluster: Cluster, members: Sequence[Session]) -> Session | None:
    """Return the member by whose end the whole ends; where all run the command, each may succeed at its own time."""
    ended = [member for member in members if member.status in FINAL or _ends(member)]
    if cluster.runs_on_all:
        ended = [member for member in ended if not member.has_succeeded] or (
            ended if any(_returns(member) for member in members) else []
        )
    # What was ended with another says nothing itself.
    return min(ended, key=lambda member: (member.reason == Reason.CLUSTER_ENDED, member.status_at), default=None)


def _ends(member: Session) -> bool:
    is_ending = member.status == Status.TERMINATING and not member.is_parking
    return is_ending and member.reason not in preemption.RETURNING


def _returns(member: Session) -> bool:
    """Return whether a member waits again or is stopped to do so; also of one that has not been placed yet."""
    is_stopping = member.status == Status.TERMINATING and member.reason in preemption.RETURNING
    return member.status == Status.PENDING or is_stopping


def _end_others(cause: Session, live: Sequence[Session]) -> None:
    detail = _text_of_end(cause)
    for member in live:
        if member.pk != cause.pk and not _ends(member):
            services.end(member, Reason.CLUSTER_ENDED, detail)


def _park_others(cluster: Cluster, firm: Sequence[Session], live: Sequence[Session]) -> None:
    """Have all be parked, each with what it has written, elastic ones wait; then they have no place any more."""
    cause = min(filter(parking.is_put_aside, firm), key=lambda member: member.status_at)
    reason = reason_text(cause.reason, cause.detail)
    detail = f"{member_name(cause.rank)} of its cluster was parked: {reason}"[:300]
    for member in live:
        if not member.is_elastic and not parking.is_put_aside(member):
            parking.put_aside(member, Reason(cause.reason), detail)
        elif member.is_elastic and not _returns(member):
            _return(member, detail)
    if all(member.status in UNPLACED for member in live) and cluster.host_addresses:
        Cluster.objects.filter(pk=cluster.pk).update(**NO_PLACE)


def _return_others(cluster: Cluster, firm: Sequence[Session], live: Sequence[Session]) -> None:
    """Have all wait again, then as one: of one size, with the hosts and the number of failed starts of all."""
    others = [member for member in live if not _returns(member)]
    returned = [member for member in firm if _returns(member)]
    Cluster.objects.filter(pk=cluster.pk).update(started_at=None)
    if others:
        cause = min(returned, key=lambda member: (member.reason == Reason.CLUSTER_RETURNED, member.status_at))
        name = member_name(cause.rank)
        detail = f"{name} of its cluster returned to the queue: {cause.detail}"[:300]
        for member in others:
            _return(member, detail)
        if cause.reason == Reason.CLUSTER_RETURNED:
            Cluster.objects.filter(pk=cluster.pk).update(restarts=F("restarts") + 1)
    elif all(member.status == Status.PENDING for member in live) and cluster.host_addresses:
        avoided = list(dict.fromkeys(host_id for member in firm for host_id in member.avoided_hosts))
        failures = max(member.start_failures for member in firm)
        for of_one in alike(live):  # one may not have been resized
            waiting = cluster.members.filter(status=Status.PENDING, pk__in=[member.pk for member in of_one])
            waiting.update(
                **size_of(of_one[0]),
                avoided_hosts=avoided,
                start_failures=failures,
                status_at=clock.now(),  # is noted
            )
        Cluster.objects.filter(pk=cluster.pk).update(**NO_PLACE)
        kick_scheduler()


def _return(member: Session, detail: str) -> None:
    if member.status == Status.RUNNING:
        member.move_to(Status.TERMINATING, Reason.CLUSTER_RETURNED, detail)
        if member.host is not None:
            notify.send_to_host(member.host.name, "stop_session", member.pk, member.attempt)
    else:
        fields = {**preemption.RETURNED, "start_failures": member.start_failures}
        member.move_to(Status.PENDING, Reason.CLUSTER_RETURNED, detail, fields=fields)
        kick_scheduler()
