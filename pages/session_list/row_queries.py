"""Reads the rows of the list: four queries for any number of sessions, and no model instances."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import QuerySet
from django.db.models.expressions import RawSQL

from pages.session_list.compiled import of_sessions
from pages.session_list.rows import FolderMark, Row
from resources.models import HostStatus
from resources.shares import share_bytes
from resources.tiers import share_tiers
from sessions.lifecycle import FINAL, Reason, Status
from sessions.models import MIN_EXTENSION, Endpoint, GpuShare, Mount, Session, end_expression
from sessions.words import reason_text


class _Session(NamedTuple):
    """A session with what belongs to it once, as `_sessions` selects it."""

    pk: str
    name: str
    owner: str
    status: str
    reason: str
    detail: str
    result: str
    exit_code: int | None
    eta: datetime | None
    eta_reason: str
    not_before: datetime | None
    environment: str
    version: str
    cpu: int
    memory: int
    shared_memory: int
    fgpu: int
    group: str
    fgpu_per_gpu: int
    host: str | None
    host_status: str | None
    drain_by: datetime | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    extension: timedelta
    max_extension: timedelta
    ends_at: datetime | None


class _Share(NamedTuple):
    """A share of a GPU that a session holds, as `_shares` selects it."""

    session_id: str
    milli: int
    gpu: str
    gpu_memory: int
    is_simulated: bool
    tier: str


def load_rows(session_ids: Sequence[str]) -> list[Row]:
    """Return the rows of those of these sessions that exist, in the order of the ids; four queries."""
    found = {session.pk: session for session in map(_Session._make, of_sessions(_sessions, session_ids))}
    shares: defaultdict[str, list[_Share]] = defaultdict(list)
    for share in map(_Share._make, of_sessions(_shares, session_ids)):
        shares[share.session_id].append(share)
    folders: defaultdict[str, list[FolderMark]] = defaultdict(list)
    for session_id, *mark in of_sessions(_mounts, session_ids):
        folders[session_id].append(FolderMark(*mark))
    public: defaultdict[str, list[str]] = defaultdict(list)
    for session_id, title in of_sessions(_public_apps, session_ids):
        public[session_id].append(title)
    return [_row(found[pk], shares[pk], folders[pk], public[pk]) for pk in session_ids if pk in found]


def _sessions(ids: RawSQL) -> QuerySet[Any, Any]:
    return Session.objects.filter(pk__in=ids).order_by().values_list(
        *("id", "name", "owner__email", "status", "reason", "detail", "result", "exit_code", "eta", "eta_reason"),
        *("not_before", "image__environment", "image__version", "cpu", "memory", "shared_memory", "fgpu"),
        *("resource_group__name", "resource_group__fgpu_per_gpu", "host__name", "host__status", "host__drain_by"),
        *("created_at", "started_at", "ended_at", "extension", "owner__policy__max_extension"),
        end_expression(),
    )  # fmt: skip


def _shares(ids: RawSQL) -> QuerySet[Any, Any]:
    shares = GpuShare.objects.filter(lease__in=ids).order_by("gpu__index")
    return shares.values_list("lease_id", "milli", "gpu__name", "gpu__memory", "gpu__is_simulated", "gpu__tier")


def _mounts(ids: RawSQL) -> QuerySet[Any, Any]:
    mounts = Mount.objects.filter(session__in=ids).order_by("path")
    return mounts.values_list("session_id", "folder_name", "path", "is_read_only", "problem", "is_held_read_only")


def _public_apps(ids: RawSQL) -> QuerySet[Any, Any]:
    opened = Endpoint.objects.unclosed().filter(session__in=ids, session__status=Status.RUNNING, is_public=True)
    return opened.order_by("title").values_list("session_id", "title")


def _row(session: _Session, shares: list[_Share], folders: list[FolderMark], public_apps: list[str]) -> Row:
    status, capacity = Status(session.status), session.fgpu_per_gpu * 1000
    tiers = share_tiers([(share.milli, share.tier) for share in shares], capacity)
    is_running = status is Status.RUNNING
    return Row(
        pk=session.pk,
        name=session.name,
        owner=session.owner,
        status=session.status,
        reason="" if is_running else reason_text(session.reason, session.detail),
        is_host_lost=status not in FINAL and session.host_status == HostStatus.LOST,
        result=session.result,
        exit_code=session.exit_code,
        eta=session.eta if status is Status.PENDING else None,
        eta_reason=session.eta_reason,
        not_before=session.not_before if session.reason == Reason.START_TIME else None,
        environment=session.environment,
        version=session.version,
        cpu=session.cpu,
        memory=session.memory,
        shared_memory=session.shared_memory,
        fgpu=session.fgpu,
        gpu_memory=sum(share_bytes(share.gpu_memory, share.milli, capacity) for share in shares),
        gpu_milli=1000 * session.fgpu // (capacity * len(shares)) if shares else 0,
        gpu_names=tuple(share.gpu for share in shares),
        is_simulated=any(share.is_simulated for share in shares),
        tier=tiers[0].value if tiers else "",
        group=session.group,
        host=session.host or "",
        folders=tuple(folders),
        public_apps=tuple(public_apps),
        created_at=session.created_at,
        started_at=session.started_at,
        ended_at=session.ended_at,
        ends_at=session.ends_at if is_running else None,
        may_be_extended=is_running and _may_be_extended(session),
    )


def _may_be_extended(session: _Session) -> bool:
    """As `Session.may_be_extended`."""
    is_limited = session.ends_at is not None and session.drain_by is None
    return is_limited and session.max_extension - session.extension >= MIN_EXTENSION
