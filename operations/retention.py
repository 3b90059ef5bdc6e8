"""Removes old rows in small parts: events and statistics, for which settings say how long they stay, and messages.

A session itself is kept, with what it asked for, held, how it ended, and its changes of status: usage reports rest on
those.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.sessions.models import Session as LoginRow
from django.db.models import Exists, F, OuterRef, QuerySet

from accounts.models import AuditEntry
from arrays.models import Array, ArrayTask
from deployments.models import DeploymentEvent
from imports.models import Import, ImportTarget
from notifications.models import Notification
from resources.models import ElasticHost
from restapi import idempotency
from restapi.models import IdempotencyKey
from sessions.models import EndpointEvent, Session, SessionEvent, StartForecast, UsageDay, UsageHistory
from webhooks.delivery import deliveries
from webhooks.models import WebhookDelivery

PART: Final = 1000  # rows that one statement deletes, so that it locks nothing for long
MAX_PARTS: Final = 200  # of each kind in one run; the next one goes on
NOTIFICATIONS: Final = timedelta(days=90)
IMPORTS: Final = timedelta(days=90)
LOOKS: Final = timedelta(days=1)
SESSIONS_AT_ONCE: Final = 100  # of which the rows are deleted together

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """What is removed, and after how many days; 0: never."""

    name: str
    days: Callable[[], int]
    parts: Callable[[datetime], Iterator[int]]  # deletes what is older than the moment; yields the rows of each part


def remove_old(now: datetime) -> dict[str, int]:
    """Remove what is older than the settings say; return how many rows of each kind. Idempotent."""
    removed = {}
    for rule in RULES:
        if (days := rule.days()) > 0:
            removed[rule.name] = sum(rule.parts(now - timedelta(days=days)))
    if any(removed.values()):
        logger.info("removed what was kept for long enough: %s", removed)
    return removed


def _by_age(rows: Callable[[datetime], QuerySet[Any]]) -> Callable[[datetime], Iterator[int]]:
    """Return what deletes the rows of a query, part by part."""

    def parts(before: datetime) -> Iterator[int]:
        for _part in range(MAX_PARTS):
            found = list(rows(before).values_list("pk", flat=True)[:PART])
            if found:
                yield rows(before).model._default_manager.filter(pk__in=found).delete()[0]
            if len(found) < PART:
                return

    return parts


def _of_ended_sessions(rows: QuerySet[Any], path: str) -> Callable[[datetime], Iterator[int]]:
    """Return what deletes those rows whose session, at `path`, has ended; of some sessions at a time."""

    def parts(before: datetime) -> Iterator[int]:
        own = rows.filter(**{path: OuterRef("pk")}).order_by()
        ended = Session.objects.filter(Exists(own), ended_at__lt=before).order_by("pk")
        for _part in range(MAX_PARTS):
            found = list(ended.values_list("pk", flat=True)[:SESSIONS_AT_ONCE])
            if found:
                yield rows.filter(**{f"{path}__in": found}).delete()[0]
            if len(found) < SESSIONS_AT_ONCE:
                return

    return parts


def _sign_in_rule(model: Any) -> RetentionRule:
    def rows(before: datetime) -> QuerySet[Any]:
        found: QuerySet[Any] = model._default_manager.filter(attempt_time__lt=before).order_by("pk")
        return found

    return RetentionRule(model._meta.model_name, lambda: settings.COMPUTE_SIGN_IN_DAYS, _by_age(rows))


def _created_rule(model: Any, span: timedelta) -> RetentionRule:
    """Return the rule of rows that no setting keeps for longer."""

    def rows(before: datetime) -> QuerySet[Any]:
        found: QuerySet[Any] = model._default_manager.filter(created_at__lt=before).order_by("pk")
        return found

    return RetentionRule(model._meta.model_name, lambda: span.days, _by_age(rows))


def _ended_imports_rule(name: str, span: timedelta, rows: QuerySet[Any]) -> RetentionRule:
    """Return the rule of those imports once they have ended."""
    return RetentionRule(
        name, lambda: span.days, _by_age(lambda before: rows.filter(ended_at__lt=before).order_by("pk"))
    )


RULES: Final = (
    RetentionRule(
        "session_events",
        lambda: settings.COMPUTE_EVENTS_DAYS,
        _of_ended_sessions(SessionEvent.objects.filter(old_status=F("new_status")), "session"),
    ),
    RetentionRule(
        "app_events",
        lambda: settings.COMPUTE_EVENTS_DAYS,
        _of_ended_sessions(EndpointEvent.objects.all(), "endpoint__session"),
    ),
    RetentionRule(
        "deployment_events",
        lambda: settings.COMPUTE_EVENTS_DAYS,
        _by_age(
            lambda before: DeploymentEvent.objects.filter(deployment__ended_at__lt=before, at__lt=before).order_by("pk")
        ),
    ),
    RetentionRule(
        "elastic_hosts",
        lambda: settings.COMPUTE_STATISTICS_DAYS,
        _by_age(lambda before: ElasticHost.objects.filter(ended_at__lt=before, host=None).order_by("pk")),
    ),
    _created_rule(StartForecast, timedelta(days=30)),
    RetentionRule(
        "usage_histories",
        lambda: settings.COMPUTE_STATISTICS_DAYS,
        _of_ended_sessions(UsageHistory.objects.all(), "session"),
    ),
    RetentionRule(
        "array_tasks",
        lambda: settings.COMPUTE_STATISTICS_DAYS,
        _by_age(lambda before: ArrayTask.objects.filter(array__ended_at__lt=before).order_by("pk")),
    ),
    RetentionRule(
        "arrays",
        lambda: settings.COMPUTE_STATISTICS_DAYS,
        _by_age(lambda before: Array.objects.filter(ended_at__lt=before, tasks=None).order_by("pk")),
    ),
    RetentionRule(
        "usage_days",
        lambda: settings.COMPUTE_USAGE_DAYS,
        _by_age(lambda before: UsageDay.objects.filter(day__lt=before.date()).order_by("pk")),
    ),
    RetentionRule(
        "audit_entries",
        lambda: settings.COMPUTE_AUDIT_DAYS,
        _by_age(lambda before: AuditEntry.objects.filter(at__lt=before).order_by("pk")),
    ),
    _ended_imports_rule("looks", LOOKS, Import.objects.filter(target=ImportTarget.LOOK)),
    _ended_imports_rule("imports", IMPORTS, Import.objects.exclude(target=ImportTarget.LOOK)),
    _created_rule(Notification, NOTIFICATIONS),
    _created_rule(WebhookDelivery, deliveries.RETENTION),
    _created_rule(IdempotencyKey, idempotency.RETENTION),
    *(_sign_in_rule(model) for model in (AccessAttempt, AccessFailureLog, AccessLog)),
    # Rows of browsers' logins that have expired; they admit nobody.
    RetentionRule(
        "login_sessions",
        lambda: settings.COMPUTE_SIGN_IN_DAYS,
        _by_age(lambda before: LoginRow.objects.filter(expire_date__lt=before).order_by("pk")),
    ),
)
