"""Preemption: sessions that may be ended for others are warned, and end for a session that waits.

The scheduler decides who ends for whom (`scheduler/cycle/preemption.py`). All it has decided is in the rows: the
waiting session's claim, and in each of those that end for it, when and for whom. So nothing is lost where a process
dies.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import transaction
from django.utils.dateparse import parse_datetime

from accounts.models import User
from accounts.policies import PolicyBounds
from resources.kick import kick_scheduler
from resources.models import ResourceGroup
from sessions import notes, notify
from sessions.lifecycle import AT_WORK, HOSTED, Kind, Reason, Status
from sessions.models import Session, StaleSessionError
from sessions.requeueing import host_faults

logger = logging.getLogger(__name__)

MAX_PREEMPTIONS: Final = 5  # of a batch session, until it ends for good; as Slurm's MaxBatchRequeue
WHOLE_CHARGE: Final = 100
RETURNING: Final = (  # why a session that is stopped waits again; for the first two, if it is batch or elastic
    Reason.PREEMPTED,
    Reason.REQUEUED,
    Reason.CLUSTER_RETURNED,
)
RETURNED: Final[dict[str, Any]] = {  # of a session that is back in the queue
    "host_id": None,
    "start_by": None,
    "start_failures": 0,  # it did not return for them, and pauses for none
    "started_at": None,
    "address": None,
    "container_id": "",
    "preempt_by": None,
    "preempted_for": "",
}
WARNING: Final = "Another session needs what it holds: it ends at {at:%Y-%m-%d %H:%M:%S} UTC, as it is preemptible."
SPARED: Final = "It goes on: what it holds is not needed for another session any more."
ENDED: Final = "Ended for another session, as it is preemptible."
UNSTARTED: Final = "It is preemptible, and another session needed its place before it had started: it waits again."
LAST: Final = "Ended for another session for the {count}th time, as it is preemptible: it is not tried again."
BACK: Final = "Ended for another session, as it is preemptible; back in the queue."


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredClaim:
    """What a waiting session will hold once the sessions that are in its way have ended."""

    group_id: int
    # Members, host id, and their shares: (GPU id, milli-fGPU) in device order.
    placed: tuple[tuple[int, int, tuple[tuple[int, int], ...]], ...]
    at: datetime  # when these sessions are ended

    @property
    def members(self) -> int:
        """How many sessions it is for: above one for a cluster."""
        return sum(members for members, _, _ in self.placed)

    def as_json(self) -> dict[str, Any]:
        """Return the value of `Session.claim`; the version before reads the first host and its shares."""
        _, host_id, shares = self.placed[0]
        first = {"host_id": host_id, "shares": shares}
        return {**first, "group_id": self.group_id, "placed": self.placed, "at": self.at.isoformat()}

    @classmethod
    def from_json(cls, value: dict[str, Any], members: int) -> "StoredClaim":
        """Return the claim that `Session.claim` holds, of a session with so many members."""
        at = parse_datetime(value["at"])
        assert at is not None  # written by `as_json`
        stored = value.get("placed") or [(members, value["host_id"], value["shares"])]
        placed = tuple((count, host_id, tuple((gpu, milli) for gpu, milli in held)) for count, host_id, held in stored)
        return cls(group_id=value["group_id"], placed=placed, at=at)


def is_asked(bounds: PolicyBounds, wanted: bool | None) -> bool:
    """Return whether a session under these bounds is preemptible; `wanted` None leaves it to the policies."""
    return bounds.preemptible_only if wanted is None else wanted


def charge_percent(group: ResourceGroup, *, is_preemptible: bool) -> int:
    """Return the part of its use that counts in fair share."""
    return group.preemptible_charge_percent if is_preemptible else WHOLE_CHARGE


def warn(session_id: str, claim: StoredClaim, victim_ids: Collection[str]) -> None:
    """Store the claim of a waiting session, and that these sessions end for it at `claim.at`; their owners are told.

    Raises StaleSessionError where one of them has moved on, or is not preemptible; call it in a transaction of its own
    then.
    """
    if not Session.objects.filter(pk=session_id, status=Status.PENDING, claim__isnull=True).update(
        claim=claim.as_json()
    ):
        raise StaleSessionError(f"session {session_id}: does not wait any more")
    victims = Session.objects.filter(pk__in=victim_ids, is_preemptible=True, preempt_by=None, status__in=AT_WORK)
    found = list(victims.select_for_update(of=("self",), no_key=True))
    if len(found) != len(victim_ids):
        raise StaleSessionError(f"session {session_id}: what it was to have is not there any more")
    victims.filter(pk__in=victim_ids).update(preempt_by=claim.at, preempted_for=session_id)
    for victim in found:
        notes.note(victim, Reason.PREEMPTED, WARNING.format(at=claim.at))
    notify.send_to_scheduler("notifications.tasks.announce_ends")


def spare(victim_ids: Iterable[str]) -> None:
    """Let warned sessions go on, and tell their owners."""
    warned = Session.objects.filter(pk__in=list(victim_ids), preempt_by__isnull=False)
    for victim in warned.exclude(status=Status.TERMINATING).select_for_update(of=("self",), no_key=True):
        Session.objects.filter(pk=victim.pk).update(preempt_by=None, preempted_for="")
        if victim.status in HOSTED:
            notes.note(victim, Reason.PREEMPTED, SPARED)


def drop_claims(session_ids: Collection[str]) -> None:
    """Forget what these waiting sessions were to have."""
    Session.objects.filter(pk__in=session_ids, status=Status.PENDING).update(claim=None)


def end_victims(victim_ids: Iterable[str]) -> None:
    """End warned sessions for those that they were warned of; one that has moved on meanwhile is left alone.

    The first member of a cluster ends first: it says whether all return.
    """
    victims = Session.objects.filter(pk__in=list(victim_ids), preempt_by__isnull=False).order_by("rank", "pk")
    for victim in victims.select_related("host", "cluster"):
        while victim.status in AT_WORK:
            try:
                with transaction.atomic():
                    _end(victim)
                break
            except StaleSessionError:
                victim.refresh_from_db()


def return_elastic(members: Iterable[Session], detail: str) -> None:
    """Have elastic members of clusters stop, which then wait for room again; fetch `host` with them."""
    for member in members:
        try:
            with transaction.atomic():
                _end(member, detail)
        except StaleSessionError as error:  # it is looked at again
            logger.info("session %s: not stopped yet: %s", member.pk, error)


def conclude(session: Session, fields: dict[str, Any] | None = None, output: str = "") -> None:
    """Move a TERMINATING session, whose container has stopped, to TERMINATED, or to the queue where it returns there.

    `output` is the last that it has written, which is kept then. In the caller's transaction.
    Raises StaleSessionError where it has moved on.
    """
    if _may_return(session):
        avoided = host_faults.avoiding(session, session.host_id)  # which also lets that host write the row
        text = BACK if session.reason == Reason.PREEMPTED else session.detail
        fields = {**RETURNED, "avoided_hosts": avoided, "previous_output": output}
        session.move_to(Status.PENDING, Reason(session.reason), text, fields=fields)
    else:
        session.move_to(Status.TERMINATED, Reason(session.reason), session.detail, fields=fields)


def end_for_good(session: Session, reason: Reason, detail: str, *, actor: User | None) -> None:
    """Have a session that is being stopped end for `reason` instead of returning to the queue.

    Where it is back there by now, the object says so afterwards; otherwise nothing happens.
    """
    stopping = Session.objects.filter(pk=session.pk, status=Status.TERMINATING, reason__in=RETURNING)
    with transaction.atomic():
        if stopping.update(reason=reason.value, detail=detail):
            notes.note(session, reason, detail, actor=actor)
    session.refresh_from_db()


def _end(victim: Session, detail: str = "") -> None:
    """End a victim: one that has not started waits again, and so do all members where one has not."""
    if victim.status == Status.RUNNING:
        times = victim.preemptions + 1
        is_last = victim.kind == Kind.BATCH and times > MAX_PREEMPTIONS and not victim.is_elastic
        text = detail or (LAST.format(count=times) if is_last else ENDED)
        reason = Reason.CLUSTER_RETURNED if _returns_with_cluster(victim) else Reason.PREEMPTED
        victim.move_to(Status.TERMINATING, reason, text, fields={"preemptions": times})
        if victim.host is not None:
            notify.send_to_host(victim.host.name, "stop_session", victim.pk, victim.attempt)
    else:
        victim.move_to(Status.PENDING, Reason.PREEMPTED, detail or UNSTARTED, fields=RETURNED)
        kick_scheduler()


def _returns_with_cluster(victim: Session) -> bool:
    """Return whether a running member returns to the queue, as its cluster does: it need not be batch itself."""
    if victim.is_elastic:
        return False  # it returns by itself
    if victim.cluster is None or victim.cluster.started_at is None:
        return victim.cluster is not None
    return (
        victim.rank > 0
        and Session.objects.filter(pk=victim.cluster_id, kind=Kind.BATCH, preemptions__lte=MAX_PREEMPTIONS).exists()
    )


def _may_return(session: Session) -> bool:
    """Return whether a session that was stopped returns to the queue, by its row as it is now, locked."""
    is_member = session.is_elastic or session.reason == Reason.CLUSTER_RETURNED
    if session.reason not in RETURNING or (session.kind != Kind.BATCH and not is_member):
        return False
    row = Session.objects.filter(pk=session.pk, attempt=session.attempt, status=Status.TERMINATING)
    now = row.select_for_update(of=("self",), no_key=True).values_list("reason", "detail", "preemptions").first()
    if now is None:
        raise StaleSessionError(f"session {session.pk}: moved on while it was stopped")
    session.reason, session.detail = now[:2]  # its owner may have ended it for good meanwhile
    if now[0] == Reason.PREEMPTED:
        return session.is_elastic or now[2] <= MAX_PREEMPTIONS
    return now[0] in RETURNING
