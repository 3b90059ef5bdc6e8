"""Serializers of webhooks and their messages."""

from typing import Any

from rest_framework import serializers

from accounts.serializers import StrictSerializer
from restapi.fields import ShownSerializer
from webhooks.destinations import MAX_URL_LENGTH
from webhooks.event_types import EVENT_TYPES
from webhooks.models import NAME_LENGTH, DeliveryState, Webhook, WebhookAttempt, WebhookDelivery

TYPES = [(each, each) for each in EVENT_TYPES]


class WebhookSerializer(ShownSerializer[Webhook]):
    """A webhook, without its secret."""

    enabled = serializers.BooleanField(source="is_enabled")
    all_users = serializers.BooleanField(source="covers_all", help_text="Events of everybody's sessions")
    event_types = serializers.ListField(child=serializers.CharField())

    class Meta:
        model = Webhook
        fields: tuple[str, ...] = (
            *("id", "name", "url", "event_types", "all_users", "enabled"),
            *("disabled_reason", "failing_since", "old_secret_until", "created_at"),
        )


class SecretWebhookSerializer(WebhookSerializer):
    """A webhook with its secret, which no other response shows."""

    secret = serializers.CharField(read_only=True)

    class Meta(WebhookSerializer.Meta):
        fields = (*WebhookSerializer.Meta.fields, "secret")


class NewWebhookSerializer(StrictSerializer):
    """An address, and what is sent there."""

    url = serializers.CharField(max_length=MAX_URL_LENGTH)
    event_types = serializers.ListField(child=serializers.ChoiceField(choices=TYPES), min_length=1, max_length=100)
    name = serializers.CharField(max_length=NAME_LENGTH, required=False, allow_blank=True)
    all_users = serializers.BooleanField(
        source="covers_all", required=False, help_text="Events of everybody's sessions, for superadmins"
    )


class ChangedWebhookSerializer(NewWebhookSerializer):
    """What is changed of a webhook."""

    enabled = serializers.BooleanField(source="is_enabled", required=False)


class WebhookDeliverySerializer(ShownSerializer[WebhookDelivery]):
    """A message to a webhook."""

    class Meta:
        model = WebhookDelivery
        fields: tuple[str, ...] = (
            *("id", "message_id", "type", "state", "attempts", "created_at", "due_at", "delivered_at"),
        )


class WebhookAttemptSerializer(ShownSerializer[WebhookAttempt]):
    """One request with a message: the HTTP status and the beginning of the response, or the problem."""

    class Meta:
        model = WebhookAttempt
        fields = ("at", "status", "duration_ms", "problem", "response")


class WebhookDeliveryDetailSerializer(WebhookDeliverySerializer):
    """A message with its body, which is empty before it is first sent, and all attempts."""

    log = WebhookAttemptSerializer(many=True, read_only=True)

    class Meta(WebhookDeliverySerializer.Meta):
        fields = (*WebhookDeliverySerializer.Meta.fields, "body", "log")


class DeliveryQuery(serializers.Serializer[Any]):
    """Query parameters of a webhook's messages."""

    state = serializers.ChoiceField(choices=DeliveryState.choices, required=False)
