"""API of webhooks."""

from collections.abc import Mapping
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.mixins import DestroyModelMixin, ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from restapi.views import ApiViewSet, valid_body
from webhooks import services
from webhooks.models import Webhook, WebhookDelivery
from webhooks.serializers import (
    ChangedWebhookSerializer,
    DeliveryQuery,
    NewWebhookSerializer,
    SecretWebhookSerializer,
    WebhookDeliveryDetailSerializer,
    WebhookDeliverySerializer,
    WebhookSerializer,
)


class WebhookViewSet(ListModelMixin, RetrieveModelMixin, DestroyModelMixin, ApiViewSet[Webhook]):
    """The caller's webhooks."""

    queryset = Webhook.objects.all()
    serializer_class = WebhookSerializer
    lookup_value_regex = "[0-9]{1,18}"
    unkept_operations = frozenset({"create", "rotate_secret"})
    http_method_names = ("get", "head", "options", "post", "patch", "delete")

    def get_queryset(self) -> QuerySet[Webhook]:
        """Return the caller's own."""
        return super().get_queryset().filter(owner=user_of(self.request)).select_related("owner")

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, str]:
        """Return them by field of the request."""
        return {"all_users" if name == "covers_all" else name: message for name, message in errors.items()}

    @extend_schema(request=NewWebhookSerializer, responses={201: SecretWebhookSerializer})
    def create(self, request: Request) -> Response:
        """Make a webhook; only this response shows its secret."""
        data = valid_body(NewWebhookSerializer, request)
        types = data.pop("event_types")
        webhook, secret = services.create(user_of(request), types=types, **data)
        return Response(_with_secret(webhook, secret), status=status.HTTP_201_CREATED)

    @extend_schema(request=ChangedWebhookSerializer, responses=WebhookSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change a webhook. Disabling it gives up the messages that wait."""
        webhook = self.get_object()
        services.change(webhook, valid_body(ChangedWebhookSerializer, request, partial=True))
        return Response(WebhookSerializer(webhook).data)

    def perform_destroy(self, instance: Webhook) -> None:
        """Delete the webhook with its messages."""
        services.delete(instance)

    @extend_schema(request=None, responses=SecretWebhookSerializer)
    @action(detail=True, methods=["post"], url_path="rotate-secret")
    def rotate_secret(self, request: Request, pk: str) -> Response:
        """Replace the secret; for a day messages carry signatures of both. Only this response shows the new one."""
        webhook = self.get_object()
        secret = services.rotate_secret(webhook)
        return Response(_with_secret(webhook, secret))

    @extend_schema(request=None, responses={201: WebhookDeliverySerializer})
    @action(detail=True, methods=["post"])
    def test(self, request: Request, pk: str) -> Response:
        """Send a message of the type webhook.test."""
        delivery = services.send_test(self.get_object())
        return Response(WebhookDeliverySerializer(delivery).data, status=status.HTTP_201_CREATED)


class WebhookDeliveryViewSet(ListModelMixin, RetrieveModelMixin, ApiViewSet[WebhookDelivery]):
    """The messages to one of the caller's webhooks of the last 30 days, the newest first."""

    queryset = WebhookDelivery.objects.all()
    serializer_class = WebhookDeliverySerializer
    lookup_value_regex = "[0-9]{1,18}"
    query_serializers = {"list": DeliveryQuery}

    def get_queryset(self) -> QuerySet[WebhookDelivery]:
        """Return those of the webhook, with the body and all attempts where one is asked for."""
        found = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return found
        found = found.filter(webhook=self.kwargs["webhook_id"], webhook__owner=user_of(self.request))
        if self.action == "list":
            return found.filter(**getattr(self, "query", {})).defer("body")
        return found.select_related("webhook").prefetch_related("log")

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """List the messages. Raises Http404 for another user's webhook."""
        get_object_or_404(Webhook, owner=user_of(request), pk=self.kwargs["webhook_id"])
        return super().list(request, *args, **kwargs)

    @extend_schema(responses=WebhookDeliveryDetailSerializer)
    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Show a message with its body and all attempts."""
        return Response(WebhookDeliveryDetailSerializer(self.get_object()).data)

    @extend_schema(request=None, responses=WebhookDeliverySerializer)
    @action(detail=True, methods=["post"])
    def resend(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Send the message again, with the same id."""
        delivery = self.get_object()
        services.send_again(delivery)
        return Response(WebhookDeliverySerializer(delivery).data)


def _with_secret(webhook: Webhook, secret: str) -> dict[str, Any]:
    return {**WebhookSerializer(webhook).data, "secret": secret}
