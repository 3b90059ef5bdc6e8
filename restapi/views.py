"""Base classes of the API's views: strict query parameters, idempotency keys, rate limits, and entity tags."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, ClassVar, TypeVar

from django.db import transaction
from django.db.models import Model
from django.http import HttpRequest
from django.utils.cache import get_conditional_response
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ListField, Serializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from restapi import idempotency, problems
from restapi.throttling import Quota

Row = TypeVar("Row", bound=Model)


class QueryChecks(APIView):
    """Validates the query string before the handler runs; `self.query` then has the values, none for OPTIONS."""

    query_serializers: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}  # by action, or by method in lower case
    # POSTs that take no idempotency key, since their response is a secret, which is not to be kept, or has no end.
    unkept_operations: ClassVar[frozenset[str]] = frozenset()
    query: dict[str, Any]
    quota: Quota | None = None
    _idempotency: tuple[int, str, str] | None = None

    def dispatch(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        """Serve the request; one with an idempotency key in a transaction, which an error rolls back."""
        if request.method != "POST" or idempotency.HEADER not in request.headers:
            return super().dispatch(request, *args, **kwargs)
        with transaction.atomic():
            response = super().dispatch(request, *args, **kwargs)
            if response.status_code >= HTTPStatus.BAD_REQUEST:
                transaction.set_rollback(True)
            elif self._idempotency and isinstance(response, Response):
                idempotency.keep(*self._idempotency, response)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check caller, rate and query string. Raises ValidationError for unknown and invalid parameters."""
        super().initial(request, *args, **kwargs)
        self.query = self._checked_query(request) if request.method != "OPTIONS" else {}
        if request.method == "POST" and idempotency.HEADER in request.headers:
            self._look_for_stored_response(request)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Send errors as problem details, whatever the client accepts; add rate limit and entity tag."""
        if isinstance(response, Response) and response.exception:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
            response.content_type = problems.MEDIA_TYPE
        response = super().finalize_response(request, response, *args, **kwargs)
        for name, value in (self.quota.headers() if self.quota else {}).items():
            response[name] = value
        if isinstance(response, Response) and is_tagged(request.method, response.status_code):
            response.add_post_render_callback(partial(_tagged, request._request))
        return response

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, Any]:
        """Return what a service refuses, {its name of a field: message}, by field of the request."""
        return errors

    def takes_idempotency_key(self) -> bool:
        """Return whether the present operation may be repeated with a key."""
        return self.operation() not in self.unkept_operations

    def operation(self) -> str:
        """Return the key of the present operation in `query_serializers`."""
        method = (self.request.method or "").lower()
        return getattr(self, "action", None) or ("get" if method == "head" else method)

    def is_paginated(self) -> bool:
        """Return whether the present operation returns pages of a list."""
        is_list = self.request.method in ("GET", "HEAD") and self.operation() not in ("retrieve", "get")
        return is_list and getattr(self, "paginator", None) is not None

    def _look_for_stored_response(self, request: Request) -> None:
        """Begin what `dispatch` ends; a repeated request gets the response of the first. Raises ValidationError."""
        if not self.takes_idempotency_key() or request.user.pk is None:
            raise ValidationError({idempotency.HEADER: [_("This address takes no idempotency keys.")]})
        plain = request._request
        found = (request.user.pk, idempotency.key_of(plain), idempotency.fingerprint_of(plain))
        if stored := idempotency.stored_response(*found):
            vars(self)["post"] = lambda *args, **kwargs: stored  # in place of the handler, which is looked up next
        else:
            self._idempotency = found

    def _checked_query(self, request: Request) -> dict[str, Any]:
        serializer = self.query_serializers.get(self.operation(), Serializer)
        fields = serializer().fields
        allowed = set(fields) | (_page_parameters(self) if self.is_paginated() else set())
        given = request.query_params
        errors = {name: [_("There is no such parameter.")] for name in given if name not in allowed}
        for name, values in given.lists():
            if name in allowed and len(values) > 1 and not isinstance(fields.get(name), ListField):
                errors[name] = [_("This parameter may be given once.")]
        query = serializer(data={name: _value(given, name, fields.get(name)) for name in given if name in fields})
        if not query.is_valid():
            errors |= query.errors
        if errors:
            raise ValidationError(errors)
        return dict(query.validated_data)


def _value(given: Any, name: str, field: BaseSerializer[Any] | Any) -> Any:
    return given.getlist(name) if isinstance(field, ListField) else given[name]


def is_tagged(method: str | None, status: int) -> bool:
    """Return whether a response gets an entity tag, by which a client asks whether it has changed."""
    return method in ("GET", "HEAD") and status == HTTPStatus.OK


def _tagged(request: HttpRequest, response: Any) -> Any:
    """Return the rendered response with its tag, or 304 where the client has it already (RFC 9110, section 13)."""
    if "ETag" not in response:
        response["ETag"] = etag_of(response.content)
        response.setdefault("Cache-Control", "private, no-cache")
    return get_conditional_response(request, etag=response["ETag"], response=response)


def etag_of(content: bytes) -> str:
    """Return the entity tag of a rendered response."""
    return f'"{hashlib.sha256(content).hexdigest()[:32]}"'


def _page_parameters(view: Any) -> set[str]:
    return {parameter["name"] for parameter in view.paginator.get_schema_operation_parameters(view)}


def valid_body(kind: Callable[..., BaseSerializer[Any]], request: Request, **options: Any) -> dict[str, Any]:
    """Return the fields of the body as this serializer validates them. Raises ValidationError."""
    body = kind(data=request.data, **options)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


class ApiView(QueryChecks):
    """A view of the API."""


class ApiViewSet(QueryChecks, GenericViewSet[Row]):
    """A view set of the API."""

    def page_of(self, rows: Any, kind: Callable[..., BaseSerializer[Any]]) -> Response:
        """Return the response with a page of rows, of whatever kind."""
        return self.get_paginated_response(kind(self.paginate_queryset(rows), many=True).data)
