"""A request for sessions, as pages, API and commands make it. The rules are in `services`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from accounts.models import Project
from resources.models import Image, ResourceGroup
from sessions.launching.mounts import MountRequest
from sessions.models import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest:
    """A request for `count` sessions of this shape. Memory in bytes, fGPU in milli-fGPU."""

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
    time_limit: timedelta | None = None
    not_before: datetime | None = None
    depends_on: Sequence[Session] = ()
    mounts: Sequence[MountRequest] = ()
    other_groups: Sequence[ResourceGroup] = ()  # in which the sessions may start as well
    is_any_group: bool = False  # they may start in every group that the owner may use; `resource_group` is preferred
    gpu_model: str = ""  # of their GPUs; empty: any
    min_gpu_memory: int = 0  # bytes that each gets on one GPU
    is_preemptible: bool | None = None  # may be ended for others; None: as the owner's policy says
    project: Project | None = None
