"""A request for sessions, as pages, API and commands make it. The rules are in `services`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from accounts.models import Project
from resources.models import Image, ResourceGroup
from sessions.launching.mounts import MountRequest
from sessions.lifecycle import DependencyKind, Kind
from sessions.models import ClusterMode


class MemberSize(NamedTuple):
    """Cores, bytes and milli-fGPU of a container."""

    cpu: int
    memory: int
    fgpu: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRequest:
    """A request for sessions of `size` members each, which are placed, started and ended together.

    They grow to `max_size` while there is room, if that is more.
    """

    size: int
    max_size: int | None = None
    mode: ClusterMode = ClusterMode.ANY
    shares_gpus: bool = False  # members may have parts of the same GPU
    runs_on_all: bool = False  # every member runs the command, not the first alone
    max_restarts: int = 0  # as a whole, after a member failed
    main_cpu: int | None = None  # of the first member, where it has others than the rest; None: the same
    main_memory: int | None = None
    main_fgpu: int | None = None

    def main_of(self, each: MemberSize) -> MemberSize | None:
        """Return the size of the first member, where that is not the size of `each`."""
        asked = self.main_cpu, self.main_memory, self.main_fgpu
        own = MemberSize(*(other if one is None else one for one, other in zip(asked, each, strict=True)))
        return own if own != each else None

    def together(self, each: MemberSize) -> MemberSize:
        """Return what all members have, where `each` but the first is of this size."""
        first = self.main_of(each) or each
        return MemberSize(*(own + (self.size - 1) * other for own, other in zip(first, each, strict=True)))

    @property
    def most(self) -> int:
        """How many members it has at most."""
        return max(self.size, self.max_size or 0)


class TaskPart(NamedTuple):
    """What a task of an array has of its own."""

    name: str
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A request for `count` sessions of this shape, or whose members have it. Memory in bytes, fGPU in milli-fGPU."""

    image: Image
    resource_group: ResourceGroup
    cpu: int
    memory: int
    shared_memory: int
    fgpu: int = 0
    name: str = ""  # empty: a random one
    count: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    priority: int | None = None  # None: the default, as far as the policies allow it
    command: str = ""  # of a batch session, which ends with it; empty: an interactive one
    is_replica: bool = False  # of a deployment: its command goes on until the deployment ends it
    time_limit: timedelta | None = None
    not_before: datetime | None = None
    depends_on: Mapping[Any, DependencyKind] = field(default_factory=dict)  # by Session or Array
    mounts: Sequence[MountRequest] = ()
    other_groups: Sequence[ResourceGroup] = ()  # in which the sessions may start as well
    is_any_group: bool = False  # they may start in every group that the owner may use; `resource_group` is preferred
    gpu_model: str = ""  # of their GPUs; empty: any
    min_gpu_memory: int = 0  # bytes that each gets on one GPU
    gpu_memory: int = 0  # bytes of one GPU in place of a share; `fgpu` is then the least of that
    is_preemptible: bool | None = None  # may be ended for others; None: as the owner's policy says
    project: Project | None = None
    cluster: ClusterRequest | None = None  # None: each is one container
    tasks: Sequence[TaskPart] = ()  # of an array, a session each; `count` is their number

    @property
    def kind(self) -> Kind:
        """How each session ends."""
        if self.is_replica:
            return Kind.REPLICA
        return Kind.BATCH if self.command else Kind.INTERACTIVE

    @property
    def members(self) -> int:
        """Containers of each session."""
        return self.cluster.size if self.cluster else 1

    @property
    def main(self) -> MemberSize | None:
        """The size of the first member of a cluster, where that is not the size of all."""
        return self.cluster.main_of(self.each) if self.cluster else None

    @property
    def each(self) -> MemberSize:
        """The size of each session, or each member but for the first."""
        return MemberSize(self.cpu, self.memory, self.fgpu)

    @property
    def most_fgpu(self) -> int:
        """Milli-fGPU of a session, or of the members that have any."""
        return max(self.fgpu, self.main.fgpu if self.main else 0, self.gpu_memory and 1)

    @property
    def counted(self) -> "LaunchRequest":
        """By GPU memory: the request with the number of GPUs in place of shares of them."""
        return replace(self, fgpu=1) if self.gpu_memory else self

    @property
    def together(self) -> MemberSize:
        """What all members have."""
        return self.cluster.together(self.each) if self.cluster else self.each
