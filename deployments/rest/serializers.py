"""Serializers of deployments as they are shown."""

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from deployments.addresses import first_origin
from deployments.counts import traffic_of
from deployments.models import (
    Deployment,
    DeploymentEvent,
    DeploymentState,
    HealthKind,
    Replica,
    ReplicaHealth,
    Revision,
    RevisionMount,
    RolloutStrategy,
    RuntimeVariant,
)
from deployments.replicas.progress import RolloutProgress, progress_of
from deployments.replicas.stepwise import Answered
from resources.amounts.fields import FgpuTextField
from restapi.fields import ShownSerializer
from sessions.lifecycle import Status


class RuntimeVariantSerializer(ShownSerializer[RuntimeVariant]):
    """A program that serves models: what a revision that names it runs unless it says otherwise."""

    env = serializers.DictField(source="environment", child=serializers.CharField())

    class Meta:
        model = RuntimeVariant
        fields = ("name", "title", "command", "port", "health_path", "env")


class RevisionMountSerializer(ShownSerializer[RevisionMount]):
    """A folder that replicas mount."""

    folder = serializers.CharField(source="folder_id", allow_null=True, help_text="Its id; null once it was deleted")
    name = serializers.CharField(source="folder_name", help_text="As it was when the revision was made")
    read_only = serializers.BooleanField(source="is_read_only")  # type: ignore[assignment]  # the metaclass collects it
    model = serializers.BooleanField(source="is_model", help_text="It has the model: $MODEL_PATH is its path")

    class Meta:
        model = RevisionMount
        fields = ("folder", "name", "path", "read_only", "model")


class HealthSerializer(serializers.Serializer[Revision]):
    """How a replica is asked whether it serves."""

    kind = serializers.ChoiceField(choices=HealthKind.values, source="health_kind")
    path = serializers.CharField(source="health_path")
    start_seconds = serializers.IntegerField()
    interval_seconds = serializers.IntegerField()
    timeout_seconds = serializers.IntegerField()
    retries = serializers.IntegerField()


class RevisionSerializer(ShownSerializer[Revision]):
    """A revision: what replicas run. It never changes."""

    image = serializers.CharField(source="image.reference", read_only=True)
    variant = serializers.CharField(source="variant.name", default=None, read_only=True, allow_null=True)
    command = serializers.SerializerMethodField(help_text="A line of the shell; null for anybody but the owner")
    env = serializers.SerializerMethodField(help_text="Environment variables; null for anybody but the owner")
    fgpu = FgpuTextField()
    min_fgpu = FgpuTextField(help_text="With GPU memory: the least that a replica gets")
    mounts = RevisionMountSerializer(many=True, read_only=True)
    health = HealthSerializer(source="*", read_only=True)
    created_by = serializers.EmailField(source="created_by.email", default=None, read_only=True, allow_null=True)
    is_current = serializers.SerializerMethodField(help_text="Replicas run it, or are being replaced by such as do")

    class Meta:
        model = Revision
        fields = (
            *("number", "image", "variant", "command", "port", "env", "cpu", "memory", "shared_memory", "fgpu"),
            *("gpu_memory", "min_fgpu"),
            *("mounts", "health", "note", "created_by", "created_at", "is_current"),
        )

    def get_command(self, revision: Revision) -> str | None:
        """Return the command for the owner, else None: it may hold secrets."""
        return revision.command if self._is_for_owner(revision) else None

    def get_env(self, revision: Revision) -> dict[str, str] | None:
        """Return the environment variables for the owner, else None: they may hold secrets."""
        return revision.environment if self._is_for_owner(revision) else None

    def _is_for_owner(self, revision: Revision) -> bool:
        return bool(self.context["request"].user.pk == revision.deployment.owner_id)

    def get_is_current(self, revision: Revision) -> bool:
        """Return whether it is the deployment's."""
        return revision.deployment.revision_id == revision.pk


class AnsweredSerializer(serializers.Serializer[Answered]):
    """What a revision has answered since the step began."""

    requests = serializers.IntegerField()
    errors = serializers.IntegerField(  # type: ignore[assignment]  # the metaclass collects it
        help_text="Answered with 5xx, or broken off"
    )
    error_percent = serializers.FloatField()
    p95_seconds = serializers.FloatField(
        source="p95", allow_null=True, help_text="Within which 95 % of them were over; null without requests"
    )


class RolloutSerializer(serializers.Serializer[RolloutProgress]):
    """A rollout by steps that is under way: which share of the requests the new revision gets, and how it does."""

    strategy = serializers.ChoiceField(choices=RolloutStrategy.choices, source="rollout.strategy")
    step = serializers.IntegerField(source="step_number", help_text="The running one, from 1")
    steps = serializers.ListField(child=serializers.IntegerField(), help_text="Percent of the requests, of each step")
    percent = serializers.IntegerField(
        source="rollout.percent_now", help_text="Of the requests, which the new revision gets now"
    )
    begun_at = serializers.DateTimeField(
        source="rollout.begun_at", allow_null=True, help_text="Of the step; null until its replicas are healthy"
    )
    words = serializers.CharField(help_text="Which share the new revision gets, and what is awaited")
    old_revision = serializers.IntegerField()
    new_revision = serializers.IntegerField()
    old = AnsweredSerializer(
        source="compared.old", default=None, allow_null=True, help_text="null before the first step, or while unknown"
    )
    new = AnsweredSerializer(source="compared.new", default=None, allow_null=True)


