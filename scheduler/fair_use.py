"""Reads what users have used of resource groups, and their weights."""

from collections.abc import Collection, Mapping

from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.models import DEFAULT_WEIGHT, User
from scheduler.core.types import DecayedUsage, QueueOrder, Rules
from sessions.models import FairUse, Session

Used = dict[tuple[int, int], DecayedUsage]  # by group and user


def has_fair_group(rules: Mapping[int, Rules]) -> bool:
    """Return whether any group has fair order."""
    return any(rule.queue_order == QueueOrder.FAIR for rule in rules.values())


def load_used() -> Used:
    """Return what ended sessions have used; takes one query."""
    return _rows(FairUse.objects.all())


def used_by_owners_of(session_ids: Collection[str]) -> Used:
    """Return the same for the owners of those of these sessions that have ended; takes two queries."""
    ended = Session.objects.filter(pk__in=session_ids, ended_at__isnull=False, started_at__isnull=False)
    owner_ids = set(ended.order_by().values_list("owner_id", flat=True))
    return _rows(FairUse.objects.filter(user__in=owner_ids)) if owner_ids else {}


def load_weights() -> dict[int, int]:
    """Return the weights that differ from the default, by user id; takes one query."""
    users = User.objects.annotate(weight=Coalesce("share_weight", "policy__share_weight"))
    return dict(users.filter(~Q(weight=DEFAULT_WEIGHT)).values_list("pk", "weight"))


def _rows(uses: QuerySet[FairUse]) -> Used:
    amounts = ("cpu_seconds", "memory_byte_seconds", "fgpu_milli_seconds", "at")
    return {
        (row[0], row[1]): DecayedUsage(*row[2:]) for row in uses.order_by().values_list("group_id", "user_id", *amounts)
    }
