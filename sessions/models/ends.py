"""When a running session ends: at the earliest of its time limit and the lifetime limits of its policies and group.

All count from its start, but from its start deadline at the latest: the scheduler has promised others what it holds.
Members of a cluster start one after the other, and end together: theirs count from the deadline, which becomes the
start of the last where that is earlier (`sessions.clusters.settling`). Extensions are added.

A host that is drained may end it before that, and so may the session for which it is preempted.
"""

from datetime import datetime, timedelta
from typing import Final, Protocol

from django.db.models import Case, DateTimeField, ExpressionWrapper, F, Q, When
from django.db.models.expressions import CombinedExpression
from django.db.models.functions import Coalesce, Least

from accounts.models import ResourcePolicy
from resources.models import ResourceGroup
from sessions.lifecycle import Status

STOP_DURATION: Final = timedelta(minutes=1)  # in which a session that is being stopped is expected to be gone
MIN_EXTENSION: Final = timedelta(minutes=1)  # an end is put off by at least this


class TimeBound(Protocol):
    """What of a session bounds its life."""

    cluster_id: str | None
    started_at: datetime | None
    start_by: datetime | None
    time_limit: timedelta | None
    extension: timedelta
    preempt_by: datetime | None
    resource_group: ResourceGroup

    @property
    def policies(self) -> tuple[ResourcePolicy, ...]: ...
    @property
    def drained_at(self) -> datetime | None: ...
    @property
    def ends_at(self) -> datetime | None: ...
    @property
    def is_final(self) -> bool: ...


def time_bound() -> Least:
    """Return the expression for the longest time that a session runs, without extensions; NULL without a limit."""
    # One that may start in several groups has the limit of the group in which it then does.
    may_choose = Q(status=Status.PENDING) & ~Q(group_choices=[])
    of_group = Case(When(may_choose, then=None), default=F("resource_group__max_lifetime"))
    return Least("time_limit", "owner__policy__max_lifetime", "project__policy__max_lifetime", of_group)


def clock_expression() -> Coalesce:
    """Return the expression for the time from which the limits of a session that has been placed count."""
    return Coalesce(_limits_from(), "status_at")


def limit_expression() -> "ExpressionWrapper[CombinedExpression]":
    """Return the expression for the time at which a started session reaches its limits; NULL without a limit."""
    return ExpressionWrapper(_limits_from() + time_bound() + F("extension"), output_field=DateTimeField())


def _limits_from() -> Least:
    own_start = Case(When(cluster=None, then=F("started_at")))
    return Least(own_start, "start_by")  # PostgreSQL's LEAST ignores NULL


def end_expression() -> Least:
    """Return the expression for the time at which a started session ends; NULL where nothing ends it."""
    return Least(limit_expression(), F("host__drain_by"), F("preempt_by"))


def end_of(session: TimeBound) -> datetime | None:
    """Return the same in Python; fetch `owner__policy`, `project__policy`, `resource_group` and `host` with it."""
    if session.started_at is None:
        return None
    policies = (policy.max_lifetime for policy in session.policies)
    limits = (session.time_limit, session.resource_group.max_lifetime, *policies)
    bound = min((limit for limit in limits if limit is not None), default=None)
    deadline = session.start_by or session.started_at
    clock = deadline if session.cluster_id else min(session.started_at, deadline)
    limit_at = None if bound is None else clock + bound + session.extension
    return min((end for end in (limit_at, session.drained_at, session.preempt_by) if end is not None), default=None)


def extension_left(session: TimeBound) -> timedelta:
    """Return how much longer its policies let the running session go on; zero where nothing limits it."""
    if session.ends_at is None or session.drained_at or session.preempt_by or session.is_final:
        return timedelta(0)
    most = min(policy.max_extension for policy in session.policies)
    return max(timedelta(0), most - session.extension)
