"""Reads the rows of the list: five queries at most for any number of sessions, and no model instances."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL
from django.db.models.functions import Least

from pages.session_list.compiled import of_sessions
from pages.session_list.rows import FolderMark, MemberMark, Row
from resources.amounts.units import guaranteed_milli
from resources.gpus.shares import share_bytes
from resources.gpus.tiers import share_tiers
from resources.models import HostStatus
from scheduler.advice.wait_help import help_for
from sessions.lifecycle import FINAL, LIVE, UNPLACED, Reason, Status, whole_of
from sessions.models import MIN_EXTENSION, Endpoint, GpuShare, Mount, Session, end_expression, in_whole, member_name
from sessions.words import reason_text

MAX_HELPED: Final = 10  # waiting sessions of a page: each costs some milliseconds
# Fields of a row that show a column as it is, by that column's name; `_sessions` selects them first.
_COLUMNS: Final = {
    "pk": "id",
    "owner_id": "owner_id",
    "owner": "owner__email",
    "environment": "image__environment",
    "version": "image__version",
    "group": "resource_group__name",
    "accelerator": "resource_group__accelerator",
    "deployment_id": "replica__deployment_id",
    "deployment": "replica__deployment__name",
} | {
    name: name
    for name in (
        *("name", "status", "result", "exit_code", "eta_reason", "cpu", "memory", "shared_memory", "fgpu"),
        *("created_at", "started_at", "ended_at"),
    )
}


class _Facts(NamedTuple):
    """What else is known of a session, from which fields of its row are derived, as `_sessions` selects it."""

    reason: str
    detail: str
    eta: datetime | None
    starts_from: datetime | None
    starts_until: datetime | None
    not_before: datetime | None
    fgpu_per_gpu: int
    core_milli: int
    cpu_overcommit: Decimal
    host: str | None
    host_status: str | None
    drain_by: datetime | None
    preempt_by: datetime | None
    extension: timedelta
    max_extension: timedelta
    cluster: str | None
    ends_at: datetime | None
    idle_ends_at: datetime | None
    end_actor_id: int | None


class _Member(NamedTuple):
    """A member of a cluster, as `_members` selects it."""

    cluster: str
    rank: int
    pk: str
    status: str
    host: str | None
    reason: str
    detail: str
    cpu: int
    memory: int
    fgpu: int

    def mark(self, first: "_Member") -> MemberMark:
        """Return what its row shows, with its amounts where the first has others."""
        amounts = (self.cpu, self.memory, self.fgpu)
        own = None if amounts == (first.cpu, first.memory, first.fgpu) else amounts
        return MemberMark(self.pk, member_name(self.rank), self.status, self.host or "", own)


class _Share(NamedTuple):
    """A share of a GPU that a session holds, as `_shares` selects it."""

    session_id: str
    milli: int
    gpu: str
    gpu_memory: int
    is_simulated: bool
    tier: str


def load_rows(session_ids: Sequence[str]) -> list[Row]:
    """Return the rows of those of these sessions that lists show, in the order of the ids; five queries at most."""
    found = {values[0]: values for values in of_sessions(_sessions, session_ids)}
    members: defaultdict[str, list[_Member]] = defaultdict(list)
    clusters = [pk for pk, values in found.items() if _facts(values).cluster]
    for member in map(_Member._make, of_sessions(_members, clusters) if clusters else ()):
        members[member.cluster].append(member)
    shares: defaultdict[str, list[_Share]] = defaultdict(list)
    for share in map(_Share._make, of_sessions(_shares, session_ids)):
        shares[share.session_id].append(share)
    folders: defaultdict[str, list[FolderMark]] = defaultdict(list)
    for session_id, *mark in of_sessions(_mounts, session_ids):
        folders[session_id].append(FolderMark(*mark))
    public: defaultdict[str, list[str]] = defaultdict(list)
    for session_id, title in of_sessions(_public_apps, session_ids):
        public[session_id].append(title)
    return [_row(found[pk], members[pk], shares[pk], folders[pk], public[pk]) for pk in session_ids if pk in found]


def with_help(rows: Iterable[Row], owner_ids: Collection[int]) -> list[Row]:
    """Return the rows, with what helps those of these owners that wait: a few queries more where there are such.

    It is looked for the first ones, as far as that takes no long; what a page shows of others is to stay.
    """
    shown = list(rows)
    waiting = [row.pk for row in shown if row.status == Status.PENDING and row.owner_id in owner_ids]
    helps = help_for(waiting[:MAX_HELPED]) if waiting else {}
    return [
        replace(row, help=helps.get(row.pk), keeps_help=row.pk not in helps) if row.pk in waiting else row
        for row in shown
    ]


def _sessions(ids: RawSQL) -> QuerySet[Any, Any]:
    return (
        Session.objects.outside_arrays()
        .filter(pk__in=ids)
        .order_by()
        .values_list(
            *_COLUMNS.values(),
            *("reason", "detail", "eta", "start_estimate__starts_from", "start_estimate__starts_until", "not_before"),
            *("resource_group__fgpu_per_gpu", "core_milli"),
            *("resource_group__cpu_overcommit", "host__name", "host__status"),
            *(
                "host__drain_by",
                "preempt_by",
                "extension",
                Least("owner__policy__max_extension", "project__policy__max_extension"),
                "cluster_id",
            ),
            end_expression(),
            "idle_notice__ends_at",
            "requested_end__actor_id",
        )
    )


def _members(ids: RawSQL) -> QuerySet[Any, Any]:
    members = Session.objects.filter(in_whole(), cluster__in=ids).order_by("rank")
    return members.values_list(
        "cluster_id", "rank", "pk", "status", "host__name", *("reason", "detail", "cpu", "memory", "fgpu")
    )


def _shares(ids: RawSQL) -> QuerySet[Any, Any]:
    shares = GpuShare.objects.filter(lease__in=ids).order_by("gpu__index")
    return shares.values_list("lease_id", "milli", "gpu__name", "gpu__memory", "gpu__is_simulated", "gpu__tier")


def _mounts(ids: RawSQL) -> QuerySet[Any, Any]:
    mounts = Mount.objects.filter(session__in=ids).order_by("path")
    return mounts.values_list("session_id", "folder_name", "path", "is_read_only", "problem", "is_held_read_only")


def _public_apps(ids: RawSQL) -> QuerySet[Any, Any]:
    opened = Endpoint.objects.unclosed().filter(session__in=ids, session__status=Status.RUNNING, is_public=True)
    return opened.order_by("title").values_list("session_id", "title")


def _facts(values: tuple[Any, ...]) -> _Facts:
    return _Facts._make(values[len(_COLUMNS) :])


def _row(
    values: tuple[Any, ...],
    members: list[_Member],
    shares: list[_Share],
    folders: list[FolderMark],
    public_apps: list[str],
) -> Row:
    columns: dict[str, Any] = dict(zip(_COLUMNS, values, strict=False))
    facts = _facts(values)
    whole = whole_of([member.status for member in members] or [columns["status"]])
    behind = next((member for member in members if member.status == whole != columns["status"]), None)
    reason, detail = (behind.reason, behind.detail) if behind else (facts.reason, facts.detail)
    columns["status"] = whole
    status, capacity = Status(whole), facts.fgpu_per_gpu * 1000
    tiers = share_tiers([(share.milli, share.tier) for share in shares], capacity)
    is_running = status is Status.RUNNING
    return Row(
        **columns,
        reason="" if is_running else reason_text(reason, detail),
        is_host_lost=status not in FINAL and facts.host_status == HostStatus.LOST,
        eta=facts.eta if status is Status.PENDING else None,
        starts_from=facts.starts_from if status is Status.PENDING else None,
        starts_until=facts.starts_until if status is Status.PENDING else None,
        not_before=facts.not_before if facts.reason == Reason.START_TIME else None,
        core_milli=facts.core_milli if status not in UNPLACED else guaranteed_milli(facts.cpu_overcommit),
        gpu_memory=sum(share_bytes(share.gpu_memory, share.milli, capacity) for share in shares),
        gpu_milli=1000 * columns["fgpu"] // (capacity * len(shares)) if shares else 0,
        gpu_names=tuple(share.gpu for share in shares),
        is_simulated=any(share.is_simulated for share in shares),
        tier=tiers[0].value if tiers else "",
        host=facts.host or "",
        members=tuple(each.mark(members[0]) for each in members),
        behind=member_name(behind.rank) if behind else "",
        folders=tuple(folders),
        public_apps=tuple(public_apps),
        ends_at=facts.ends_at if is_running else None,
        idle_ends_at=facts.idle_ends_at if is_running else None,
        may_be_extended=is_running and _may_be_extended(facts),
        end_actor_id=facts.end_actor_id if status in LIVE - {Status.TERMINATING} else None,
    )


def _may_be_extended(facts: _Facts) -> bool:
    """As `Session.may_be_extended`."""
    is_limited = facts.ends_at is not None and facts.drain_by is None and facts.preempt_by is None
    return is_limited and facts.max_extension - facts.extension >= MIN_EXTENSION
