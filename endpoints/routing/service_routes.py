"""Computes the proxies' services from the rows of deployments, their tokens and replicas."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

from django.db.models import F

from deployments.models import Deployment, DeploymentState, DeploymentToken, Replica, StepwiseRollout
from deployments.replicas import stepwise
from deployments.usage import metering
from endpoints.routing import routes
from proxy.budgets import month_end
from proxy.routes import AppCondition, ReplicaRoute, Route, Service, ServiceToken
from resources import clock
from resources.models import HostStatus
from sessions.access.app_addresses import site
from sessions.lifecycle import Status
from sessions.models import Endpoint

_CONDITIONS: Final = {
    DeploymentState.STARTING: ("starting", "Its first replica is starting."),
    DeploymentState.UPDATING: ("starting", "Its next replica is starting."),
    DeploymentState.STOPPED: ("exited", "It is stopped."),
    DeploymentState.ASLEEP: ("starting", "It was asleep, since nobody used it, and wakes now."),
}


class ServiceRows(NamedTuple):
    """Services, and the routes to their replicas."""

    services: list[Service]
    routes: list[Route]


def read(deployments: Collection[str] | None = None) -> ServiceRows:
    """Return the services of these deployments, or of all: of each that has not ended. Four queries."""
    live = (
        Deployment.objects.live()
        .filter(owner__is_active=True)
        .select_related("owner__policy", "project__policy", "revision", "rollout")
    )
    if deployments is not None:
        live = live.filter(pk__in=deployments)
    rows = list(live.defer("owner__password").prefetch_related("hosts"))
    if not rows:
        return ServiceRows([], [])
    now, ids = clock.now(), [row.pk for row in rows]
    tokens: dict[str, list[ServiceToken]] = {}
    month_ends = month_end(now.timestamp())
    for token in DeploymentToken.objects.valid().with_usage().filter(deployment__in=ids).order_by("pk"):
        tokens.setdefault(token.deployment_id, []).append(_token(token, month_ends))
    replicas: dict[str, list[ReplicaRoute]] = {}
    for deployment_id, route in _replica_routes(ids, now):
        replicas.setdefault(deployment_id, []).append(route)
    services = [_service(row, tokens.get(row.pk, ()), replicas.get(row.pk, ())) for row in rows]
    return ServiceRows(services, [each.route for found in replicas.values() for each in found])


def read_here(deployments: Collection[str]) -> list[Route]:
    """Return the routes to the replicas of these deployments on this host, for its gateway. Two queries."""
    return routes.read_here(sessions_of(deployments))


def sessions_of(deployments: Collection[str]) -> list[str]:
    """Return the ids of the sessions that serve these deployments, or may still do."""
    return list(Replica.objects.live().filter(deployment__in=deployments).values_list("pk", flat=True))


def _replica_routes(deployments: Collection[str], now: datetime) -> Iterable[tuple[str, ReplicaRoute]]:
    running = Endpoint.objects.unclosed().filter(
        session__status=Status.RUNNING, session__address__isnull=False, session__replica__deployment__in=deployments
    )
    found = routes.with_keys(running).select_related("session__replica")
    numbered = found.annotate(number=F("session__replica__revision__number"))
    for endpoint in numbered.order_by("session__created_at", "pk"):
        replica, host = endpoint.session.replica, endpoint.session.host
        if route := routes.route_of(endpoint, now, bytes(endpoint.host_key or b"")):
            is_reachable = host is not None and host.status != HostStatus.LOST
            yield (
                replica.deployment_id,
                ReplicaRoute(
                    route=route,
                    takes_requests=replica.takes_requests and is_reachable,
                    revision=endpoint.number,
                ),
            )


def _service(row: Deployment, tokens: Collection[ServiceToken], replicas: Collection[ReplicaRoute]) -> Service:
    return Service(
        label=row.label,
        deployment=row.pk,
        owner=row.owner_id,
        epoch=row.epoch,
        is_public=row.is_public and row.allows_public,
        tokens=tuple(tokens),
        replicas=tuple(replicas),
        sticky=row.sticky_key,
        concurrency=row.concurrency,
        queue=row.queue,
        condition=_condition(row),
        wakes=_wakes(row),
        wake_seconds=row.wake_seconds,
        allowed_origins=tuple(row.allowed_origins),
        weights=_weights(row, replicas),
        hosts=tuple(host.name for host in row.hosts.all()),
        listen_port=row.listen_port if site().is_by_port else None,
    )


def _wakes(row: Deployment) -> bool:
    """Return whether a request that finds no replica is to wait for one: it sleeps, or has just woken."""
    return row.asleep_since is not None or row.waking_since is not None


def _weights(row: Deployment, replicas: Collection[ReplicaRoute]) -> tuple[tuple[int, int], ...]:
    """Return the share of each revision while one is rolled out by steps."""
    rollout: StepwiseRollout | None = getattr(row, "rollout", None)
    if rollout is None or row.revision is None:
        return ()
    ready = Counter(each.revision for each in replicas if each.takes_requests)
    return stepwise.weights(row.revision.number, rollout.percent_now, ready)


def _condition(row: Deployment) -> AppCondition:
    state, words = _CONDITIONS.get(DeploymentState(row.state), ("failed", row.problem.partition("\n")[0]))
    return AppCondition(state=state, title=row.name, detail=words or "None of its replicas is healthy.")


def _token(row: DeploymentToken, month_ends: float) -> ServiceToken:
    expires_at = row.expires_at.timestamp() if row.expires_at else inf
    return ServiceToken(
        pk=row.pk,
        digest=row.digest,
        expires_at=expires_at,
        rate=row.rate_per_minute,
        monthly_requests=row.monthly_requests,
        monthly_tokens=row.monthly_tokens,
        spent=metering.spent_of(row, month_ends),
    )
