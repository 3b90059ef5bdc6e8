"""The OpenAPI description of the API: error responses of each operation, and closed requests."""

from http import HTTPStatus
from typing import Any, Final, Literal

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers

from restapi import idempotency, problems
from restapi.models import MAX_KEY_LENGTH
from restapi.views import is_tagged

Direction = Literal["request", "response"]

ALWAYS: Final = (400, 406, 429, 503)
WITH_BODY: Final = (413, 415)
WITH_KEY: Final = (409, 422)
KEY: Final = OpenApiParameter(
    idempotency.HEADER,
    {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY_LENGTH}}}$"},
    OpenApiParameter.HEADER,
    description="The same key within 24 hours repeats the first response, and does nothing",
)
DESCRIPTIONS: Final = {
    400: "Invalid parameters or fields",
    401: "Without a valid token",
    403: "Not allowed to the caller",
    404: "Does not exist, or belongs to another user",
    406: "The client accepts no type that there is",
    409: "Not now; the detail says why",
    413: "The body is too large",
    415: "The body is of another type",
    422: "The idempotency key was used for another request",
    429: "Too many requests; Retry-After says when to come back",
    503: "Not available at present; Retry-After says when to come back",
}


class ProblemSerializer(serializers.Serializer[Any]):
    """An error, as of RFC 9457."""

    type = serializers.CharField(help_text="about:blank: the status says what kind of error it is")
    title = serializers.CharField(help_text="The status in words")
    status = serializers.IntegerField()
    detail = serializers.CharField(help_text="What is wrong, in the language that the client accepts")
    code = serializers.CharField(help_text="What is wrong, for programs")
    errors = serializers.DictField(  # type: ignore[assignment]  # the metaclass collects it
        child=serializers.ListField(child=serializers.CharField()), help_text="Messages of each invalid field"
    )


class ApiSchema(AutoSchema):
    """Describes an operation, with the query parameters and errors that the views have in common."""

    def get_override_parameters(self) -> list[Any]:
        """Return the declared parameters and those of the view's `query_serializers`."""
        declared = getattr(self.view, "query_serializers", {})
        action = getattr(self.view, "action", None) or self.method.lower()
        ours = [declared[action]] if action in declared else []
        return [*super().get_override_parameters(), *ours, *([KEY] if self._takes_idempotency_key() else [])]

    def _get_response_bodies(self, direction: Direction = "response") -> dict[str, Any]:
        """Return the responses, with those of all errors that the operation may end with."""
        responses: dict[str, Any] = super()._get_response_bodies(direction)
        if is_tagged(self.method, int(next(iter(responses)))) and "application/json" in responses["200"]["content"]:
            responses["304"] = {"description": "Not changed since the entity tag of If-None-Match"}
        for code in self._error_codes():
            responses.setdefault(str(code), {"description": DESCRIPTIONS.get(code, HTTPStatus(code).phrase)})
        reference = self.resolve_serializer(ProblemSerializer(), "response").ref
        for status, response in responses.items():
            if int(status) >= HTTPStatus.BAD_REQUEST:
                response["content"] = {problems.MEDIA_TYPE: {"schema": reference}}
        return dict(sorted(responses.items()))

    def _takes_idempotency_key(self) -> bool:
        operation = getattr(self.view, "action", None) or self.method.lower()
        unkept = getattr(self.view, "unkept_operations", {operation})
        return self.method == "POST" and operation not in unkept and {} not in self.get_auth()

    def _get_paginator(self) -> Any:
        """Return the paginator of lists; other responses have no pages."""
        return super()._get_paginator() if self.method == "GET" else None  # type: ignore[no-untyped-call]

    def _error_codes(self) -> list[int]:
        codes = list(ALWAYS)
        if {} not in self.get_auth():
            codes += [401, 403]
        if "{" in self.path or (self.method == "GET" and self._is_list_view()):
            codes.append(404)
        if self.method in ("POST", "PUT", "PATCH"):
            codes += WITH_BODY
        if self._takes_idempotency_key():
            codes += WITH_KEY
        return codes

    def _map_basic_serializer(self, serializer: Any, direction: str) -> Any:
        """Return the schema of a serializer; that of a strict one has no further properties."""
        schema = super()._map_basic_serializer(serializer, direction)  # type: ignore[no-untyped-call]
        if getattr(serializer, "is_strict", False):
            schema["additionalProperties"] = False
        return schema
