"""Pages of lists that grow at their end, and the bounds of all pages."""

from typing import Any

from rest_framework.exceptions import ValidationError
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request


def page_size_of(request: Request, name: str, default: int | None, most: int) -> int:
    """Return how many rows a page has. Raises ValidationError for another number than 1 to `most`."""
    text = request.query_params.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 4 and 1 <= int(text) <= most):
        raise ValidationError({name: [f"Write a number from 1 to {most}."]})
    return int(text)


class EventPages(CursorPagination):
    """Pages of a timeline: rows that are added meanwhile shift none of them."""

    ordering = "id"
    page_size_query_param = "page_size"
    max_page_size = 200

    def get_page_size(self, request: Request) -> int | None:
        """Return how many rows a page has. Raises ValidationError."""
        return page_size_of(request, "page_size", self.page_size, self.max_page_size)

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the parameters of a list, with the bounds of `page_size`."""
        parameters = super().get_schema_operation_parameters(view)
        for parameter in parameters:
            if parameter["name"] == self.page_size_query_param:
                parameter["schema"] = {"type": "integer", "minimum": 1, "maximum": self.max_page_size}
        return parameters

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a page of rows of this schema."""
        address = {"type": ["string", "null"], "format": "uri"}
        properties = {"next": address, "previous": address, "results": schema}
        return {"type": "object", "required": list(properties), "properties": properties}


class NewestFirstPages(EventPages):
    """Pages of a log, the newest rows first."""

    ordering = "-id"
