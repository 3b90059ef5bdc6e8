"""The state of a deployment, and in words why it is not as wanted."""

from collections.abc import Sequence

from deployments.models import Deployment, DeploymentState, Replica, ReplicaHealth
from deployments.replicas import observation
from deployments.replicas.rollout import ReplicaFact
from sessions.lifecycle import Status

MAX_LENGTH = 2000


def state_of(deployment: Deployment, facts: Sequence[ReplicaFact], wanted: int, *, has_failed: bool) -> DeploymentState:
    """Return the state by the replicas that neither drain nor have ended. `has_failed`: the last ones have."""
    if deployment.ended_at is not None:
        return DeploymentState.ENDED
    if not wanted:
        return DeploymentState.STOPPED if deployment.asleep_since is None else DeploymentState.ASLEEP
    ready = [fact for fact in facts if fact.is_ready]
    outdated = [fact for fact in facts if not fact.is_current]
    if sum(fact.is_current for fact in ready) >= wanted and not outdated:
        return DeploymentState.HEALTHY
    if not ready:
        return DeploymentState.FAILING if has_failed else DeploymentState.STARTING
    return DeploymentState.DEGRADED if has_failed else DeploymentState.UPDATING


def problem_of(deployment: Deployment, serving: Sequence[Replica], refusal: str, progress: str) -> str:
    """Return why it is not as wanted, a line each: what was given up, how far a rollout is, what failed last."""
    lines = [_given_up_words(deployment), progress]
    if refusal:
        lines.append(f"No replica can be launched: {refusal}")
    is_short = sum(replica.takes_requests for replica in serving) < deployment.replicas
    if is_short and (last := _last_failed(deployment)):
        lines.append(f"A replica of revision {last.revision.number} has failed. {last.failure}")
        lines.append(observation.last_lines(last))
    for replica in serving:
        if replica.health == ReplicaHealth.UNHEALTHY:
            lines.append(f"A replica of revision {replica.revision.number} is unhealthy: {replica.health_detail}")
        elif replica.session.status == Status.PENDING and replica.session.detail:
            lines.append(f"A replica waits: {replica.session.detail}")
    return "\n".join(dict.fromkeys(filter(None, lines)))[:MAX_LENGTH]


def _last_failed(deployment: Deployment) -> Replica | None:
    since = deployment.activated_at or deployment.created_at
    rows = deployment.replica_rows.filter(revision=deployment.revision, created_at__gte=since)
    return rows.exclude(failure="").select_related("session", "revision").order_by("-created_at").first()


def _given_up_words(deployment: Deployment) -> str:
    if deployment.given_up is None:
        return ""
    if deployment.given_up_why:
        return f"Revision {deployment.given_up.number} was given up: {deployment.given_up_why}"
    rows = deployment.replica_rows.filter(revision=deployment.given_up).exclude(failure="").select_related("session")
    last = rows.order_by("-created_at").first()
    words = f"Revision {deployment.given_up.number} was given up: its replicas failed before any was healthy."
    return f"{words} {last.failure}\n{observation.last_lines(last)}".strip() if last else words
