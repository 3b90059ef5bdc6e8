"""What the API says about apps, and what it takes to open and share them."""

from typing import Any

from rest_framework import serializers

from accounts.serializers import StrictSerializer
from endpoints import addresses
from endpoints.services import LONGEST_NOTE
from sessions.models import Endpoint, EndpointState, ShareLink


class EndpointSerializer(serializers.ModelSerializer[Endpoint]):
    """An app of a session. It can be used while its state is READY; one that is CLOSED may be opened."""

    name = serializers.CharField(source="app", read_only=True, help_text="Of the image's app, or p8080 for a port")
    url = serializers.SerializerMethodField(
        help_text="Where browsers open it; empty where it needs a port and has none yet"
    )
    state = serializers.ChoiceField(choices=[state.value for state in EndpointState], read_only=True)
    detail = serializers.CharField(read_only=True, help_text="What it is doing, or why it failed")
    public = serializers.BooleanField(source="is_public", read_only=True)
    port = serializers.IntegerField(source="listen_port", read_only=True, allow_null=True)
    port_url = serializers.SerializerMethodField(help_text="Where the port that it has to itself is; empty without one")

    class Meta:
        model = Endpoint
        fields: tuple[str, ...] = (
            "name",
            "title",
            "url",
            "state",
            "detail",
            "public",
            "public_until",
            "port",
            "port_url",
        )
        read_only_fields = fields

    def get_url(self, endpoint: Endpoint) -> str:
        """Return the address of its first page."""
        return addresses.first_page(endpoint)

    def get_port_url(self, endpoint: Endpoint) -> str:
        """Return the address of its own port."""
        return addresses.first_page_at_port(endpoint)


class OpenedSerializer(EndpointSerializer):
    """An app that was just opened."""

    note = serializers.CharField(read_only=True, help_text="What else is to be known, such as that a port was taken")

    class Meta(EndpointSerializer.Meta):
        fields = read_only_fields = (*EndpointSerializer.Meta.fields, "note")


class OpenSerializer(StrictSerializer):
    """How to open an app. What is left out stays as it is."""

    public = serializers.BooleanField(required=False, help_text="Whether anybody who knows the address may use it")
    public_until = serializers.DateTimeField(
        required=False, allow_null=True, help_text="With `public`: until then; else as long as the session runs"
    )
    preferred_port = serializers.IntegerField(
        required=False, min_value=1, max_value=65535, help_text="A port of its own; another one if it is taken"
    )

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """Refuse a time for what is not made public."""
        if attrs.get("public_until") and not attrs.get("public"):
            raise serializers.ValidationError({"public_until": 'Only with "public": true.'})
        return attrs


class ShareLinkSerializer(serializers.ModelSerializer[ShareLink]):
    """A link by which whoever holds it uses one app."""

    created_by = serializers.EmailField(source="created_by.email", default=None, read_only=True, allow_null=True)

    class Meta:
        model = ShareLink
        fields: tuple[str, ...] = ("id", "note", "created_by", "created_at", "expires_at", "revoked_at", "last_used_at")
        read_only_fields = fields


class SharedSerializer(ShareLinkSerializer):
    """A new link with its address, which is shown this once: only its digest is stored."""

    url = serializers.URLField(read_only=True)

    class Meta(ShareLinkSerializer.Meta):
        fields = read_only_fields = (*ShareLinkSerializer.Meta.fields, "url")


class ShareSerializer(StrictSerializer):
    """The share link that is asked for."""

    expires = serializers.DateTimeField()
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=LONGEST_NOTE)
