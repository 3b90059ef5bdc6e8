"""The API's JSON parser and pagination.

REST framework imports this module while it is being imported itself, so this one must not import
`rest_framework.views`.
"""

import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import IO, Any, NoReturn

from rest_framework.exceptions import ParseError
from rest_framework.pagination import PageNumberPagination
from rest_framework.parsers import JSONParser
from rest_framework.request import Request

from restapi.pages import page_size_of


class ExactJSONParser(JSONParser):
    """Parses JSON with exact decimals (0.35 is not a binary float), and refuses text that cannot be encoded."""

    def parse(
        self, stream: IO[Any], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> Any:
        """Return the body's value, with Decimal for numbers with a fraction. Raises ParseError."""
        try:
            value = json.loads(stream.read().decode(), parse_float=_exact, parse_constant=_refuse)
            json.dumps(value, default=str, ensure_ascii=False).encode()  # refuses lone surrogates
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {ascii(str(error))[1:-1]}") from error
        return value


def _exact(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:40]} is out of range") from error


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


class Pages(PageNumberPagination):
    """Numbered pages; `page_size` may be up to `max_page_size`."""

    page_size_query_param = "page_size"
    max_page_size = 200

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema of a page of rows of this schema."""
        address = {"type": ["string", "null"], "format": "uri"}
        properties = {"count": {"type": "integer"}, "next": address, "previous": address}
        return {
            "type": "object",
            "required": [*properties, "results"],
            "properties": {**properties, "results": schema},
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        """Return the parameters of a list, with their bounds."""
        page = {"type": "integer", "minimum": 1, "default": 1}
        size = {"type": "integer", "minimum": 1, "maximum": self.max_page_size, "default": self.page_size}
        named = ((self.page_query_param, page, "Number of the page"), (self.page_size_query_param, size, "Rows a page"))
        return [
            {"name": name, "required": False, "in": "query", "description": text, "schema": schema}
            for name, schema, text in named
        ]

    def get_page_size(self, request: Request) -> int | None:
        """Return how many rows a page has. Raises ValidationError for another number than 1 to `max_page_size`."""
        return page_size_of(request, self.page_size_query_param, self.page_size, self.max_page_size)
