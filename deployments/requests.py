"""Requests for deployments and revisions, as pages, API and commands make them. The rules are in `validation`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from accounts.models import Project
from deployments.models import HealthKind, RuntimeVariant, default_canary_steps
from resources.models import Image, ResourceGroup
from sessions.launching.mounts import MountRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How the replicas of a revision are asked whether they can serve."""

    kind: HealthKind = HealthKind.HTTP
    path: str = ""  # of HTTP; empty: the variant's, else /
    start_seconds: int = 300  # until a replica must be healthy
    interval_seconds: int = 5  # between two probes
    timeout_seconds: int = 2  # of a probe, at most the interval
    retries: int = 3  # probes in a row that fail, before a replica is unhealthy


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRequest:
    """A request for a revision. Memory in bytes, fGPU in milli-fGPU, of each replica."""

    image: Image
    cpu: int
    memory: int
    shared_memory: int
    fgpu: int = 0
    gpu_memory: int = 0  # bytes of one GPU; `fgpu` beside it is the least share
    variant: RuntimeVariant | None = None
    command: str = ""  # a line of the shell; empty: the variant's
    port: int | None = None  # None: the variant's, else 8000
    environment: Mapping[str, str] = field(default_factory=dict)  # beside the variant's
    model_folder: MountRequest | None = None  # mounted read-only unless it says otherwise; $MODEL_PATH
    mounts: Sequence[MountRequest] = ()
    health: HealthCheck = HealthCheck()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRequest:
    """A request for a deployment with its first revision."""

    name: str
    resource_group: ResourceGroup
    revision: RevisionRequest
    project: Project | None = None
    replicas: int = 1
    is_public: bool = False
    sticky: str = ""  # "", "cookie" or "header:<name>"
    max_surge: int = 1
    max_unavailable: int = 0
    concurrency: int = 64  # requests that a replica serves at once; 0: any
    queue: int = 100  # requests that wait at most
    drain_seconds: int = 30
    allowed_origins: Sequence[str] = ()  # whose pages may use it; "*" for those of all
    strategy: str = "rolling"  # of rollouts, or "canary" or "blue_green"
    canary_steps: Sequence[int] = field(default_factory=default_canary_steps)  # percent of the requests, rising
    step_seconds: int = 300  # of each step of a canary; for which old replicas stay after blue/green
    max_error_points: float = 1.0  # percentage points more failed requests than of the old revision
    max_p95_ratio: float = 1.5  # of the 95th percentile of durations to that of the old revision
