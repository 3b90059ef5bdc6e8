"""Input and output of a scheduling pass. Plain data: no Django, no clock, integers only.

What sessions ask for, and limits count, is in cores, bytes and milli-fGPU. Hosts and shapes have CPU in thousandths
of a core, of which a session takes `core_milli` for each of its cores: fewer than 1000 in groups that overcommit (ADR
70). A simulated trace may use other units (milli-cores, MiB), and 1: the core only compares amounts of the same kind.

Types of which a state holds thousands are NamedTuples: cheap to build from a database row, small, and quick to read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from accounts.limits import Amounts, PolicyLimits
from resources.amounts.units import PLAIN_WEIGHT
from sessions.lifecycle import Reason

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
OVERDUE_GRACE: Final = timedelta(minutes=2)  # after its latest end, a session may end at any moment; then: unknown
STORAGE_TRAIT: Final = "storage"  # of a storage root that is there
ARCHITECTURE_TRAIT: Final = "architecture"  # of the CPU
CORES_TRAIT: Final = "cores"  # at least, of a host
GPU_MODEL_TRAIT: Final = "gpu_model"  # of all GPUs of a host
GPU_MEMORY_TRAIT: Final = "gpu_memory"  # bytes, at least, of each GPU of a host
GPU_SIZE_TRAIT: Final = "gpu_size"  # bytes of each GPU of a host, and whether it lends them as a whole only
IMAGE_TRAIT: Final = "image"  # of an image that no registry has
CLUSTER_TRAIT: Final = "cluster"  # of a host that can have their networks
FILES_TRAIT: Final = "files"  # of a session that was parked; the name of its host
# On which hosts the members of a cluster are placed: all on one; on one if it has room for all, else on as few as
# possible; each on another. Plain strings: shapes are hashed often, and an Enum's hash is a Python function.
ClusterMode = Literal["single-host", "any", "spread"]
HostIds = tuple[int, ...]  # in the order of their failures
Traits = tuple[str, ...]  # what a host has beside capacity, as `kind:name`; ascending
ImageHosts = Mapping[int, frozenset[int]]  # ids of the hosts that have an image, by its id
MemberAmounts = tuple[int, int, int]  # cores, or what they take of a host's CPU; bytes; milli-fGPU
# Group id, cores, bytes, milli-fGPU, avoided host ids, traits, members, GPU sharing, mode, pins, main; and time limit.
ClassKey = tuple[int, int, int, int, HostIds, Traits, int, bool, ClusterMode, HostIds, MemberAmounts | None]
BackfillRank = tuple[bool, int, timedelta]  # preemptible, negated priority, predicted run time
BoundedClassKey = tuple[
    int, int, int, int, HostIds, Traits, int, bool, ClusterMode, HostIds, MemberAmounts | None, timedelta | None
]
Shares = tuple[tuple[int, int], ...]  # (GPU id, milli-fGPU) in device order
Placed = tuple[int, int, Shares]  # how many members go to a host, its id, and their shares together
Topology = tuple[str, ...]  # where a host stands, from far to near: hosts with more of it in common are nearer
Closeness = tuple[tuple[int, ...], ...]  # of pairs of devices, by position: a symmetrical matrix, higher is closer


class PlacementPolicyName(StrEnum):
    """How a group chooses among the hosts that fit; implemented in `placement_policy`."""

    PACK = "pack"  # least free GPU: keeps whole GPUs whole
    SPREAD = "spread"  # most free GPU: fewest neighbours
    BALANCE = "balance"  # least growth of the free GPU that the usual requests, or the cores beside it, cannot use


class QueueOrder(StrEnum):
    """Which session a group serves next."""

    FIFO = "fifo"  # longest wait first
    FAIR = "fair"  # least use of the group for the weight first, decayed: `fair_share`


class Shape(NamedTuple):
    """Amounts and traits that a request needs on its host, or hosts. Requests of equal shape fit on the same hosts.

    The amounts are those of all `members` together. Each member gets GPUs of its own, whole ones or a part of one; with
    `shares_gpus` several may have parts of the same. The first may have amounts of its own: as much of GPUs as each of
    the others, or it alone has any, or it alone has none.
    """

    cpu: int
    memory_bytes: int
    fgpu_milli: int
    traits: Traits = ()
    members: int = 1
    shares_gpus: bool = False
    mode: ClusterMode = "single-host"
    pins: HostIds = ()  # by rank, the host on which each member has its files; then in the mode "any"
    main: MemberAmounts | None = None  # of the first member, where it has others than the rest

    def most_on(self, host_id: int) -> int:
        """Return how many of its members may be on a host."""
        return 1 if self.mode == "spread" else self.pins.count(host_id) if self.pins else self.members

    @property
    def gpu_members(self) -> int:
        """Members that have a GPU, or a part of one."""
        if self.main is None:
            return self.members
        return (self.main[2] > 0) + (self.members - 1) * (self.fgpu_milli > self.main[2])

    @property
    def member_milli(self) -> int:
        """Milli-fGPU of each member that has any."""
        return self.fgpu_milli // max(1, self.gpu_members)

    @property
    def least(self) -> MemberAmounts:
        """The least of each amount that one of its members needs."""
        one = self.of_members(1)
        cpu, memory_bytes, fgpu_milli = map(min, one[:3], self.main or one[:3])
        return cpu, memory_bytes, fgpu_milli

    @property
    def spans_hosts(self) -> bool:
        """Whether it may be placed on several hosts."""
        return self.members > 1 and self.mode != "single-host"

    def of_members(self, count: int, *, with_main: bool = False) -> "Shape":
        """Return what so many of its members need on one host, the first among them or not."""
        cpu, memory_bytes, fgpu_milli, traits, members, shares_gpus = self[:6]
        main = self.main
        if main is None:
            amounts = cpu // members * count, memory_bytes // members * count, fgpu_milli // members * count
            return Shape(*amounts, traits, count, shares_gpus)
        each, first = _of_others((cpu, memory_bytes, fgpu_milli), members, main), main if with_main else (0, 0, 0)
        cpu, memory_bytes, fgpu_milli = (
            own + (count - with_main) * other for own, other in zip(first, each, strict=True)
        )
        is_mixed = with_main and count > 1
        return Shape(cpu, memory_bytes, fgpu_milli, traits, count, shares_gpus, main=main if is_mixed else None)


def _of_others(whole: MemberAmounts, members: int, main: MemberAmounts | None) -> MemberAmounts:
    """Return the amounts of each member, but of a first one with amounts of its own."""
    own, count = ((0, 0, 0), members) if main is None else (main, members - 1)
    cpu, memory_bytes, fgpu_milli = ((amount - first) // count for amount, first in zip(whole, own, strict=True))
    return cpu, memory_bytes, fgpu_milli


class GpuView(NamedTuple):
    """One device of a host: its total and its free milli-fGPU."""

    id: int
    capacity_milli: int
    free_milli: int
    weight: int = PLAIN_WEIGHT  # of its model in fair share, in thousandths


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """One host that may take sessions: totals, free amounts, and its devices in index order.

    All devices of a group have the same capacity; hosts may differ in their number of devices. `closeness`, () where it
    is not known, decides which whole devices a session gets; `topology` which hosts a cluster gets.
    """

    id: int
    name: str
    group_id: int
    cpu: int
    memory_bytes: int
    cpu_free: int
    memory_free_bytes: int
    gpus: tuple[GpuView, ...] = ()
    divides: bool = True  # False: only whole devices can be lent
    traits: frozenset[str] = frozenset()
    closeness: Closeness = ()
    topology: Topology = ()


class HostType(NamedTuple):
    """A host that a provider could make, or makes at present, and what an hour of it costs, in thousandths."""

    name: str
    cpu: int
    memory_bytes: int
    gpu_count: int = 0
    gpu_capacity_milli: int = 0  # of each of its GPUs
    gpu_memory_bytes: int = 0  # of each of its GPUs; 0: not known
    divides: bool = True
    traits: frozenset[str] = frozenset()  # beside those that are amounts
    cost_milli: int = 0


class ComingHost(NamedTuple):
    """A host that a provider was asked for, and when it is expected to take sessions."""

    kind: HostType
    at: datetime


class HostOutlook(NamedTuple):
    """What those who wait for an elastic group are told, where a host of one of these types could hold them."""

    types: tuple[HostType, ...]
    text: str
    coming: tuple[ComingHost, ...] = ()  # those of which nobody knows when are not among them


class Beside(NamedTuple):
    """What the members that run of a cluster hold, for an elastic one that is to run beside them."""

    host_ids: tuple[int, ...]
    gpu_ids: tuple[int, ...]


class SessionRequest(NamedTuple):
    """One PENDING session, or cluster of sessions that start together, as the scheduler sees it.

    A cluster has the id of its main member, and the amounts of all members, which are of equal size but for the main.
    """

    id: str
    owner_id: int
    group_id: int
    cpu: int
    memory_bytes: int
    fgpu_milli: int
    avoided_host_ids: HostIds = ()  # failed an earlier attempt; used only if no other host fits
    traits: Traits = ()  # which its host must have
    members: int = 1
    shares_gpus: bool = False  # as in Shape
    mode: ClusterMode = "single-host"
    pins: HostIds = ()  # as in Shape
    main: MemberAmounts | None = None  # as in Shape, in cores
    priority: int = 0
    queued_at: datetime = EPOCH
    duration: timedelta | None = None  # time limit: the longest it may run once started; None: unbounded
    project_id: int | None = None  # project whose limits apply as well
    image_id: int = 0  # breaks ties: among equal hosts, one that has it is preferred
    charge_percent: int = 100  # part of its use that counts in fair share
    is_preemptible: bool = False  # nobody else is ended for it
    # The same session in other groups, or by GPU memory on GPUs of other sizes: it starts by one of them.
    alternatives: tuple["SessionRequest", ...] = ()
    is_alternative: bool = False  # one of those of another request
    core_milli: int = 1  # of its host's CPU that each of its cores takes
    member_ids: tuple[str, ...] = ()  # of a cluster, by rank, its own first
    beside: Beside | None = None  # of an elastic member, which no queue has: it starts where nobody else does
    predicted: timedelta | None = None  # run time, by the past of its like: orders who starts behind the head, no more
    stem: str = ""  # of its name, without a number at its end

    @property
    def shape(self) -> Shape:
        """Amounts and traits that it needs on one host."""
        cpu = self.cpu * self.core_milli
        if self.members == 1:
            return Shape(cpu, self.memory_bytes, self.fgpu_milli, self.traits)
        amounts = cpu, self.memory_bytes, self.fgpu_milli
        main = self.main and (self.main[0] * self.core_milli, *self.main[1:])
        return Shape(*amounts, self.traits, self.members, self.shares_gpus, self.mode, self.pins, main)

    @property
    def each(self) -> MemberAmounts:
        """Cores, bytes and milli-fGPU of each member, but of a first one with amounts of its own."""
        whole = self.cpu, self.memory_bytes, self.fgpu_milli
        return whole if self.members == 1 else _of_others(whole, self.members, self.main)

    def amounts_of(self, session_id: str) -> MemberAmounts:
        """Return the cores, bytes and milli-fGPU of one of its members."""
        return self.main if self.main is not None and session_id == self.id else self.each

    @property
    def class_key(self) -> ClassKey:
        """Key of its request class: equal for requests that fit on the same unreserved hosts."""
        return self[2:13]

    @property
    def bounded_class_key(self) -> BoundedClassKey:
        """Class key and time limit: equal for requests that fit on the same hosts, reserved ones included."""
        return (*self[2:13], self.duration)

    @property
    def backfill_rank(self) -> BackfillRank:
        """Its turn behind the head of a group that is first come, first served: who is likely to run shortest first.

        Without a prediction its time limit counts; without one it comes after all others of its priority.
        """
        run_time = self.duration if self.predicted is None else self.predicted
        return self.is_preemptible, -self.priority, timedelta.max if run_time is None else run_time


def in_groups(
    request: SessionRequest, others: Mapping[int, Traits], core_milli: Mapping[int, int] = MappingProxyType({})
) -> SessionRequest:
    """Return a request that may start in other groups as well, on hosts with the traits given by group id.

    `core_milli` is what its cores take there, by group id, where that differs.
    """
    alternatives = (
        request._replace(
            group_id=each, traits=traits, is_alternative=True, core_milli=core_milli.get(each, request.core_milli)
        )
        for each, traits in others.items()
    )
    return request._replace(alternatives=tuple(alternatives))


class GpuChoice(NamedTuple):
    """What a request by GPU memory is on GPUs of one size: milli-fGPU, and the trait of the hosts that have them."""

    milli: int
    trait: str


def by_gpu_memory(request: SessionRequest, choices: Mapping[int, Sequence[GpuChoice]]) -> SessionRequest:
    """Return a request by GPU memory: an entry for each of the `choices`, by group id, in their order.

    Its milli-fGPU, and those of its alternatives, are the number of members that have a GPU.
    """
    first, *others = (
        entry._replace(
            fgpu_milli=entry.fgpu_milli * choice.milli,
            main=entry.main and (*entry.main[:2], entry.main[2] * choice.milli),
            traits=tuple(sorted({*entry.traits, choice.trait})),
            alternatives=(),
        )
        for entry in entries_of([request])
        for choice in choices[entry.group_id]
    )
    return first._replace(alternatives=tuple(other._replace(is_alternative=True) for other in others))


def gpu_size_trait(gpu_memory_bytes: int, *, divides: bool) -> str:
    """Return the trait of hosts whose GPUs have so much memory each, and can be divided or not."""
    return f"{GPU_SIZE_TRAIT}:{gpu_memory_bytes}{'' if divides else ':whole'}"


def entries_in(group_id: int, request: SessionRequest) -> list[SessionRequest]:
    """Return the entries of a request in the queue of a group: one, but by GPU memory one for each size of GPUs."""
    return [entry for entry in (request, *request.alternatives) if entry.group_id == group_id]


def entries_of(queue: Iterable[SessionRequest]) -> list[SessionRequest]:
    """Return what waits in the queues of the groups: each request, followed by its alternatives."""
    return [entry for request in queue for entry in (request, *request.alternatives)]


class RunningSession(NamedTuple):
    """A session that holds a lease on a host, and the latest time at which what it holds is free again."""

    session_id: str
    owner_id: int
    host_id: int
    cpu: int
    memory_bytes: int
    shares: Shares = ()
    started_at: datetime = EPOCH
    ends_at: datetime | None = None  # None: unbounded
    project_id: int | None = None
    charge_percent: int = 100  # part of its use that counts in fair share
    is_preemptible: bool = False  # it may be ended for another, of which it has not been warned yet
    preempted_for: str = ""  # id of the request for which it is ended at `ends_at`
    core_milli: int = 1  # of its host's CPU that each of its cores takes
    cluster_id: str = ""  # of the cluster of which it is a member
    is_elastic: bool = False  # its cluster goes on without it: it ends before others
    image_id: int = 0
    stem: str = ""  # as in SessionRequest
    gpu_model: str = ""  # the only one that it accepts; empty: any
    gpu_weight: int | None = None  # with which its GPUs count in fair share, in thousandths; None: with their own

    @property
    def shape(self) -> Shape:
        """Amounts that it holds on its host."""
        return Shape(self.cpu * self.core_milli, self.memory_bytes, self.fgpu_milli)

    @property
    def fgpu_milli(self) -> int:
        """Sum of its shares."""
        if len(self.shares) == 1:  # by far the most frequent case
            return self.shares[0][1]
        return sum(share for _, share in self.shares)


class Association(NamedTuple):
    """Whose use counts together in fair share: Slurm's word for a user under an account, which is a project here.

    (0, user): the user's sessions without a project; (project, user): those of a member for the project;
    (project, 0): those of the whole project; (0, 0): all.
    """

    project_id: int
    user_id: int

    @property
    def branch(self) -> "Association":
        """What it belongs to at the top level: its project, or without one itself."""
        return Association(self.project_id, 0) if self.project_id else self

    @property
    def parent(self) -> "Association":
        """Whose share it divides with others: its project's, or that of all."""
        return Association(self.project_id if self.user_id else 0, 0)


