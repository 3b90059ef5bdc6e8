"""Serializers of the API of apps: opened apps, share links, and the requests for both."""

from typing import Any

from rest_framework import serializers

from accounts.serializers import StrictSerializer
from endpoints.services import MAX_NOTE_LENGTH
from restapi.fields import ShownSerializer
from sessions.access.app_serializers import EndpointSerializer
from sessions.models import ShareLink


class OpenedSerializer(EndpointSerializer):
    """An app that was just opened."""

    note = serializers.CharField(read_only=True, help_text="What else is to be known, such as that a port was taken")

    class Meta(EndpointSerializer.Meta):
        fields = (*EndpointSerializer.Meta.fields, "note")


class OpenSerializer(StrictSerializer):
    """A request to open an app. Options that are left out stay as they are."""

    public = serializers.BooleanField(required=False, help_text="Whether anybody who knows the address may use it")
    public_until = serializers.DateTimeField(
        required=False, allow_null=True, help_text="With `public`: until then; else as long as the session runs"
    )
    preferred_port = serializers.IntegerField(
        required=False, min_value=1, max_value=65535, help_text="A port of its own; another one if it is taken"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Raise ValidationError for `public_until` without `public`."""
        if attrs.get("public_until") and not attrs.get("public"):
            raise serializers.ValidationError({"public_until": 'Only with "public": true.'})
        return attrs


class ShareLinkSerializer(ShownSerializer[ShareLink]):
    """A link whose holders may use one app."""

    created_by = serializers.EmailField(source="created_by.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = ShareLink
        fields: tuple[str, ...] = ("id", "note", "created_by", "created_at", "expires_at", "revoked_at", "last_used_at")


class SharedSerializer(ShareLinkSerializer):
    """A new link with its URL, which is returned only once: only its digest is stored."""

    url = serializers.URLField(read_only=True)

    class Meta(ShareLinkSerializer.Meta):
        fields = (*ShareLinkSerializer.Meta.fields, "url")


class ShareSerializer(StrictSerializer):
    """A request for a share link."""

    expires = serializers.DateTimeField()
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=MAX_NOTE_LENGTH)
