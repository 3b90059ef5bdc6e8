"""Deployments, and the record of what was done with them."""

from typing import ClassVar, Final

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import F, Q
from django.utils import timezone

from accounts.models import Membership, Project, ProjectRole, User
from accounts.policies import bounds_of
from deployments.models.rollout import RolloutSettings
from deployments.models.scaling import ScalingSettings
from resources.models import ResourceGroup
from sessions.models import new_session_id

MAX_NAME_LENGTH: Final = 20
# The first part of a host name is "<name>--<id>", so a name has no two hyphens in a row.
DEPLOYMENT_NAME: Final = r"[a-z](?:[a-z0-9]|-(?=[a-z0-9])){0,19}"
PROBLEM_LENGTH: Final = 2000


class DeploymentState(models.TextChoices):
    """How far a deployment is from what is wanted of it; written by the reconciliation alone."""

    STARTING = "STARTING", "starting"  # no replica is healthy yet, and none has failed
    HEALTHY = "HEALTHY", "healthy"  # as many replicas of the current revision are healthy as are wanted
    UPDATING = "UPDATING", "updating"  # it serves, while replicas of another revision come or go
    DEGRADED = "DEGRADED", "degraded"  # it serves with fewer replicas than are wanted
    FAILING = "FAILING", "failing"  # no replica is healthy; `problem` says why
    STOPPED = "STOPPED", "stopped"  # no replicas are wanted
    ASLEEP = "ASLEEP", "asleep"  # no replicas are wanted until a request comes
    ENDED = "ENDED", "ended"


class DeploymentQuerySet(models.QuerySet["Deployment"]):
    """Questions about deployments."""

    def visible_to(self, user: User) -> "DeploymentQuerySet":
        """Return those that `user` may see: their own, those of projects of which they are a member, or all."""
        if user.is_superuser:
            return self
        projects = Membership.objects.filter(user=user).values("project")
        return self.filter(Q(owner=user) | Q(project__in=projects))

    def operable_by(self, user: User) -> "DeploymentQuerySet":
        """Return those that `user` may change and end: their own, those of projects that they manage, or all."""
        if user.is_superuser:
            return self
        managed = Membership.objects.filter(user=user, role=ProjectRole.MANAGER.value).values("project")
        return self.filter(Q(owner=user) | Q(project__in=managed))

    def live(self) -> "DeploymentQuerySet":
        """Return those that were not ended."""
        return self.filter(ended_at=None)

    def labelled(self, label: str) -> "DeploymentQuerySet":
        """Return the live deployment whose address begins with this label, if there is one."""
        name, separator, pk = label.rpartition("--")
        return self.live().filter(pk=pk, name=name) if separator else self.none()


class Deployment(ScalingSettings, RolloutSettings):
    """A program served at one address: how many replicas are wanted, of which revision, and who may use it."""

    id = models.CharField(primary_key=True, max_length=16, default=new_session_id, editable=False)
    name = models.CharField(
        max_length=MAX_NAME_LENGTH,
        validators=[RegexValidator(f"^{DEPLOYMENT_NAME}$")],
        editable=False,
        help_text="Part of its address, so it never changes",
    )
    owner = models.ForeignKey(User, on_delete=models.PROTECT, related_name="deployments", editable=False)
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, null=True, blank=True, related_name="deployments", editable=False
    )
    resource_group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="deployments")
    replicas = models.PositiveSmallIntegerField(default=1, help_text="How many are wanted")
    is_public = models.BooleanField("public", default=False, help_text="Anybody who knows the address may use it")
    sticky = models.CharField(
        max_length=71, blank=True, help_text='"cookie", or "header:<name>": requests of one client go to one replica'
    )
    max_surge = models.PositiveSmallIntegerField(default=1, help_text="Replicas beyond those wanted, during a rollout")
    max_unavailable = models.PositiveSmallIntegerField(default=0, help_text="Replicas that may be missing meanwhile")
    concurrency = models.PositiveIntegerField(default=0, help_text="Requests that a replica serves at once; 0: any")
    queue = models.PositiveIntegerField(default=100, help_text="Requests that wait at most, in each proxy process")
    drain_seconds = models.PositiveIntegerField(default=30, help_text="That requests get to finish as a replica ends")
    allowed_origins = models.JSONField(
        default=list, db_default=[], blank=True, help_text='Whose pages may use it; "*" for those of all'
    )
    listen_port = models.PositiveIntegerField(
        null=True, blank=True, unique=True, editable=False, help_text="Its own, where apps are told apart by port"
    )
    epoch = models.PositiveIntegerField(default=1, editable=False, help_text="Cookies of another epoch are void")
    revision = models.ForeignKey(
        "Revision", on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="What replicas run"
    )
    previous_revision = models.ForeignKey(
        "Revision", on_delete=models.PROTECT, null=True, blank=True, related_name="+", help_text="To roll back to"
    )
    given_up = models.ForeignKey(
        "Revision",
        on_delete=models.PROTECT,
        null=True,
        editable=False,
        related_name="+",
        help_text="Whose replicas failed, so that the one before it is current again",
    )
    activated_at = models.DateTimeField(null=True, editable=False, help_text="When the revision became current")
    restarted_at = models.DateTimeField(
        null=True, editable=False, help_text="Replicas that were launched before are replaced"
    )
    state = models.CharField(
        max_length=8, choices=DeploymentState.choices, default=DeploymentState.STARTING.value, editable=False
    )
    problem = models.CharField(
        max_length=PROBLEM_LENGTH, blank=True, editable=False, help_text="Why it is not as wanted"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    ended_at = models.DateTimeField(null=True, blank=True, editable=False)

    objects: ClassVar[DeploymentQuerySet] = DeploymentQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")
        indexes = (models.Index(fields=("project",), condition=Q(ended_at=None), name="deployment_of_project"),)
        constraints = (
            models.UniqueConstraint(
                fields=("owner", "name"), condition=Q(ended_at=None), name="deployment_live_name_unique"
            ),
            models.CheckConstraint(condition=Q(replicas__lte=64), name="deployment_replicas_bounded"),
            models.CheckConstraint(
                condition=Q(max_surge__gt=0) | Q(max_unavailable__gt=0), name="deployment_rollout_possible"
            ),
            models.CheckConstraint(condition=Q(ended_at=None) | Q(replicas=0), name="deployment_ended_wants_none"),
            models.CheckConstraint(
                condition=Q(previous_revision=None) | ~Q(previous_revision=F("revision")),
                name="deployment_previous_is_another",
            ),
            *ScalingSettings.Meta.constraints,
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def label(self) -> str:
        """The first part of its host name."""
        return f"{self.name}--{self.pk}"

    @property
    def allows_public(self) -> bool:
        """Whether the policies of owner and project let it be public; fetch both with it."""
        return bounds_of(self.owner, self.project).allow_public_apps

    @property
    def sticky_key(self) -> str:
        """What tells clients apart: "", "cookie" or the name of a request header in lower case."""
        return self.sticky.removeprefix("header:").lower()


class DeploymentEvent(models.Model):
    """Something that was done with a deployment, by whom; no actor: by the platform."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="events", db_index=False)
    at = models.DateTimeField(default=timezone.now)
    what = models.CharField(max_length=300)
    actor = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")

    class Meta:
        ordering = ("-id",)
        indexes = (models.Index(fields=("deployment", "-id"), name="deployment_event_list"),)

    def __str__(self) -> str:
        return self.what