def association_of(session: SessionRequest | RunningSession) -> Association:
    """Return for whom the use of a session counts."""
    return Association(session.project_id or 0, session.owner_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHolder:
    """A user or project with limits: the most it may hold at once, and what its sessions hold now."""

    limits: PolicyLimits
    used: Amounts


class DecayedUsage(NamedTuple):
    """What ended sessions of an association have used of a group, decayed to `at`.

    In seconds of cores, bytes and milli-fGPU.
    """

    cpu_seconds: float
    memory_byte_seconds: float
    fgpu_milli_seconds: float
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Scheduling settings of a resource group."""

    placement_policy: PlacementPolicyName = PlacementPolicyName.PACK
    queue_order: QueueOrder = QueueOrder.FIFO
    ageing: timedelta = timedelta(hours=6)  # waiting this long counts as one point of priority
    reservation_delay: timedelta = timedelta(hours=1)  # wait of a head without a bound before it gets a whole host
    overhead: timedelta = timedelta(0)  # longest time beyond its time limit that a session holds its lease
    half_life: timedelta = timedelta(days=1)  # after which use counts half, in fair order
    starvation_limit: timedelta = timedelta(days=1)  # wait after which who holds nothing goes first, in fair order
    default_weight: int = 100  # of users and projects that the snapshot does not name
    core_milli: int = 1  # of its host's CPU that each core of a session takes which starts now
    mix: tuple[tuple[Shape, int], ...] = ()  # usual requests and their counts; empty: running and waiting ones


def latest_end(request: SessionRequest, placed_at: datetime, rules: Rules) -> datetime | None:
    """Return when what a request holds is free again at the latest, if it is placed at that time; None: unknown."""
    return None if request.duration is None else placed_at + request.duration + rules.overhead


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """State that a pass decides on.

    `hosts` are those that may take sessions. `closed_groups` have ready hosts, all cordoned; only explanations read
    it. `owners` has an entry for every user in the queue, `projects` for every project, `rules` for each group that
    differs from the default, `trait_names` for each storage root and image among the traits. `used`, by group and
    association, and `weights`, of (0, user) and (project, 0) where they differ from the default, matter in fair groups.
    `image_hosts` breaks ties only. Requests of equal rank are served in the order of `queue`. One with alternatives
    waits in several groups.
    """

    hosts: tuple[HostView, ...]
    queue: tuple[SessionRequest, ...]
    owners: Mapping[int, LimitHolder]
    projects: Mapping[int, LimitHolder] = field(default_factory=dict)
    running: tuple[RunningSession, ...] = ()
    rules: Mapping[int, Rules] = field(default_factory=dict)
    closed_groups: frozenset[int] = frozenset()
    trait_names: Mapping[str, str] = field(default_factory=dict)
    image_hosts: ImageHosts = field(default_factory=dict)
    used: Mapping[tuple[int, Association], DecayedUsage] = field(default_factory=dict)
    weights: Mapping[Association, int] = field(default_factory=dict)
    outlooks: Mapping[int, HostOutlook] = field(default_factory=dict)  # of elastic groups, by id


class Placement(NamedTuple):
    """Decision that a session goes to a host; its GPU shares sum to its request exactly."""

    session_id: str
    host_id: int
    shares: Shares = ()


def member_placements(request: SessionRequest, placed: Iterable[Placed]) -> tuple[Placement, ...]:
    """Return the placement of each member where so many each go to a host with shares of its GPUs.

    By rank, unless each is pinned to a host.
    """
    left, pins, found = list(request.member_ids or (request.id,)), list(request.pins), list[Placement]()

    def next_on(host_id: int) -> str:
        at = pins.index(host_id) if pins else 0
        del pins[at : at + 1]
        return left.pop(at)

    for count, host_id, shares in placed:
        members = [next_on(host_id) for _ in range(count)]
        parts = [shares] if count == 1 else _divided(shares, [request.amounts_of(each)[2] for each in members])
        found += [Placement(each, host_id, part) for each, part in zip(members, parts, strict=True)]
    return tuple(found)


def _divided(shares: Shares, amounts: Iterable[int]) -> list[Shares]:
    """Return the shares of each member, of so much each: parts of the devices, in their order."""
    left, found = list(shares), []
    for each in amounts:
        wanted, part = each, []
        while wanted:
            gpu_id, milli = left[0]
            taken = min(wanted, milli)
            part.append((gpu_id, taken))
            left[:1] = [(gpu_id, milli - taken)] if taken < milli else []
            wanted -= taken
        found.append(tuple(part))
    return found


class WaitExplanation(NamedTuple):
    """Reason why a session waits, a sentence for its owner, the latest time at which it starts, and why not earlier.

    `eta` holds unless a request ahead of it comes or changes. It is None where the start depends on sessions without a
    time limit, or lies beyond the forecast.
    """

    session_id: str
    reason: Reason
    detail: str
    eta: datetime | None = None
    eta_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Outcome of a pass: each request of the queue is in exactly one of the two, in the order served."""

    placements: tuple[Placement, ...]
    waiting: tuple[WaitExplanation, ...]
