"""Reads what users and projects have used of resource groups, and their weights."""

from collections.abc import Collection, Mapping

from django.db.models import F, Q, QuerySet
from django.db.models.functions import Coalesce

from accounts.models import DEFAULT_WEIGHT, Project, User
from resources.amounts.units import CORE_MILLI
from scheduler.core.types import Association, DecayedUsage, QueueOrder, Rules
from sessions.lifecycle import Status
from sessions.models import FairUse, Session

Used = dict[tuple[int, Association], DecayedUsage]  # by group


def has_fair_group(rules: Mapping[int, Rules]) -> bool:
    """Return whether any group has fair order."""
    return any(rule.queue_order == QueueOrder.FAIR for rule in rules.values())


def load_used() -> Used:
    """Return what ended sessions have used; takes one query."""
    return _rows(FairUse.objects.all())


def used_by_owners_of(session_ids: Collection[str]) -> Used:
    """Return the same for the owners of those of these sessions that were charged; takes two queries.

    These have ended, are parked, or were resized.
    """
    has_ended = Q(ended_at__isnull=False, started_at__isnull=False)
    charged = Session.objects.filter(has_ended | Q(status=Status.PARKED) | Q(past_sizes__isnull=False))
    owner_ids = set(charged.filter(pk__in=session_ids).order_by().values_list("owner_id", flat=True))
    return _rows(FairUse.objects.filter(user__in=owner_ids)) if owner_ids else {}


def load_weights() -> dict[Association, int]:
    """Return the weights of users and projects that differ from the default; takes two queries."""
    users = User.objects.annotate(weight=Coalesce("share_weight", "policy__share_weight"))
    own = users.filter(~Q(weight=DEFAULT_WEIGHT)).values_list("pk", "weight")
    projects = Project.objects.exclude(share_weight=DEFAULT_WEIGHT).order_by().values_list("pk", "share_weight")
    return {Association(0, pk): weight for pk, weight in own} | {Association(pk, 0): weight for pk, weight in projects}


def _rows(uses: QuerySet[FairUse]) -> Used:
    amounts = (F("cpu_seconds") * CORE_MILLI, "memory_byte_seconds", "fgpu_milli_seconds", "at")
    rows = uses.order_by().values_list("group_id", "project_id", "user_id", *amounts)
    return {(row[0], Association(row[1] or 0, row[2])): DecayedUsage(*row[3:]) for row in rows}
