"""Deployments as the API returns and takes them; sizes are in bytes."""

from datetime import date, datetime
from decimal import Decimal
from typing import Literal

from gpuplatform_client.models.api_model import ApiModel
from gpuplatform_client.models.platform import MountSpec


class HealthSpec(ApiModel):
    """How a replica is asked whether it serves. What is None is left to the platform."""

    kind: str | None = None  # "http" or "tcp"
    path: str | None = None
    start_seconds: int | None = None
    interval_seconds: int | None = None
    timeout_seconds: int | None = None
    retries: int | None = None


class DraftRevision(ApiModel):
    """Fields of a revision that a draft fills; what is None it leaves open."""

    variant: str | None = None
    command: str | None = None
    port: int | None = None
    env: dict[str, str] | None = None
    cpu: int | None = None
    memory: int | None = None
    fgpu: Decimal | None = None
    health: HealthSpec | None = None
    note: str | None = None
    model_folder: MountSpec


class DraftInfo(ApiModel):
    """What one model in a folder proposes for a deployment."""

    source: str
    name: str
    run: str = ""
    flavors: list[str] = []
    created_at: datetime | None = None
    notes: list[str] = []
    problem: str = ""
    revision: DraftRevision | None = None


class FolderDraftsInfo(ApiModel):
    """What a folder proposes for a deployment."""

    drafts: list[DraftInfo]
    is_complete: bool = True


class RevisionInfo(ApiModel):
    """A revision of a deployment: what its replicas run. It never changes."""

    number: int
    image: str
    variant: str | None = None
    command: str | None = None
    port: int
    env: dict[str, str] | None = None
    cpu: int
    memory: int
    shared_memory: int = 0
    fgpu: Decimal = Decimal(0)
    gpu_memory: int = 0
    min_fgpu: Decimal = Decimal(0)
    mounts: tuple[MountSpec, ...] = ()
    health: HealthSpec = HealthSpec()
    note: str = ""
    created_by: str | None = None
    created_at: datetime
    is_current: bool = False


class AnsweredInfo(ApiModel):
    """What a revision has answered since the step of a rollout began."""

    requests: int
    errors: int
    error_percent: float
    p95_seconds: float | None = None


class RolloutInfo(ApiModel):
    """A rollout by steps that is under way: which share of the requests the new revision gets, and how it does."""

    strategy: str
    step: int
    steps: list[int]
    percent: int
    begun_at: datetime | None = None
    words: str
    old_revision: int
    new_revision: int
    old: AnsweredInfo | None = None
    new: AnsweredInfo | None = None


class DeploymentInfo(ApiModel):
    """A deployment: a model, or another service, that replicas serve at one address."""

    id: str
    name: str
    owner: str
    project: str | None = None
    resource_group: str = ""
    url: str = ""
    state: str
    problem: str = ""
    replicas: int
    ready: int = 0
    updated: int = 0
    total: int = 0
    revision: RevisionInfo | None = None
    previous_revision: int | None = None
    public: bool = False
    sticky: str = ""
    max_surge: int = 1
    max_unavailable: int = 0
    concurrency: int = 0
    queue: int = 0
    drain_seconds: int = 0
    allowed_origins: list[str] = []
    hosts: list[str] = []
    strategy: str = "rolling"
    canary_steps: list[int] = []
    step_seconds: int = 0
    max_error_points: float = 0.0
    max_p95_ratio: float = 0.0
    rollout: RolloutInfo | None = None
    created_at: datetime
    ended_at: datetime | None = None

    @property
    def is_settled(self) -> bool:
        """True once as many replicas of the current revision serve as are wanted, and no others are left."""
        has_all = self.ready >= self.replicas and self.updated == self.total == self.replicas
        return has_all and self.rollout is None


