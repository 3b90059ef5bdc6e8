"""Tells owners what became of their deployments: what does not serve, rollouts, tokens and budgets.

All is found in rows that others write, and each thing has a key by which it is told once; so this may run at any time,
twice, or late. A deployment that comes and goes is told of as long as it takes to settle: once.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction
from django.db.models import F, Q

from deployments.counts import with_counts
from deployments.models import Deployment, DeploymentState, DeploymentToken
from deployments.usage.metering import budgets_of, used_of
from notifications.kinds import NoticeKind
from notifications.models import Notification, ServingWatch
from notifications.services import tell
from proxy.budgets import month_of
from resources import clock

DOWN_AFTER: Final = timedelta(seconds=30)  # without a replica that takes requests
UP_AFTER: Final = timedelta(minutes=5)  # with one
RECENTLY: Final = timedelta(days=15)  # longer than a rollout by steps takes
EXPIRES_WITHIN: Final = timedelta(days=7)
LOW_PERCENT: Final = 80  # of a budget
FAILED_STARTS: Final = "Its replicas failed before any was healthy."

Found = tuple[str, Deployment, NoticeKind, dict[str, Any]]  # key, whose owner is told, of what, and the text's facts


def announce() -> int:
    """Tell the owners all that they were not told yet; return how many were told. Idempotent."""
    now = clock.now()
    with transaction.atomic():
        found = [*_serving(now), *_revisions(now), *_expiring(now), *_budgets(now)]
        known = set(Notification.objects.filter(key__in=[key for key, *_ in found]).values_list("key", flat=True))
        return sum(
            tell(deployment.owner_id, kind, key, facts={"deployment": deployment.pk, "name": deployment.name, **facts})
            for key, deployment, kind, facts in found
            if key not in known
        )


def _serving(now: datetime) -> Iterable[Found]:
    """Yield which have not served for a while, or serve again; note whether each serves."""
    live = with_counts(Deployment.objects.live().filter(replicas__gt=0, waking_since=None))
    rows: dict[str, Any] = {row.pk: row for row in live}
    ServingWatch.objects.exclude(deployment__in=rows).delete()  # they are not to serve
    watches = {each.pk: each for each in ServingWatch.objects.select_for_update()}
    for pk, row in rows.items():
        serves, watch = row.ready > 0, watches.get(pk)
        if watch is None:
            if serves or row.state == DeploymentState.FAILING:
                ServingWatch.objects.get_or_create(deployment=row, defaults={"serves": serves, "since": now})
            continue
        if watch.serves != serves:
            watch.serves, watch.since = serves, now
            watch.save(update_fields=["serves", "since"])
        elif now - watch.since >= (UP_AFTER if serves else DOWN_AFTER) and watch.is_down_told == serves:
            watch.is_down_told = not serves
            watch.save(update_fields=["is_down_told"])
            kind = NoticeKind.DEPLOYMENT_UP if serves else NoticeKind.DEPLOYMENT_DOWN
            yield f"{kind}:{pk}:{int(watch.since.timestamp())}", row, kind, {"detail": row.problem.partition("\n")[0]}


def _revisions(now: datetime) -> Iterable[Found]:
    """Yield revisions that were given up, and those that all replicas run."""
    recent = Deployment.objects.live().filter(activated_at__gt=now - RECENTLY).select_related("revision", "given_up")
    for row in recent.filter(given_up__isnull=False):
        assert row.given_up is not None
        facts = {"revision": row.given_up.number, "detail": row.given_up_why or FAILED_STARTS}
        yield _key(NoticeKind.REVISION_FAILED, row), row, NoticeKind.REVISION_FAILED, facts
    settled = Q(state=DeploymentState.HEALTHY, given_up=None, previous_revision__isnull=False, rollout=None)
    done: Iterable[Any] = with_counts(recent.filter(settled, replicas__gt=0))
    for row in done:
        if row.live == row.updated and row.ready >= row.replicas:
            yield _key(NoticeKind.ROLLOUT_DONE, row), row, NoticeKind.ROLLOUT_DONE, {"revision": row.revision.number}


def _expiring(now: datetime) -> Iterable[Found]:
    """Yield tokens that end within a week, unless they were made for less."""
    soon = _tokens().filter(expires_at__lte=now + EXPIRES_WITHIN, created_at__lt=F("expires_at") - EXPIRES_WITHIN)
    for token in soon:
        assert token.expires_at is not None
        facts = {"token": token.name, "ends_at": token.expires_at.isoformat()}
        key = f"{NoticeKind.TOKEN_EXPIRING}:{token.pk}:{int(token.expires_at.timestamp())}"
        yield key, token.deployment, NoticeKind.TOKEN_EXPIRING, facts


def _budgets(now: datetime) -> Iterable[Found]:
    """Yield budgets of this month that are spent, or nearly so: told anew where they were raised since."""
    limited = _tokens().with_usage().filter(Q(monthly_requests__gt=0) | Q(monthly_tokens__gt=0))
    for token in limited:
        for name, budget, used in budgets_of(token, used_of(token)):
            if used * 100 < budget * LOW_PERCENT:
                continue
            kind = NoticeKind.BUDGET_SPENT if used >= budget else NoticeKind.BUDGET_LOW
            facts = {"token": token.name, "budget": name, "used": used, "limit": budget}
            yield f"{kind}:{token.pk}:{name}:{month_of(now):%Y-%m}:{budget}", token.deployment, kind, facts


def _tokens() -> Any:
    rows = DeploymentToken.objects.valid().filter(is_trial=False, deployment__ended_at=None)
    return rows.select_related("deployment")


def _key(kind: NoticeKind, row: Deployment) -> str:
    """Return the key of what became of the revision that is current now, since it was activated."""
    assert row.activated_at is not None
    return f"{kind}:{row.pk}:{row.revision_id}:{int(row.activated_at.timestamp())}"
