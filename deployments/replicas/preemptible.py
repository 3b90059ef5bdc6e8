"""Which replicas of a preemptible deployment may end for sessions that wait: those beyond the least that always run.

The scheduler chooses among them as among all preemptible sessions (ADR 44). One that is warned drains at once, and
another waits for room in its place, after all who are not preemptible.
"""

from collections.abc import Sequence
from typing import Final

from accounts.policies import bounds_of
from deployments.models import Deployment, Replica
from deployments.replicas import observation
from deployments.replicas.rollout import ReplicaFact
from resources import clock
from sessions.lifecycle import Status
from sessions.models import Session
from sessions.requeueing import preemption

GIVES_WAY: Final = "It gives its place to a session that waits."


def preemptible_of(replicas: Sequence[ReplicaFact], least: int) -> set[str]:
    """Return the ids of the replicas that may end, so that the `least` most useful ones stay. Pure.

    None of them, while some are replaced by those of another revision: a rollout needs all that it has.
    """
    if not all(replica.is_current for replica in replicas):
        return set()
    most_useful_first = sorted(replicas, key=lambda each: (not each.is_ready, each.created_at, each.id))
    return {replica.id for replica in most_useful_first[least:]}


def mark(row: Deployment, serving: Sequence[Replica] | None = None) -> None:
    """Have the sessions of these replicas, or of all that are to serve, say whether they may end for others.

    In the transaction that has locked the deployment's row; fetch the policies of its owner and project with it.
    """
    now, serving = clock.now(), observation.observe(row).serving if serving is None else serving
    facts = [observation.fact_of(replica, row, now) for replica in serving]
    chosen = preemptible_of(facts, row.min_replicas) if row.is_preemptible else set()
    is_only = bounds_of(row.owner, row.project).preemptible_only
    for replica in serving:
        session, is_preemptible = replica.session, is_only or replica.pk in chosen
        if session.is_preemptible == is_preemptible:
            continue
        changes = {"is_preemptible": is_preemptible}
        if session.status == Status.PENDING:  # for what has run already, its charge stays
            charge = preemption.charge_percent(row.resource_group, is_preemptible=is_preemptible)
            Session.objects.filter(pk=session.pk, status=Status.PENDING).update(**changes, charge_percent=charge)
        elif not is_preemptible:  # nothing ends it for others any more, so it has no discount either
            Session.objects.filter(pk=session.pk).update(**changes, charge_percent=preemption.WHOLE_CHARGE)
        else:
            Session.objects.filter(pk=session.pk).update(**changes)


def gives_way(replica: Replica) -> bool:
    """Return whether the replica was warned that it ends for another session."""
    return replica.session.preempt_by is not None
