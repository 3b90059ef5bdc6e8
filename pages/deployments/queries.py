"""What the pages of deployments read."""

from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet, Sum
from django.shortcuts import get_object_or_404
from redis.exceptions import RedisError

from accounts.models import User
from accounts.requests import UserRequest
from deployments import figures
from deployments.counts import traffic_of, with_counts
from deployments.models import Deployment, DeploymentToken, Replica, TokenUsage
from deployments.usage import history
from deployments.usage.history import FiguresSpan
from deployments.usage.metering import used_of
from resources import clock
from sessions.models import Session

EVENTS_SHOWN = 30
REVISIONS_SHOWN = 50
TOKENS_SHOWN = 200
MONTHS_SHOWN = 12
_RELATED = (
    "owner",
    "project",
    "resource_group",
    "revision__image",
    "revision__variant",
    "previous_revision",
    "rollout",
)


@dataclass(frozen=True, slots=True)
class Rollout:
    """How far the replicas are on the way to the current revision."""

    wanted: int
    done: int  # that run it
    others: int  # that run another, and have not ended


def listed(user: User, *, ended: bool) -> QuerySet[Deployment]:
    """Return the deployments that the user may see with what the list shows, newest first."""
    found = Deployment.objects.visible_to(user).filter(ended_at__isnull=not ended)
    return with_counts(found.select_related(*_RELATED).prefetch_related("hosts")).order_by("-created_at", "-pk")


def visible_deployment(request: UserRequest, deployment_id: str) -> Any:
    """Return the deployment with its counts. Raises Http404 for users who may not see it."""
    found = Deployment.objects.visible_to(request.user).select_related(*_RELATED)
    return get_object_or_404(with_counts(found), pk=deployment_id)


def operable_deployment(request: UserRequest, deployment_id: str) -> Any:
    """Return the deployment with its counts. Raises Http404 for users who may not change it."""
    found = Deployment.objects.operable_by(request.user).select_related(*_RELATED)
    return get_object_or_404(with_counts(found), pk=deployment_id)


def named_deployment(request: UserRequest, deployment_id: str) -> Any:
    """Return the deployment with its counts. Raises Http404 for all but superadmins, who give it host names."""
    found = Deployment.objects.all() if request.user.is_superuser else Deployment.objects.none()
    return get_object_or_404(with_counts(found.select_related(*_RELATED)), pk=deployment_id)


def may_operate(user: User, deployment: Deployment) -> bool:
    """Return whether the user may change the deployment."""
    return Deployment.objects.operable_by(user).filter(pk=deployment.pk).exists()


def may_revise(user: User, deployment: Deployment) -> bool:
    """Return whether the user may say what its replicas run, which have the owner's folders."""
    return user.is_superuser or user.pk == deployment.owner_id


def rollout_of(deployment: Any) -> Rollout | None:
    """Return how far a rollout is, None where none is under way. The deployment has its counts."""
    if deployment.ended_at or not deployment.revision or not deployment.replicas:
        return None
    others = deployment.live - deployment.updated
    done = min(deployment.ready, deployment.updated)
    return Rollout(deployment.replicas, done, others) if others or done < deployment.replicas else None


def replicas_of(deployment: Deployment, user: User) -> list[Replica]:
    """Return the live replicas, oldest first, with what the user may do with each."""
    rows = deployment.replica_rows.live().select_related("session__host", "session__cluster", "revision")
    found: list[Any] = list(rows.order_by("created_at", "pk"))
    opened = set(Session.objects.visible_to(user).filter(replica__deployment=deployment).values_list("pk", flat=True))
    for replica in found:
        replica.traffic = traffic_of(replica)
        replica.may_open = replica.pk in opened
        replica.may_enter = may_revise(user, deployment)
    return found


@dataclass(frozen=True, slots=True)
class LastHour:
    """What a deployment serves now, and has served in the last hour."""

    outstanding: int
    waiting: int
    requests: int
    errors: int
    rejected: int
    median: float | None  # seconds, a bound
    p95: float | None
    fgpu_hours: float  # that the replicas held
    cost: float | None  # in fGPU hours for 1,000 requests


def last_hour(deployment: Deployment) -> LastHour | None:
    """Return the figures, None where there are none now."""
    try:
        now, points = figures.load_now(deployment.pk), history.points(deployment, FiguresSpan.HOUR)
    except (RedisError, OSError):
        return None
    minutes = [each.served for each in points]
    durations = [sum(counts) for counts in zip(*(minute.durations for minute in minutes), strict=True)]
    requests, fgpu_hours = sum(each.requests for each in minutes), sum(each.held.fgpu_hours for each in points)
    return LastHour(
        outstanding=sum(now.outstanding.values()),
        waiting=now.waiting,
        requests=requests,
        errors=sum(minute.errors for minute in minutes),
        rejected=sum(minute.rejected for minute in minutes),
        median=figures.quantile(durations, 0.5),
        p95=figures.quantile(durations, 0.95),
        fgpu_hours=fgpu_hours,
        cost=history.cost_of(fgpu_hours, requests),
    )


def tokens_of(deployment: Deployment) -> list[Any]:
    """Return the tokens, those that are valid first."""
    rows = DeploymentToken.objects.filter(deployment=deployment).listed().with_usage()
    now, found = clock.now(), list[Any](rows[:TOKENS_SHOWN])
    for token in found:
        token.has_expired = token.expires_at is not None and token.expires_at <= now
        token.used_tokens = used_of(token).tokens
    return sorted(found, key=lambda token: token.revoked_at is not None)


def usage_of(deployment: Deployment) -> list[Any]:
    """Return what was used in each of the last months, the newest first, and how many requests had no token."""
    sums = {"tokenless_requests": Sum("requests", filter=Q(token=None), default=0)}
    sums |= {name: Sum(name) for name in ("requests", "prompt_tokens", "completion_tokens")}
    months = TokenUsage.objects.of(deployment).order_by().values("month").annotate(**sums)
    return list(months.order_by("-month")[:MONTHS_SHOWN])
