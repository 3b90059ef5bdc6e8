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
