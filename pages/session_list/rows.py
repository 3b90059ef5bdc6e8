"""Rows of the list as values: all that a row shows. Equal rows look the same, so each is rendered once per process."""

from dataclasses import dataclass
from datetime import datetime

from pages.session_list.list_query import TAB_OF
from resources.accelerators.kinds import kind_name
from scheduler.advice.wait_help import WaitHelp
from sessions.lifecycle import FINAL, Status, Tab


@dataclass(frozen=True, slots=True)
class FolderMark:
    """A folder that a session mounts."""

    name: str
    path: str
    is_read_only: bool
    problem: str
    is_over_quota: bool


@dataclass(frozen=True, slots=True)
class MemberMark:
    """A member of a cluster."""

    pk: str
    name: str  # its host name there
    status: str
    host: str
    amounts: tuple[int, int, int] | None  # cores, bytes and milli-fGPU, where the first member has others


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the list shows of a session, but for its live use. Amounts are cores, bytes and milli-fGPU."""

    pk: str
    name: str
    owner_id: int
    owner: str
    status: str  # of a cluster: of the whole
    reason: str
    is_host_lost: bool
    result: str
    exit_code: int | None
    eta: datetime | None
    starts_from: datetime | None  # the range in which it is likely to start
    starts_until: datetime | None
    eta_reason: str
    not_before: datetime | None
    environment: str
    version: str
    cpu: int
    core_milli: int  # thousandths of each core that are guaranteed
    memory: int
    shared_memory: int
    fgpu: int
    gpu_memory: int
    gpu_milli: int  # of its devices' time, in thousandths: 500 is half of one device, or of each of two
    gpu_names: tuple[str, ...]
    is_simulated: bool
    tier: str
    group: str
    accelerator: str  # the kind of devices that it lends
    deployment_id: str | None  # of which it is a replica
    deployment: str | None  # its name
    host: str
    members: tuple[MemberMark, ...]  # of its cluster, by rank; none without
    behind: str  # the name of the member that is less far than the first, of which status and reason are; "" for none
    folders: tuple[FolderMark, ...]
    public_apps: tuple[str, ...]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    ends_at: datetime | None
    idle_ends_at: datetime | None
    may_be_extended: bool
    end_actor_id: int | None  # who asked for its end, while that can be undone
    help: WaitHelp | None = None  # in the lists of its owner alone
    keeps_help: bool = False  # it was not looked for: what a page shows stays

    @property
    def device(self) -> str:
        """What its devices are called."""
        return kind_name(self.accelerator)

    @property
    def tab(self) -> Tab:
        """The tab that lists it."""
        return TAB_OF[self.status]

    @property
    def created_ms(self) -> int:
        """When it was reserved, in milliseconds of Unix time."""
        return int(self.created_at.timestamp() * 1000)

    @property
    def is_final(self) -> bool:
        """True once it has ended."""
        return self.status in FINAL

    @property
    def is_running(self) -> bool:
        """True while its apps, terminal and use can be shown."""
        return self.status == Status.RUNNING

    @property
    def is_parked(self) -> bool:
        """True while it can be resumed."""
        return self.status == Status.PARKED

    @property
    def may_end(self) -> bool:
        """True while it can be terminated."""
        return not self.is_final and self.status != Status.TERMINATING

    def may_be_undone_by(self, user_id: int, *, is_superadmin: bool) -> bool:
        """As `RequestedEnd.may_be_undone_by`; False where no end was asked for."""
        return self.end_actor_id is not None and (is_superadmin or self.end_actor_id == user_id)

    @property
    def folder_problems(self) -> tuple[FolderMark, ...]:
        """The folders that are not there as asked, while that matters."""
        return () if self.is_final else tuple(each for each in self.folders if each.problem or each.is_over_quota)
