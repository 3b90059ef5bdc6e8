"""The model of invitations."""

from typing import Final

from django.conf import settings
from django.db import models
from django.utils import timezone

TOKEN_LENGTH: Final = 43  # characters, of 32 random bytes


class AccountInvitation(models.Model):
    """A link, mailed to an address, by which its reader makes an account. Only its digest is stored."""

    email = models.EmailField("e-mail address")
    policy = models.ForeignKey("accounts.ResourcePolicy", on_delete=models.CASCADE, related_name="+")
    project = models.ForeignKey(
        "accounts.Project",
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="+",
        help_text="Of which the new user becomes a member; empty: of none",
    )
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, related_name="+")
    digest = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(editable=False)
    accepted_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        ordering = ("-created_at", "-id")
        verbose_name = "invitation"
        constraints = (
            models.UniqueConstraint(
                fields=("email",), condition=models.Q(accepted_at=None), name="invitation_of_an_address_is_one"
            ),
        )

    def __str__(self) -> str:
        return self.email
