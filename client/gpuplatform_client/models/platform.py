"""What the API returns and takes. Sizes are in bytes; fields that this version does not know are ignored."""

from datetime import date, datetime
from decimal import Decimal
from typing import Final, Literal

from gpuplatform_client.models.api_model import ApiModel

FINAL: Final = frozenset({"TERMINATED", "CANCELLED", "ERROR"})
WAITING: Final = frozenset({"PENDING", "SCHEDULED", "PREPARING"})


class IssuedToken(ApiModel):
    """A token and until when it is valid."""

    token: str
    expiry: datetime | None = None


class AccountInfo(ApiModel):
    """The user whose token is used."""

    email: str
    name: str = ""
    is_superadmin: bool = False


class ImageVersion(ApiModel):
    """An image that the user may launch."""

    reference: str
    environment: str
    version: str
    private: bool = False
    is_enabled: bool = True
    is_default: bool = False
    size: int | None = None
    min_cpu: int = 1
    min_memory: int = 0
    min_fgpu: Decimal = Decimal(0)
    min_gpu_memory: int = 0


class AppState(ApiModel):
    """An app that a session's image offers, or that was opened."""

    name: str
    title: str = ""
    state: str
    url: str | None = None
    detail: str = ""


class HeldGpu(ApiModel):
    """The share of a GPU that a session holds."""

    uuid: str
    fgpu: Decimal
    tier: str = ""


class HostGpu(ApiModel):
    """A GPU or other device of a host, and what of it sessions hold."""

    name: str
    kind: str = "nvidia.com/gpu"
    memory: int
    held: Decimal = Decimal(0)
    capacity: Decimal = Decimal(0)


class HostInfo(ApiModel):
    """A host of the user's resource groups, and what sessions hold there; memory in bytes."""

    name: str
    status: str
    is_cordoned: bool = False
    cordon_reason: str = ""
    resource_group: str
    cpu: int
    cpu_held_milli: int = 0
    memory: int
    memory_held: int = 0
    gpus: tuple[HostGpu, ...] = ()


class ConversionInfo(ApiModel):
    """A session's conversion into an image."""

    id: str
    reference: str
    state: str
    progress: str = ""
    problem: str = ""


class LimitAmounts(ApiModel):
    """Amounts of a policy, used, or left; None is unlimited."""

    cpu: int | None = None
    memory: int | None = None
    fgpu: Decimal | None = None
    sessions: int | None = None
    pending: int | None = None


class AccountLimits(ApiModel):
    """What the policy allows, what is used, and what is left."""

    limits: LimitAmounts
    used: LimitAmounts
    remaining: LimitAmounts


class UsedHours(ApiModel):
    """What sessions have used."""

    gpu_hours: float
    weighted_gpu_hours: float | None = None
    cpu_hours: float
    memory_gib_hours: float
    waiting_hours: float


class UsageRow(ApiModel):
    """What the sessions of a user, project or group have used."""

    name: str
    sessions: int
    used: UsedHours


class UsageTable(ApiModel):
    """What sessions have used from one day to another."""

    since: date
    until: date
    sessions: int
    total: UsedHours
    rows: tuple[UsageRow, ...] = ()


class SessionAmounts(ApiModel):
    """What a session holds, or is to hold; memory in bytes."""

    cpu: int
    memory: int
    fgpu: Decimal = Decimal(0)


class ClusterMember(ApiModel):
    """A member of a cluster: a session with an id of its own, by the name that it has there."""

    id: str
    name: str
    status: str
    reason: str = ""
    cpu: int = 0
    memory: int = 0
    fgpu: Decimal = Decimal(0)
    gpu_memory: int = 0
    min_fgpu: Decimal = Decimal(0)
    host: str | None = None
    exit_code: int | None = None


class ClusterInfo(ApiModel):
    """The cluster of a session, and its members, the first of which has the session's own id."""

    size: int
    max_size: int | None = None
    mode: str = "any"
    shares_gpus: bool = False
    runs_on_all: bool = False
    main_differs: bool = False
    max_restarts: int = 0
    restarts: int = 0
    members: tuple[ClusterMember, ...] = ()


class LikelyStart(ApiModel):
    """Between which times a waiting session is likely to start, and which part of such starts lie in their range."""

    starts_from: datetime | None = None
    starts_until: datetime | None = None
    certainty: float | None = None


