"""API of the tokens of deployments: their limits, and what they use."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from accounts.serializers import StrictSerializer
from deployments.access import tokens
from deployments.models import Deployment, DeploymentToken, TokenUsage
from deployments.requests import RevisionRequest
from deployments.rest.bodies import number
from deployments.validation import MAX_TOKEN_LIFE, MAX_TOKEN_NAME_LENGTH
from resources import clock
from restapi.fields import ShownSerializer
from restapi.views import ApiViewSet
from sessions.errors import GENERAL, RejectedError

PATH: Final = r"tokens/(?P<token_id>[0-9]{1,18})"
FIELDS: Final = {  # of the services' requests, and what the API calls them
    **{"environment": "env", "is_public": "public", "health_path": "health.path", GENERAL: "non_field_errors"},
    **{name: f"health.{name}" for name in ("start_seconds", "interval_seconds", "timeout_seconds", "retries")},
}


@contextmanager
def refusals(revision: RevisionRequest | None = None) -> Iterator[None]:
    """Convert RejectedError to a ValidationError by field of the request."""
    names = FIELDS | ({"mounts": "model_folder"} if revision and not revision.mounts else {})
    try:
        yield
    except RejectedError as error:
        raise ValidationError({names.get(name, name): [text] for name, text in error.errors.items()}) from error


class DeploymentTokenSerializer(ShownSerializer[DeploymentToken]):
    """A token of a deployment, without its secret."""

    created_by = serializers.EmailField(source="created_by.email", default=None, read_only=True, allow_null=True)
    used_requests = serializers.IntegerField(default=0, read_only=True, help_text="In this calendar month (UTC)")
    used_prompt_tokens = serializers.IntegerField(default=0, read_only=True, help_text="That models have read")
    used_completion_tokens = serializers.IntegerField(default=0, read_only=True, help_text="That they have written")

    class Meta:
        model = DeploymentToken
        fields: tuple[str, ...] = (
            *("id", "name", "created_by", "created_at", "expires_at", "revoked_at", "last_used_at"),
            *("rate_per_minute", "monthly_requests", "monthly_tokens"),
            *("used_requests", "used_prompt_tokens", "used_completion_tokens"),
        )


class IssuedDeploymentTokenSerializer(DeploymentTokenSerializer):
    """A token that was just made, with its secret, which no other response shows."""

    secret = serializers.CharField(read_only=True)

    class Meta(DeploymentTokenSerializer.Meta):
        fields = (*DeploymentTokenSerializer.Meta.fields, "secret")


class TokenUsageSerializer(ShownSerializer[TokenUsage]):
    """What a token, or all requests without one, has used in a calendar month (UTC)."""

    token = serializers.IntegerField(source="token_id", read_only=True, allow_null=True, help_text="Its id")
    name = serializers.CharField(source="token.name", default=None, read_only=True, allow_null=True)

    class Meta:
        model = TokenUsage
        fields = ("token", "name", "month", "requests", "prompt_tokens", "completion_tokens")


class TokenLimitsBody(StrictSerializer):
    """Limits of a token."""

    rate_per_minute = number("rate_per_minute", help_text="Requests at most; 0: no limit")
    monthly_requests = number("monthly_requests", help_text="Of a calendar month (UTC) at most; 0: no limit")
    monthly_tokens = number("monthly_tokens", help_text="That models read and write in a month; 0: no limit")

    def limits(self) -> dict[str, int]:
        """Return those that are given."""
        return {name: self.validated_data[name] for name in tokens.LIMITS if name in self.validated_data}


class NewDeploymentTokenBody(TokenLimitsBody):
    """A token to make."""

    name = serializers.CharField(max_length=MAX_TOKEN_NAME_LENGTH)
    days = serializers.IntegerField(
        min_value=1, max_value=MAX_TOKEN_LIFE.days - 1, required=False, allow_null=True, help_text="null: until revoked"
    )

    def lifetime(self) -> timedelta | None:
        """Return how long the token is valid; None: until it is revoked."""
        days = self.validated_data.get("days")
        return timedelta(days=days) if days else None


class TokenActions(ApiViewSet[Deployment]):
    """The actions on a deployment that are about its tokens."""

    @extend_schema(responses=DeploymentTokenSerializer(many=True))
    @action(detail=True)
    def tokens(self, request: Request, pk: str) -> Response:
        """List the tokens, newest first, without their secrets, with what they have used in this month."""
        found = DeploymentToken.objects.filter(deployment=self.get_object()).listed().with_usage()
        return self.rows_page(found.select_related("created_by"), DeploymentTokenSerializer)

    @extend_schema(request=NewDeploymentTokenBody, responses={201: IssuedDeploymentTokenSerializer})
    @tokens.mapping.post
    def create_token(self, request: Request, pk: str) -> Response:
        """Make a token; only this response shows its secret."""
        deployment, body = self.get_object(), NewDeploymentTokenBody(data=request.data)
        body.is_valid(raise_exception=True)
        lifetime = body.lifetime()
        with refusals():
            made = tokens.create_token(
                deployment,
                name=body.validated_data["name"],
                actor=user_of(request),
                expires_at=clock.now() + lifetime if lifetime else None,
                **body.limits(),
            )
        shown = {**DeploymentTokenSerializer(made.token).data, "secret": made.secret}
        return Response(shown, status=status.HTTP_201_CREATED)

    @extend_schema(request=TokenLimitsBody, responses=DeploymentTokenSerializer)
    @action(detail=True, methods=["patch"], url_path=PATH)
    def change_token(self, request: Request, pk: str, token_id: str) -> Response:
        """Change limits of a token, such as a budget that is spent."""
        token, body = self._token(token_id), TokenLimitsBody(data=request.data)
        body.is_valid(raise_exception=True)
        with refusals():
            tokens.change_limits(token, body.limits(), actor=user_of(request))
        shown = DeploymentToken.objects.with_usage().select_related("created_by").get(pk=token.pk)
        return Response(DeploymentTokenSerializer(shown).data)

    @extend_schema(request=None, responses={204: None})
    @change_token.mapping.delete
    def revoke_token(self, request: Request, pk: str, token_id: str) -> Response:
        """Revoke a token at once."""
        tokens.revoke_token(self._token(token_id), actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=TokenUsageSerializer(many=True))
    @action(detail=True)
    def usage(self, request: Request, pk: str) -> Response:
        """List what each token, and requests without one, have used in each month (UTC), the newest first."""
        found = TokenUsage.objects.of(self.get_object()).select_related("token")
        return self.rows_page(found, TokenUsageSerializer)

    def rows_page(self, rows: QuerySet[Any], kind: type[serializers.BaseSerializer[Any]]) -> Response:
        """Return a page of these rows."""
        shown = kind(self.paginate_queryset(rows), many=True, context=self.get_serializer_context())
        return self.get_paginated_response(shown.data)

    def _token(self, token_id: str) -> DeploymentToken:
        rows = DeploymentToken.objects.select_related("deployment__owner")
        return get_object_or_404(rows, deployment=self.get_object(), pk=token_id)
