"""Put off the end of a running session, as far as its owner's policy and what others were told allow."""

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import Min
from django.utils.translation import gettext as _

from accounts import audit
from accounts.models import User
from resources import clock
from resources.amounts.units import span_text
from resources.kick import kick_scheduler
from sessions import notes
from sessions.errors import GENERAL, RejectedError
from sessions.lifecycle import Reason, Status
from sessions.models import MIN_EXTENSION, STOP_DURATION, Session, locked_members

MAX_BY_SUPERADMIN: Final = timedelta(days=30)
STEPS: Final = tuple(timedelta(minutes=minutes) for minutes in (30, 60, 120, 240, 480, 1440))  # offered by the pages
WAITS_FOR_ROOM: Final = (Reason.NO_CAPACITY.value, Reason.RESERVED.value)


def allowed(session: Session, actor: User) -> timedelta:
    """Return how much longer `actor` may let the session run; zero where not at all. Two queries at most.

    A session that waits was told when it starts: the end of another on which this may rest is not put off beyond that,
    except by a superadmin, whom no policy bounds either.
    """
    is_fixed = _is_drained(session) or session.preempt_by is not None
    if session.status != Status.RUNNING or session.ends_at is None or is_fixed:
        return timedelta(0)
    if actor.is_superuser:
        return MAX_BY_SUPERADMIN
    by_policy = session.extension_left
    promised = _next_promised_start(session) if by_policy >= MIN_EXTENSION else None
    return by_policy if promised is None else min(by_policy, promised)


def offers(session: Session, actor: User) -> list[timedelta]:
    """Return the lengths to choose from: the STEPS that are allowed, and the most; none where nothing is."""
    most = allowed(session, actor)
    if most < MIN_EXTENSION:
        return []
    steps = [step for step in STEPS if step < most]
    return steps if actor.is_superuser else [*steps, most]


def refusal(session: Session, actor: User) -> str:
    """Return why the end of the session cannot be put off at all."""
    if session.status != Status.RUNNING:
        return _("Only a running session can be extended.")
    if session.ends_at is None:
        return _("Nothing limits how long this session runs.")
    if _is_drained(session):
        return _("Its host is being taken out of service.")
    if session.preempt_by is not None:
        return _("It ends for another session, as it is preemptible.")
    if session.extension_left < MIN_EXTENSION and not actor.is_superuser:
        return _("Your policy does not let this session run longer.")
    return _("Another session waits and was told when it starts, which rests on the end of this one.")


def extend(session_id: str, by: timedelta, *, actor: User) -> Session:
    """Let the session, or the cluster of which it is a member, run longer by `by`, and return it.

    Raises RejectedError with a message for `by`, or GENERAL.
    """
    with transaction.atomic():
        members = locked_members(session_id, "owner__policy", "project__policy", "resource_group", "host")
        session = next((member for member in members if member.status == Status.RUNNING), members[0])
        most = allowed(session, actor)
        if most < MIN_EXTENSION:
            raise RejectedError({GENERAL: refusal(session, actor)})
        if not MIN_EXTENSION <= by <= most:
            bounds = {"least": span_text(MIN_EXTENSION), "most": span_text(most)}
            raise RejectedError({"by": _("It can run longer by %(least)s to %(most)s.") % bounds})
        session.extension += by
        with audit.act_for_other(session.owner_id, actor, "extend", session):
            session.members.update(extension=session.extension)
        notes.note(session.main, Reason.EXTENDED, f"Runs {span_text(by)} longer.", actor=actor)
        kick_scheduler()
    return session


def _is_drained(session: Session) -> bool:
    """Return whether its host, or that of another member of its cluster, is to be free of sessions at some time."""
    if session.drained_at is not None or session.cluster_id is None:
        return session.drained_at is not None
    return session.members.live().filter(host__drain_by__isnull=False, is_elastic=False).exists()


def _next_promised_start(session: Session) -> timedelta | None:
    """Return by how much its end may move until the first start after it that somebody was told; None without one."""
    waiting = Session.objects.waiting_in(session.resource_group_id).filter(reason__in=WAITS_FOR_ROOM)
    end = max(session.ends_at or clock.now(), clock.now())
    first = waiting.filter(eta__gte=end).aggregate(first=Min("eta"))["first"]
    return None if first is None else first - end - STOP_DURATION