class ComputeSession(ApiModel):
    """A session."""

    id: str
    name: str
    owner: str
    status: str
    reason: str = ""
    detail: str = ""
    image: str
    environment: str = ""
    version: str = ""
    resource_group: str
    cpu: int
    cpu_guaranteed_milli: int | None = None
    memory: int
    shared_memory: int = 0
    fgpu: Decimal = Decimal(0)
    gpu_memory: int = 0
    min_fgpu: Decimal = Decimal(0)
    resizing: SessionAmounts | None = None
    host: str | None = None
    gpus: tuple[HeldGpu, ...] = ()
    cluster: ClusterInfo | None = None
    kind: str = "interactive"
    eta: datetime | None = None
    eta_reason: str = ""
    estimate: LikelyStart | None = None
    result: str = ""
    exit_code: int | None = None
    created_at: datetime
    started_at: datetime | None = None
    ends_at: datetime | None = None
    idle_ends_at: datetime | None = None
    ended_at: datetime | None = None
    ssh: str = ""

    @property
    def is_final(self) -> bool:
        """True once the session has ended."""
        return self.status in FINAL

    @property
    def is_waiting(self) -> bool:
        """True until the session runs."""
        return self.status in WAITING


class TimelineEvent(ApiModel):
    """A change of a session's status, or a note on its timeline."""

    at: datetime
    old_status: str = ""
    new_status: str = ""
    reason: str = ""
    detail: str = ""
    actor: str | None = None


class ResizeSpec(ApiModel):
    """What a running session is to hold. What is None stays as it is; sizes are bytes or texts such as "4g"."""

    cpu: int | None = None
    memory: int | str | None = None
    fgpu: Decimal | None = None
    gpu_memory: int | str | None = None


class UsagePoint(ApiModel):
    """What a session used around a moment; None is what could not be measured."""

    at: datetime
    cpu_milli: int | None = None
    memory: int | None = None
    gpu_memory: int | None = None
    gpu_share_utilisation: float | None = None


class UsageWindow(ApiModel):
    """The use of a session over a window of time."""

    window: str
    points: tuple[UsagePoint, ...] = ()


class GpuRoomInfo(ApiModel):
    """How often a launch by GPU memory fits now on one kind of GPUs of a group, and its share there."""

    resource_group: str
    gpu_model: str = ""
    gpu_memory: int = 0
    fgpu: Decimal = Decimal(0)
    fits: int = 0


class LaunchEstimate(LikelyStart):
    """When a launch would start: "now", a time, or None if that is not known."""

    starts: datetime | Literal["now"] | None = None
    reason: str = ""
    eta_reason: str = ""
    gpus: tuple[GpuRoomInfo, ...] = ()


class DataFolder(ApiModel):
    """A data folder of the user, or shared with the user."""

    id: str
    name: str
    owner: str = ""
    root: str = ""
    access: str = ""
    used_bytes: int | None = None


class ProjectInfo(ApiModel):
    """A project, and the user's role in it; None for a superadmin who is no member."""

    id: int
    name: str
    role: str | None = None
    is_active: bool = True
    member_count: int = 0


class ProjectMember(ApiModel):
    """A member of a project."""

    id: int
    email: str
    role: str


class SshServerInfo(ApiModel):
    """Where the platform's SSH server is, and its line for known_hosts."""

    host: str
    port: int
    known_hosts: str = ""


class EntryInfo(ApiModel):
    """A file or directory in a folder."""

    name: str
    kind: str
    length_bytes: int = 0
    modified_at: datetime


class MountSpec(ApiModel):
    """A folder to mount into a session, by its name or id."""

    folder: str
    path: str | None = None
    read_only: bool | None = None


class MemberSpec(ApiModel):
    """The size of a cluster's first member; what is None is as in the others."""

    cpu: int | None = None
    memory: int | str | None = None
    fgpu: Decimal | None = None


class ClusterSpec(ApiModel):
    """A request for a cluster of equal members, but for the first. What is None is left to the platform."""

    size: int
    max_size: int | None = None
    mode: str | None = None
    shares_gpus: bool | None = None
    runs_on_all: bool | None = None
    max_restarts: int | None = None
    main: MemberSpec | None = None


class LaunchSpec(ApiModel):
    """A request for sessions. What is None is left to the platform.

    Name an image by its reference, or by environment and version; and a preset, or amounts. Sizes are bytes or texts
    such as "4g". With a command the session is a batch session. Each member of a cluster has the amounts.
    """

    image: str | None = None
    environment: str | None = None
    version: str | None = None
    name: str | None = None
    resource_group: str | None = None
    preset: str | None = None
    cpu: int | None = None
    memory: int | str | None = None
    shared_memory: int | str | None = None
    fgpu: Decimal | None = None
    gpu_memory: int | str | None = None
    count: int | None = None
    cluster: ClusterSpec | None = None
    env: dict[str, str] | None = None
    mounts: tuple[MountSpec, ...] | None = None
    priority: int | None = None
    command: str | None = None
    time_limit: int | str | None = None
    depends_on: tuple[str, ...] | None = None
    project: str | None = None
    preemptible: bool | None = None
