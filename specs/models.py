"""Launch templates, their versions, and what was launched from them."""

from typing import ClassVar, Final

from django.db import models
from django.db.models import Q
from django.utils import timezone

from accounts.models import Project, User
from deployments.models import Deployment
from sessions.models import Session, new_session_id

NAME_LENGTH: Final = 64
DESCRIPTION_LENGTH: Final = 500


class TemplateQuerySet(models.QuerySet["LaunchTemplate"]):
    """Questions about launch templates."""

    def visible_to(self, user: User) -> "TemplateQuerySet":
        """Return those that the user may launch: their own, those of their projects, and everybody's."""
        if user.is_superuser:
            return self
        return self.filter(
            Q(owner=user) | Q(owner=None, project=None) | Q(project__in=Project.objects.visible_to(user))
        )

    def editable_by(self, user: User) -> "TemplateQuerySet":
        """Return those that the user may change: their own, and those of projects that they manage."""
        if user.is_superuser:
            return self
        return self.filter(Q(owner=user) | Q(project__in=Project.objects.managed_by(user)))


class LaunchTemplate(models.Model):
    """A saved launch of a user, of a project, or, with neither, of everybody; what it says is in its versions."""

    id = models.CharField(primary_key=True, max_length=16, default=new_session_id, editable=False)
    owner = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="launch_templates")
    project = models.ForeignKey(
        Project, on_delete=models.CASCADE, null=True, blank=True, related_name="launch_templates"
    )
    name = models.CharField(max_length=NAME_LENGTH)
    description = models.CharField(max_length=DESCRIPTION_LENGTH, blank=True)
    icon = models.CharField(max_length=16)
    color = models.CharField(max_length=16)
    kind = models.CharField(max_length=16, help_text="Of what it launches: session, cluster or deployment")
    version = models.PositiveIntegerField(default=1, help_text="Number of the version that is launched")
    launches = models.PositiveIntegerField(default=0, help_text="How often it was launched")
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(default=timezone.now, editable=False)

    objects: ClassVar[TemplateQuerySet] = TemplateQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-launches", "name", "id")
        constraints = (
            models.CheckConstraint(condition=Q(owner=None) | Q(project=None), name="template_has_one_holder"),
            models.UniqueConstraint(
                fields=("owner", "project", "name"), nulls_distinct=False, name="template_name_unique"
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.pk})"

    @property
    def is_for_everybody(self) -> bool:
        """Whether it is neither a user's nor a project's."""
        return self.owner_id is None and self.project_id is None

    @property
    def current(self) -> "TemplateVersion":
        """The version that is launched."""
        return self.versions.select_related("author", "template").get(number=self.version)


class TemplateVersion(models.Model):
    """What a template said from one change to the next, as a spec file; never changed."""

    template = models.ForeignKey(LaunchTemplate, on_delete=models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    text = models.TextField(help_text="A spec file of the kind template")
    author = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+")
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("-number",)
        constraints = (models.UniqueConstraint(fields=("template", "number"), name="template_version_unique"),)

    def __str__(self) -> str:
        return f"{self.template} {self.number}"


class TemplateLaunch(models.Model):
    """The fact that a session or deployment was launched from a template, whose name stays when it is deleted."""

    template = models.ForeignKey(LaunchTemplate, on_delete=models.SET_NULL, null=True, related_name="+")
    name = models.CharField(max_length=NAME_LENGTH)
    number = models.PositiveIntegerField()
    session = models.OneToOneField(Session, on_delete=models.CASCADE, null=True, related_name="template_launch")
    deployment = models.OneToOneField(Deployment, on_delete=models.CASCADE, null=True, related_name="template_launch")

    class Meta:
        ordering = ("id",)
        verbose_name_plural = "template launches"
        constraints = (
            models.CheckConstraint(
                condition=Q(session=None, deployment__isnull=False) | Q(session__isnull=False, deployment=None),
                name="template_launched_one",
            ),
        )

    def __str__(self) -> str:
        return f"{self.name} {self.number}"