class ReplicaInfo(ApiModel):
    """A replica: a session that runs a revision, whether it answers, and whether it gets requests."""

    session: str
    name: str = ""
    revision: int
    process: str
    detail: str = ""
    health: str
    health_detail: str = ""
    traffic: str
    host: str | None = None
    created_at: datetime
    started_at: datetime | None = None


class ScalingRuleInfo(ApiModel):
    """A rule by which a deployment is scaled: what it looks at, and how much of that one replica is for."""

    id: int
    metric: str
    target: float
    query: str = ""
    paused: bool = False


class PrometheusQueryInfo(ApiModel):
    """A query of the administrator's that a rule may name."""

    name: str
    title: str = ""


class ScalingInfo(ApiModel):
    """How a deployment follows its load."""

    min_replicas: int
    max_replicas: int | None = None
    down_after_seconds: int
    cooldown_seconds: int
    idle_seconds: int | None = None
    idle_action: str
    wake_seconds: int
    max_fgpu: Decimal | None = None
    preemptible: bool = False
    asleep_since: datetime | None = None
    waking_since: datetime | None = None
    replicas: int
    rules: list[ScalingRuleInfo] = []
    queries: list[PrometheusQueryInfo] = []
    decision: str = ""


class PlacementInfo(ApiModel):
    """Whether the replicas that a change launches have room beside those that serve."""

    launches: int
    starts_now: int
    waits: bool
    starts: datetime | Literal["now"] | None = None
    words: str


class DeploymentTokenInfo(ApiModel):
    """A token of a deployment, without its secret."""

    id: int
    name: str
    created_by: str | None = None
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    last_used_at: datetime | None = None
    rate_per_minute: int = 0
    monthly_requests: int = 0
    monthly_tokens: int = 0
    used_requests: int = 0  # in this calendar month (UTC)
    used_prompt_tokens: int = 0
    used_completion_tokens: int = 0


class IssuedDeploymentToken(DeploymentTokenInfo):
    """A token that was just made, with its secret, which is shown this once."""

    secret: str


class TokenUsageInfo(ApiModel):
    """What a token, or all requests without one, has used in a calendar month (UTC)."""

    token: int | None = None
    name: str | None = None
    month: date
    requests: int
    prompt_tokens: int
    completion_tokens: int


class DeploymentEventInfo(ApiModel):
    """What became of a deployment, and who did it."""

    at: datetime
    what: str
    actor: str | None = None


class RuntimeVariantInfo(ApiModel):
    """A program that serves models, and what a revision has of it unless told otherwise."""

    name: str
    title: str = ""
    command: str = ""
    port: int
    health_path: str = ""
    env: dict[str, str] = {}


class RevisionSpec(ApiModel):
    """What replicas are to run. What is None is as in the current revision, of the first one left to the platform.

    With a variant, command, port, health path and variables are its own where they are not named.
    """

    image: str | None = None
    variant: str | None = None
    command: str | None = None
    port: int | None = None
    cpu: int | None = None
    memory: int | str | None = None
    shared_memory: int | str | None = None
    fgpu: Decimal | None = None
    gpu_memory: int | str | None = None
    env: dict[str, str] | None = None
    model_folder: MountSpec | None = None
    mounts: tuple[MountSpec, ...] | None = None
    health: HealthSpec | None = None
    note: str | None = None


class DeploymentSpec(RevisionSpec):
    """A deployment to make, with its first revision. What is None is left to the platform."""

    name: str
    replicas: int | None = None
    project: str | None = None
    resource_group: str | None = None
    public: bool | None = None
    sticky: str | None = None
    max_surge: int | None = None
    max_unavailable: int | None = None
    concurrency: int | None = None
    queue: int | None = None
    drain_seconds: int | None = None
    allowed_origins: list[str] | None = None
    strategy: str | None = None  # "rolling", "canary" or "blue_green"
    canary_steps: list[int] | None = None
    step_seconds: int | None = None
    max_error_points: float | None = None
    max_p95_ratio: float | None = None
