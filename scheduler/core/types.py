"""The words of scheduling: what a pass reads and what it answers. Plain data; no Django, no clock, integers only.

CPU is in cores, memory in bytes, GPU shares in milli-fGPU. What comes by the thousand is a NamedTuple: cheap to make
from a row of the database, small, and quick to read.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from accounts.limits import Amounts, PolicyLimits
from sessions.lifecycle import Reason

EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
ClassKey = tuple[int, int, int, int, int | None]
BoundedClassKey = tuple[int, int, int, int, int | None, timedelta | None]
Shares = tuple[tuple[int, int], ...]  # (gpu id, milli-fGPU) in device order


class PlacementPolicyName(StrEnum):
    """Which of the hosts that fit takes a session."""

    PACK = "pack"  # the one with the least GPU free: keeps whole GPUs whole
    SPREAD = "spread"  # the one with the most GPU free: fewest neighbours
    FGD = "fgd"  # the one where it leaves the least GPU that the usual requests cannot use
    BALANCE = "balance"  # as fgd, and by how well the cores left over match the GPUs left over


class QueueOrder(StrEnum):
    """Who is served first among sessions of equal priority."""

    FIFO = "fifo"  # who waits longest
    DRF = "drf"  # the user who holds the smallest part of the group, dominant-resource fairness


class Shape(NamedTuple):
    """What a request needs of one host: cores, bytes, milli-fGPU. Requests of the same shape fit in the same places."""

    cpu: int
    memory: int
    fgpu: int


class GpuView(NamedTuple):
    """One device of a host: what it holds when empty and what is free now."""

    id: int
    capacity: int
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HostView:
    """One host that may take sessions: totals, what is free now, and its devices in index order.

    All devices of a group have the same capacity; hosts may differ in how many they have.
    """

    id: int
    name: str
    group_id: int
    cpu: int
    memory: int
    cpu_free: int
    memory_free: int
    gpus: tuple[GpuView, ...] = ()
    divides: bool = True  # its devices; where it cannot, they are lent whole


class SessionRequest(NamedTuple):
    """One PENDING session as the scheduler sees it."""

    id: str
    owner_id: int
    group_id: int
    cpu: int
    memory: int
    fgpu: int
    avoided_host_id: int | None = None  # took no notice of an earlier attempt; used only if no other host fits
    priority: int = 0
    queued_at: datetime = EPOCH
    duration: timedelta | None = None  # the longest it may run once started; None: without a bound
    project_id: int | None = None  # the project whose limits bind it too

    @property
    def shape(self) -> Shape:
        """What it needs of one host."""
        return Shape(self.cpu, self.memory, self.fgpu)

    @property
    def class_key(self) -> ClassKey:
        """What decides whether there is room for it that is kept for nobody."""
        return self[2:7]

    @property
    def bounded_class_key(self) -> BoundedClassKey:
        """What decides whether there is room for it: where there is none for one of a kind, there is none for any."""
        return (*self[2:7], self.duration)


class RunningSession(NamedTuple):
    """A session that holds a lease on a host, and when it has ended at the latest."""

    session_id: str
    owner_id: int
    host_id: int
    cpu: int
    memory: int
    shares: Shares = ()
    started_at: datetime = EPOCH
    ends_at: datetime | None = None  # None: without a bound
    project_id: int | None = None

    @property
    def shape(self) -> Shape:
        """What it holds of its host."""
        return Shape(self.cpu, self.memory, sum(share for _, share in self.shares))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitHolder:
    """A holder of limits, a user or a project: what it may hold at once, and what its sessions hold now."""

    limits: PolicyLimits
    used: Amounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How a resource group is scheduled."""

    placement_policy: PlacementPolicyName = PlacementPolicyName.PACK
    queue_order: QueueOrder = QueueOrder.FIFO
    ageing: timedelta = timedelta(hours=6)  # waiting this long counts as much as one point of priority
    reservation_delay: timedelta = timedelta(
        hours=1
    )  # from then on the head, if nothing else helps, gets a host to itself
    mix: tuple[tuple[Shape, int], ...] = ()  # usual requests and how often; empty: learned from who runs and waits


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state that a pass decides on; `hosts` are those that may take sessions.

    `closed_groups` have ready hosts which the administration has closed for new sessions; this matters to words alone.
    `owners` has an entry for every user in the queue, `projects` for every project, `rules` for the groups that differ
    from the default. Equals in the queue are served as they stand in it.
    """

    hosts: tuple[HostView, ...]
    queue: tuple[SessionRequest, ...]
    owners: Mapping[int, LimitHolder]
    projects: Mapping[int, LimitHolder] = field(default_factory=dict)
    running: tuple[RunningSession, ...] = ()
    rules: Mapping[int, Rules] = field(default_factory=dict)
    closed_groups: frozenset[int] = frozenset()


class Placement(NamedTuple):
    """Where a session goes: a host, and shares as (gpu id, milli-fGPU), which sum to its request exactly."""

    session_id: str
    host_id: int
    shares: Shares = ()


class WaitExplanation(NamedTuple):
    """Why a session still waits: the reason, a sentence for its owner, and when it starts at the latest, and why then.

    `eta` holds if nobody ahead comes or changes; None where it depends on sessions without a time limit, or is far off.
    """

    session_id: str
    reason: Reason
    detail: str
    eta: datetime | None = None
    eta_reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The outcome of a pass: every request of the queue is in exactly one of the two, each in the order served."""

    placements: tuple[Placement, ...]
    waiting: tuple[WaitExplanation, ...]
