"""What a host that was added authenticates with."""

from django.db import models
from django.utils import timezone

from resources.models import ResourceGroup


class HostAccess(models.Model):
    """The credentials of one host, known by its name; passwords and tokens as digests, its key encrypted.

    Between `add_host` and `join` it has a token alone.
    """

    name = models.CharField(max_length=64, unique=True)
    group = models.ForeignKey(ResourceGroup, on_delete=models.PROTECT, related_name="+", help_text="Which it joins")
    token_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of the token to join with")
    token_expires_at = models.DateTimeField(null=True, blank=True)
    role = models.CharField(max_length=63, unique=True, help_text="Of PostgreSQL; its Redis users are named after it")
    redis_digest = models.CharField(max_length=64, blank=True, help_text="SHA-256 of its Redis password")
    encrypted_key = models.BinaryField(default=bytes, help_text="Signs requests to its gateway; see hostaccess.keys")
    created_at = models.DateTimeField(default=timezone.now)
    joined_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("name",)
        verbose_name = "host access"
        verbose_name_plural = "accesses of hosts"

    def __str__(self) -> str:
        return self.name
