"""Writes what a pass decides on preemption: who is warned, who ends, who goes on. In the pass's transaction."""

import logging
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from resources.kick import kick_scheduler
from resources.models import ResourceGroup
from scheduler.snapshot.claims import claim_from
from scheduler.state.scheduler_state import SchedulerState
from sessions.lifecycle import AT_WORK
from sessions.models import STOP_DURATION, Session, StaleSessionError
from sessions.requeueing import preemption

logger = logging.getLogger(__name__)

OVER_LIMITS: Final = "Another session of its owner or project waits for limits that it uses up."
MAX_CLAIMS: Final = 20  # new ones in a pass; the next one goes on


def grace_of(group_id: int) -> timedelta:
    """Return the time between warning and end in a group; takes one query."""
    return ResourceGroup.objects.values_list("preemption_grace", flat=True).get(pk=group_id)


def settle(group_id: int, state: SchedulerState, now: datetime) -> None:
    """Withdraw warnings without a reason, end the sessions whose warning is over, and warn others.

    By the state after the pass. No query where no session of the group is preemptible.
    """
    if state.lapsed:
        preemption.drop_claims(state.lapsed)
    if spared := state.claims.spared(state.incremental.cluster.group_of):
        preemption.spare(spared)
    if due := [*state.claims.due(now)]:
        preemption.end_victims(due)
    if surplus := state.elastic_over_limits():
        members = Session.objects.filter(pk__in=surplus, status__in=AT_WORK).select_related("host")
        preemption.return_elastic(members, OVER_LIMITS)
    if state.claims.candidates.may_end:
        _claim(group_id, state, now)


def _claim(group_id: int, state: SchedulerState, now: datetime) -> None:
    """Warn preemptible sessions for those of the queue that start sooner by it."""
    grace = grace_of(group_id)
    for _ in range(MAX_CLAIMS):
        found = state.find_preemption(group_id, now, now + grace + STOP_DURATION)
        if found is None:
            break
        claim = claim_from(found, group_id, now, grace)
        try:
            with transaction.atomic():
                preemption.warn(found.session_id, claim, found.victim_ids)
        except StaleSessionError as error:
            logger.info("preemption for session %s is put off: %s", found.session_id, error)
            break
        state.accept(found, claim)
        kick_scheduler()  # what its reservation kept from others may be theirs
