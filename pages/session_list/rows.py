"""Rows of the list as values: all that a row shows. Equal rows look the same, so each is rendered once per process."""

from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Final

from django.db.models import Prefetch, QuerySet
from django.template.loader import get_template
from django.utils import translation
from django.utils.safestring import SafeString, mark_safe

from resources.models import HostStatus
from resources.shares import share_bytes
from sessions.lifecycle import FINAL, TABS, Reason, Status, Tab
from sessions.models import Endpoint, Mount, Session
from sessions.words import reason_text

RENDERED_ROWS: Final = 4096  # of a process; about 5 kB each
_TAB_OF: Final = {status.value: tab for tab, statuses in TABS.items() for status in statuses}


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderMark:
    """A folder that a session mounts."""

    name: str
    path: str
    is_read_only: bool
    problem: str
    is_over_quota: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the list shows of a session, but for its live use. Amounts are cores, bytes and milli-fGPU."""

    pk: str
    name: str
    owner: str
    status: str
    reason: str
    is_host_lost: bool
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
    gpu_memory: int
    gpu_milli: int  # of its devices' time, in thousandths: 500 is half of one device, or of each of two
    gpu_names: tuple[str, ...]
    is_simulated: bool
    tier: str
    group: str
    host: str
    folders: tuple[FolderMark, ...]
    public_apps: tuple[str, ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    ends_at: datetime | None
    may_be_extended: bool

    @property
    def tab(self) -> Tab:
        """The tab that lists it."""
        return _TAB_OF[self.status]

    @property
    def is_final(self) -> bool:
        """True once it has ended."""
        return self.status in FINAL

    @property
    def is_running(self) -> bool:
        """True while its apps, terminal and use can be shown."""
        return self.status == Status.RUNNING

    @property
    def may_end(self) -> bool:
        """True while it can be terminated."""
        return not self.is_final and self.status != Status.TERMINATING

    @property
    def folder_problems(self) -> tuple[FolderMark, ...]:
        """The folders that are not there as asked, while that matters."""
        return () if self.is_final else tuple(each for each in self.folders if each.problem or each.is_over_quota)


def load_rows(sessions: QuerySet[Session]) -> list[Row]:
    """Return the rows of these sessions, in their order; five queries."""
    public = Endpoint.objects.unclosed().filter(is_public=True)
    related = sessions.select_related("owner__policy", "image", "resource_group", "host", "lease")
    related = related.defer("log_tail", "command", "environment", "ssh_public_key")
    return [
        _row(session)
        for session in related.prefetch_related("lease__shares__gpu", "mounts", Prefetch("endpoints", queryset=public))
    ]


@lru_cache(RENDERED_ROWS)
def _rendered(row: Row, columns: tuple[str, ...], language: str) -> SafeString:
    context = {"row": row, "columns": columns}
    return mark_safe(get_template("session_list/_row.html").render(context))  # noqa: S308  # a template escapes


def render_row(row: Row, columns: tuple[str, ...]) -> SafeString:
    """Return the row as HTML in the active language."""
    return _rendered(row, columns, translation.get_language() or "")


def rendered_count() -> int:
    """Return how many rows this process has rendered, not counting those that were known."""
    return _rendered.cache_info().misses


def _row(session: Session) -> Row:
    shares = session.held_shares
    capacity = session.resource_group.gpu_capacity
    status = Status(session.status)
    return Row(
        pk=session.pk,
        name=session.name,
        owner=session.owner.email,
        status=session.status,
        reason="" if status is Status.RUNNING else reason_text(session.reason, session.detail),
        is_host_lost=status not in FINAL and session.host is not None and session.host.status == HostStatus.LOST,
        result=session.result,
        exit_code=session.exit_code,
        eta=session.eta if status is Status.PENDING else None,
        eta_reason=session.eta_reason,
        not_before=session.not_before if session.reason == Reason.START_TIME else None,
        environment=session.image.environment,
        version=session.image.version,
        cpu=session.cpu,
        memory=session.memory,
        shared_memory=session.shared_memory,
        fgpu=session.fgpu,
        gpu_memory=sum(share_bytes(share.gpu.memory, share.milli, capacity) for share, _ in shares),
        gpu_milli=1000 * session.fgpu // (capacity * len(shares)) if shares else 0,
        gpu_names=tuple(share.gpu.name for share, _ in shares),
        is_simulated=any(share.gpu.is_simulated for share, _ in shares),
        tier=shares[0][1].value if shares else "",
        group=session.resource_group.name,
        host=session.host.name if session.host else "",
        folders=tuple(_mark(mount) for mount in session.mounts.all()),
        public_apps=tuple(endpoint.title for endpoint in session.endpoints.all() if status is Status.RUNNING),
        created_at=session.created_at,
        started_at=session.started_at,
        ended_at=session.ended_at,
        ends_at=session.ends_at if status is Status.RUNNING else None,
        may_be_extended=session.may_be_extended,
    )


def _mark(mount: Mount) -> FolderMark:
    return FolderMark(
        name=mount.folder_name,
        path=mount.path,
        is_read_only=mount.is_read_only,
        problem=mount.problem,
        is_over_quota=mount.is_held_read_only,
    )
