"""Responses that are kept, so that a request which is sent twice takes effect once."""

from typing import Final

from django.conf import settings
from django.db import models

MAX_KEY_LENGTH: Final = 128
HASHED: Final = "hmac-sha256 "  # how a stored key begins


class IdempotencyKey(models.Model):
    """The response to the first request with a key."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+", editable=False)
    key = models.CharField(max_length=MAX_KEY_LENGTH, editable=False)
    fingerprint = models.CharField(max_length=64, editable=False)  # HMAC of key, method, address and body
    status_code = models.PositiveSmallIntegerField(editable=False)
    body = models.TextField(editable=False)  # JSON
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=["user", "key"], name="idempotency_key_once"),
            models.CheckConstraint(condition=models.Q(key__startswith=HASHED), name="idempotency_key_is_hashed"),
        )

    def __str__(self) -> str:
        return self.key