class DeploymentSerializer(ShownSerializer[Deployment]):
    """A deployment as its owner, the members of its project and superadmins see it."""

    _has_figures = True  # until they cannot be read

    owner = serializers.EmailField(source="owner.email", read_only=True)
    project = serializers.CharField(source="project.name", default=None, read_only=True, allow_null=True)
    resource_group = serializers.CharField(source="resource_group.name", read_only=True)
    url = serializers.SerializerMethodField(help_text="Its address, which never changes; empty where it has none")
    state = serializers.ChoiceField(choices=DeploymentState.values, read_only=True)
    problem = serializers.SerializerMethodField(
        help_text="Why it is not as wanted, in words; for its owner and superadmins with the last lines of a replica"
    )
    replicas = serializers.IntegerField(read_only=True, help_text="How many are wanted")
    ready = serializers.IntegerField(read_only=True, help_text="Replicas that get requests")
    updated = serializers.IntegerField(read_only=True, help_text="Live replicas of the current revision")
    total = serializers.IntegerField(source="live", read_only=True, help_text="Live replicas")
    revision = RevisionSerializer(read_only=True)
    previous_revision = serializers.IntegerField(
        source="previous_revision.number", default=None, read_only=True, allow_null=True, help_text="To roll back to"
    )
    public = serializers.BooleanField(source="is_public", read_only=True, help_text="No token is needed")
    allowed_origins = serializers.ListField(
        child=serializers.CharField(), read_only=True, help_text='Whose pages may use it; "*" for those of all'
    )

    hosts = serializers.SlugRelatedField[Any](
        slug_field="name", many=True, read_only=True, help_text="Host names that administrators have given to it"
    )
    rollout = serializers.SerializerMethodField(help_text="By steps; null while none is under way")

    canary_steps = serializers.ListField(
        child=serializers.IntegerField(), read_only=True, help_text="Percent of the requests, of each step"
    )

    class Meta:
        model = Deployment
        fields = (
            *("id", "name", "owner", "project", "resource_group", "url", "state", "problem", "replicas", "ready"),
            *("updated", "total", "revision", "previous_revision", "public", "sticky", "max_surge", "max_unavailable"),
            *("concurrency", "queue", "drain_seconds", "allowed_origins", "hosts", "strategy", "canary_steps"),
            *("step_seconds", "max_error_points", "max_p95_ratio", "rollout", "created_at", "ended_at"),
        )

    def get_problem(self, deployment: Deployment) -> str:
        """Return the words, and what a replica wrote for those alone who may read its log."""
        user = self.context["request"].user
        may_read = user.is_superuser or user.pk == deployment.owner_id
        return deployment.problem if may_read else deployment.problem.partition("\n")[0]

    @extend_schema_field(RolloutSerializer(allow_null=True))
    def get_rollout(self, deployment: Deployment) -> Any:
        """Return how far it is. Where figures cannot be read once, a list tries no more."""
        found = progress_of(deployment, reads_figures=self._has_figures)
        if found is None:
            return None
        self._has_figures = found.is_known
        return RolloutSerializer(found).data

    def get_url(self, deployment: Deployment) -> str:
        """Return the origin, with the first of its own host names if it has any."""
        return first_origin(deployment)


class ReplicaSerializer(serializers.Serializer[Replica]):
    """A replica, which is a session: whether its process runs, whether it answers, and whether it gets requests."""

    session = serializers.CharField(source="session_id", help_text="Its id, at which there are its log and events")
    name = serializers.CharField(source="session.name")
    revision = serializers.IntegerField(source="revision.number")
    process = serializers.ChoiceField(choices=[status.value for status in Status], source="session.status")
    detail = serializers.CharField(source="session.detail", help_text="The reason of that status in words")
    health = serializers.ChoiceField(choices=ReplicaHealth.values)
    health_detail = serializers.CharField(help_text="What the last probe found")
    traffic = serializers.SerializerMethodField(help_text="serving, draining or none")
    host = serializers.CharField(source="session.host.name", default=None, allow_null=True)
    created_at = serializers.DateTimeField()
    started_at = serializers.DateTimeField(source="session.started_at", allow_null=True)

    def get_traffic(self, replica: Replica) -> str:
        """Return whether requests go to it."""
        return traffic_of(replica)


class DeploymentEventSerializer(ShownSerializer[DeploymentEvent]):
    """Something that was done with a deployment; no actor: by the platform."""

    actor = serializers.EmailField(source="actor.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = DeploymentEvent
        fields = ("at", "what", "actor")
