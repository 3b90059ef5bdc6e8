"""Base classes of the API's views: they accept the query parameters that their schema names, and no others."""

from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from django.db.models import Model
from django.utils.translation import gettext as _
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer, ListField, Serializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from restapi import problems

Row = TypeVar("Row", bound=Model)


class QueryChecks(APIView):
    """Validates the query string before the handler runs; `self.query` then has the values."""

    query_serializers: ClassVar[Mapping[str, type[Serializer[Any]]]] = {}  # by action, or by method in lower case
    query: dict[str, Any]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Check caller, rate and query string. Raises ValidationError for unknown and invalid parameters."""
        super().initial(request, *args, **kwargs)
        if request.method != "OPTIONS":
            self.query = self._checked_query(request)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Send errors as problem details, whatever the client accepts."""
        if isinstance(response, Response) and response.exception:
            request.accepted_renderer, request.accepted_media_type = JSONRenderer(), JSONRenderer.media_type
            response.content_type = problems.MEDIA_TYPE
        return super().finalize_response(request, response, *args, **kwargs)

    def operation(self) -> str:
        """Return the key of the present operation in `query_serializers`."""
        method = (self.request.method or "").lower()
        return getattr(self, "action", None) or ("get" if method == "head" else method)

    def is_paginated(self) -> bool:
        """Return whether the present operation returns pages of a list."""
        is_list = self.request.method in ("GET", "HEAD") and self.operation() not in ("retrieve", "get")
        return is_list and getattr(self, "paginator", None) is not None

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


def _page_parameters(view: Any) -> set[str]:
    return {parameter["name"] for parameter in view.paginator.get_schema_operation_parameters(view)}


class ApiView(QueryChecks):
    """A view of the API."""


class ApiViewSet(QueryChecks, GenericViewSet[Row]):
    """A view set of the API."""
