"""Removes old rows in small parts: history, for which settings say how long it stays, and messages.

A session itself is kept for longest, with what it asked for, held, how it ended, and its changes of status: usage
reports rest on those. What every table keeps for how long is in docs/growth.md.
"""

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from axes.models import AccessAttempt, AccessFailureLog, AccessLog
from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session as LoginRow
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from accounts.models import AccountInvitation, ApiToken, AuditEntry
from arrays.models import Array, ArrayTask
from deployments.models import Deployment, DeploymentEvent, DeploymentToken, TokenUsage
from imports.models import Import, ImportTarget
from notifications.models import Announcement, Notification
from resources.models import ElasticHost
from restapi import idempotency
from restapi.models import IdempotencyKey
from sessions.models import (
    Cluster,
    Dependency,
    EndpointEvent,
    Session,
    SessionEvent,
    ShareLink,
    StartForecast,
    UsageDay,
    UsageHistory,
)
from sessions.usage import sums
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
        if 0 < (days := rule.days()) < now.toordinal():  # there are no dates before
            removed[rule.name] = sum(rule.parts(now - timedelta(days=days)))
    if any(removed.values()):
        logger.info("removed what was kept for long enough: %s", removed)
    return removed


def _delete(rows: QuerySet[Any]) -> int:
    return rows.delete()[0]


def _by_age(
    rows: Callable[[datetime], QuerySet[Any]],
    delete: Callable[[QuerySet[Any]], int] = _delete,
    part: int | None = None,
) -> Callable[[datetime], Iterator[int]]:
    """Return what deletes the rows of a query, part by part."""

    def parts(before: datetime) -> Iterator[int]:
        size = part or PART
        for _part in range(MAX_PARTS):
            found = list(rows(before).values_list("pk", flat=True)[:size])
            if found:
                yield delete(rows(before).model._default_manager.filter(pk__in=found))
            if len(found) < size:
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


def _sessions(before: datetime) -> QuerySet[Any]:
    """Return ended sessions; without those of clusters that go on, and those that others wait for or come from."""
    alone = Q(cluster=None) | Q(cluster__ended_at__lt=before)
    waited_for = Dependency.objects.filter(to_session=OuterRef("pk"), from_session__ended_at=None)
    fetched = Import.objects.filter(session=OuterRef("pk"))
    ended = Session.objects.filter(alone, ended_at__lt=before)
    return ended.exclude(Exists(waited_for)).exclude(Exists(fetched)).order_by("pk")


@transaction.atomic
def _delete_deployments(rows: QuerySet[Any]) -> int:
    """Delete deployments with their revisions, to which they refer themselves."""
    rows.update(revision=None, previous_revision=None, given_up=None)
    return _delete(rows)


def _setting_rule(name: str, setting: str, rows: Callable[[datetime], QuerySet[Any]]) -> RetentionRule:
    """Return the rule of rows that are kept for as many days as a setting says."""
    return RetentionRule(name, lambda: getattr(settings, setting), _by_age(lambda before: rows(before).order_by("pk")))


def _sign_in_rule(model: Any) -> RetentionRule:
    def rows(before: datetime) -> QuerySet[Any]:
        found: QuerySet[Any] = model._default_manager.filter(attempt_time__lt=before)
        return found

    return _setting_rule(model._meta.model_name, "COMPUTE_SIGN_IN_DAYS", rows)


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
    _setting_rule("share_links", "COMPUTE_EVENTS_DAYS", lambda before: ShareLink.objects.filter(expires_at__lt=before)),
    _setting_rule(
        "deployment_events",
        "COMPUTE_EVENTS_DAYS",
        lambda before: DeploymentEvent.objects.filter(deployment__ended_at__lt=before, at__lt=before),
    ),
    _setting_rule(
        "announcements", "COMPUTE_EVENTS_DAYS", lambda before: Announcement.objects.filter(ends_at__lt=before)
    ),
    _setting_rule(
        "elastic_hosts",
        "COMPUTE_STATISTICS_DAYS",
        lambda before: ElasticHost.objects.filter(ended_at__lt=before, host=None),
    ),
    _created_rule(StartForecast, timedelta(days=30)),
    RetentionRule(
        "usage_histories",
        lambda: settings.COMPUTE_STATISTICS_DAYS,
        _of_ended_sessions(UsageHistory.objects.all(), "session"),
    ),
    _setting_rule(
        "array_tasks",
        "COMPUTE_STATISTICS_DAYS",
        lambda before: ArrayTask.objects.filter(array__ended_at__lt=before),
    ),
    _setting_rule(
        "arrays", "COMPUTE_STATISTICS_DAYS", lambda before: Array.objects.filter(ended_at__lt=before, tasks=None)
    ),
    _setting_rule("usage_days", "COMPUTE_USAGE_DAYS", lambda before: UsageDay.objects.filter(day__lt=before.date())),
    RetentionRule("summed_days", sums.retention_days, _by_age(sums.old_days)),
    _setting_rule("audit_entries", "COMPUTE_AUDIT_DAYS", lambda before: AuditEntry.objects.filter(at__lt=before)),
    _setting_rule("admin_log", "COMPUTE_AUDIT_DAYS", lambda before: LogEntry.objects.filter(action_time__lt=before)),
    _ended_imports_rule("looks", LOOKS, Import.objects.filter(target=ImportTarget.LOOK)),
    _ended_imports_rule("imports", IMPORTS, Import.objects.exclude(target=ImportTarget.LOOK)),
    _created_rule(Notification, NOTIFICATIONS),
    _created_rule(WebhookDelivery, deliveries.RETENTION),
    _created_rule(IdempotencyKey, idempotency.RETENTION),
    *(_sign_in_rule(model) for model in (AccessAttempt, AccessFailureLog, AccessLog)),
    # Rows of browsers' logins that have expired; they admit nobody. So do tokens and invitations.
    _setting_rule(
        "login_sessions", "COMPUTE_SIGN_IN_DAYS", lambda before: LoginRow.objects.filter(expire_date__lt=before)
    ),
    _setting_rule("api_tokens", "COMPUTE_SIGN_IN_DAYS", lambda before: ApiToken.objects.filter(expiry__lt=before)),
    _setting_rule(
        "invitations", "COMPUTE_SIGN_IN_DAYS", lambda before: AccountInvitation.objects.filter(expires_at__lt=before)
    ),
    RetentionRule("sessions", lambda: settings.COMPUTE_SESSIONS_DAYS, _by_age(_sessions, part=SESSIONS_AT_ONCE)),
    _setting_rule(
        "clusters", "COMPUTE_SESSIONS_DAYS", lambda before: Cluster.objects.filter(ended_at__lt=before, members=None)
    ),
    RetentionRule(
        "deployments",
        lambda: settings.COMPUTE_SESSIONS_DAYS,
        _by_age(
            lambda before: Deployment.objects.filter(ended_at__lt=before).order_by("pk"),
            _delete_deployments,
            part=SESSIONS_AT_ONCE,
        ),
    ),
    _setting_rule(
        "deployment_tokens",
        "COMPUTE_SESSIONS_DAYS",
        lambda before: DeploymentToken.objects.filter(Q(revoked_at__lt=before) | Q(expires_at__lt=before)),
    ),
    _setting_rule(
        "token_usage", "COMPUTE_SESSIONS_DAYS", lambda before: TokenUsage.objects.filter(month__lt=before.date())
    ),
)
