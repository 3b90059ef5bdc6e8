"""What opens the address of a deployment: tokens of programs, and tickets of browsers. Both are stored as digests."""

from typing import ClassVar, Final

from django.db import models
from django.db.models import F, FilteredRelation, Q
from django.db.models.functions import Coalesce
from django.utils import timezone

from accounts.models import User
from deployments.models.deployment import Deployment
from proxy.budgets import month_of
from resources import clock
from sessions.models import HandOver

TOKEN_PREFIX: Final = "gpd_"  # noqa: S105  # how a secret begins
DIGEST_LENGTH: Final = 64
USED: Final = ("requests", "prompt_tokens", "completion_tokens")


class DeploymentTokenQuerySet(models.QuerySet["DeploymentToken"]):
    """Questions about tokens."""

    def valid(self) -> "DeploymentTokenQuerySet":
        """Return those that open their deployment now; that of a page ends with the account of its user."""
        lasting = Q(expires_at=None) | Q(expires_at__gt=clock.now())
        return self.filter(lasting, Q(is_trial=False) | Q(created_by__is_active=True), revoked_at=None)

    def listed(self) -> "DeploymentTokenQuerySet":
        """Return those that lists show: those of pages only while they last; what they have used stays counted."""
        is_over = Q(revoked_at__isnull=False) | Q(expires_at__lte=clock.now())
        return self.exclude(is_over, is_trial=True)

    def with_usage(self) -> "DeploymentTokenQuerySet":
        """Annotate what each has used in this calendar month: `used_requests`, and the tokens of models."""
        used = {f"used_{name}": Coalesce(F(f"now_used__{name}"), 0) for name in USED}
        this_month = Q(usage__month=month_of(clock.now()).date())
        return self.annotate(now_used=FilteredRelation("usage", condition=this_month)).annotate(**used)


class DeploymentToken(models.Model):
    """A secret that opens one deployment, `Authorization: Bearer gpd_...`; it is shown once."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="tokens", editable=False)
    name = models.CharField(max_length=64)
    digest = models.CharField(max_length=DIGEST_LENGTH, unique=True, editable=False)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="+", editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)
    rate_per_minute = models.PositiveIntegerField(default=0, help_text="Requests; 0: no limit")
    monthly_requests = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Requests of a calendar month (UTC); 0: no limit"
    )
    monthly_tokens = models.PositiveBigIntegerField(
        default=0, db_default=0, help_text="Tokens that models read and write for it in a month; 0: no limit"
    )
    is_trial = models.BooleanField(
        default=False, db_default=False, editable=False, help_text="Of the page on which its creator tries it"
    )

    objects: ClassVar[DeploymentTokenQuerySet] = DeploymentTokenQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-created_at", "-id")

    def __str__(self) -> str:
        return self.name


class TokenUsageQuerySet(models.QuerySet["TokenUsage"]):
    """Questions about what was used."""

    def of(self, deployment: Deployment) -> "TokenUsageQuerySet":
        """Return what was used of this deployment, with its tokens and without any."""
        return self.filter(Q(token__deployment=deployment) | Q(deployment=deployment))


class TokenUsage(models.Model):
    """What a token, or all requests of a deployment without one, has used in a calendar month (UTC)."""

    token = models.ForeignKey(
        DeploymentToken, on_delete=models.CASCADE, related_name="usage", db_index=False, null=True, editable=False
    )
    deployment = models.ForeignKey(
        Deployment, on_delete=models.CASCADE, related_name="+", db_index=False, null=True, editable=False
    )
    month = models.DateField(editable=False, help_text="Its first day")
    requests = models.BigIntegerField(default=0, editable=False)
    prompt_tokens = models.BigIntegerField(default=0, editable=False, help_text="That models have read")
    completion_tokens = models.BigIntegerField(default=0, editable=False, help_text="That models have written")

    objects: ClassVar[TokenUsageQuerySet] = TokenUsageQuerySet.as_manager()  # type: ignore[assignment]

    class Meta:
        ordering = ("-month", "token")
        constraints = (
            models.UniqueConstraint(fields=("token", "month"), name="token_usage_of_month"),
            models.UniqueConstraint(fields=("deployment", "month"), name="tokenless_usage_of_month"),
            models.CheckConstraint(condition=Q(token=None) ^ Q(deployment=None), name="usage_of_token_or_deployment"),
        )

    def __str__(self) -> str:
        return f"{self.token_id or self.deployment_id} in {self.month:%Y-%m}"

    @property
    def tokens(self) -> int:
        """Those that models have read and written."""
        return self.prompt_tokens + self.completion_tokens


class DeploymentTicket(HandOver):
    """A hand-over from the platform to the address of a deployment, for a user who has signed in."""

    deployment = models.ForeignKey(Deployment, on_delete=models.CASCADE, related_name="tickets")

    def __str__(self) -> str:
        return f"{self.deployment_id} until {self.expires_at}"
