"""The models of projects and of their members."""

from dataclasses import replace
from typing import ClassVar, Final

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.core.validators import RegexValidator
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from accounts.limits import PolicyLimits
from accounts.models.policies import DEFAULT_WEIGHT, WEIGHT_VALIDATORS, ResourcePolicy

PROJECT_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*\Z"


class ProjectQuerySet(models.QuerySet["Project"]):
    """Questions about projects."""

    def visible_to(self, user: AbstractUser) -> "ProjectQuerySet":
        """Return the projects that `user` is a member of, or all for a superadmin."""
        return self if user.is_superuser else self.filter(memberships__user=user.pk)

    def usable_by(self, user: AbstractUser) -> "ProjectQuerySet":
        """Return the active projects for which `user` may start sessions: those that they are a member of."""
        return self.filter(is_active=True, memberships__user=user.pk)

    def managed_by(self, user: AbstractUser) -> "ProjectQuerySet":
        """Return the projects that `user` manages, inactive ones included, or all for a superadmin."""
        if user.is_superuser:
            return self
        return self.filter(memberships__user=user.pk, memberships__role=ProjectRole.MANAGER.value)


class Project(models.Model):
    """A team, with limits for the sessions of its members together and a weight of its own in fair share."""

    name = models.CharField(
        max_length=64,
        unique=True,
        validators=[RegexValidator(PROJECT_NAME, "Use letters, digits and . _ - and begin with a letter or digit.")],
        help_text="Letters, digits and . _ -, such as vision-lab",
    )
    description = models.CharField(max_length=200, blank=True)
    policy = models.ForeignKey(
        ResourcePolicy,
        on_delete=models.PROTECT,
        null=True,
        blank=True,
        related_name="projects",
        help_text="Limits for the sessions of all members together; empty: those of each member's own policy alone",
    )
    share_weight = models.PositiveSmallIntegerField(
        default=DEFAULT_WEIGHT,
        validators=WEIGHT_VALIDATORS,
        help_text="In resource groups of fair order, where its sessions count for the project: 200 is due twice as "
        "much as 100",
    )
    is_active = models.BooleanField(
        "active", default=True, help_text="An inactive project starts no sessions; those that run go on"
    )
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="projects")

    objects: ClassVar[ProjectQuerySet] = ProjectQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(Lower("name"), name="project_name_unique_in_any_case"),)

    def __str__(self) -> str:
        return self.name

    def limits(self) -> PolicyLimits:
        """Return the limits of all members' sessions together; an inactive project may hold none."""
        limits = self.policy.limits() if self.policy else PolicyLimits()
        return limits if self.is_active else replace(limits, sessions=0)


class ProjectRole(models.TextChoices):
    """What a member may do in a project."""

    MEMBER = "member", "member: starts sessions"
    MANAGER = "manager", "manager: also sees and ends the sessions of all members"


class Membership(models.Model):
    """The fact that a user belongs to a project."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=8, choices=ProjectRole.choices, default=ProjectRole.MEMBER.value)
    created_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ("project", "user")
        constraints = (models.UniqueConstraint(fields=("user", "project"), name="membership_unique"),)

    def __str__(self) -> str:
        return f"{self.user} in {self.project}"
