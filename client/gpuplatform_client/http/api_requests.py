"""Requests of the API as values, without I/O, and how their responses are read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import uuid4

import httpx
from httpx_sse import ServerSentEvent

from gpuplatform_client.errors import UnreachableServerError, no_api
from gpuplatform_client.http.streams import StreamPosition
from gpuplatform_client.models.api_model import ApiModel

Result = TypeVar("Result")
Model = TypeVar("Model", bound=ApiModel)

FIRST_PAGE = {"page_size": "200"}  # the query of a list
STREAM_TIMEOUT = httpx.Timeout(10.0, read=45.0)  # the platform sends something at least every 15 seconds


@dataclass(frozen=True, slots=True)
class ApiOperation(Generic[Result]):
    """A request, and how its successful response is read. `path` is relative to the API."""

    method: str
    path: str
    read: Callable[[httpx.Response], Result]
    query: Mapping[str, str | int] = field(default_factory=dict)
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None
    timeout: httpx.Timeout | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """Of `build_request` of an httpx client."""
        given = {"json": self.body, "content": self.content, "timeout": self.timeout}
        return {
            "method": self.method,
            "url": self.path,
            "params": dict(self.query),
            "headers": dict(self.headers),
            **{name: value for name, value in given.items() if value is not None},
        }

    def result(self, response: httpx.Response) -> Result:
        """Return the result that a successful response has. Raises UnreachableServerError where it is not the API's."""
        try:
            return self.read(response)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnreachableServerError(no_api(response)) from error

    @property
    def is_repeatable(self) -> bool:
        """True if sending it twice does no more than sending it once."""
        return self.method in ("GET", "HEAD", "PUT", "DELETE") or "Idempotency-Key" in self.headers


@dataclass(frozen=True, slots=True)
class ResultPage(Generic[Result]):
    """A page of a list, and the query of the next one; None at the end."""

    items: list[Result]
    next_query: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class ApiStream(Generic[Result]):
    """A stream of server-sent events, and what each of them carries. `path` is relative to the API."""

    path: str
    read: Callable[[ServerSentEvent], list[Result]]
    query: Mapping[str, str | int] = field(default_factory=dict)

    def opened_from(self, position: StreamPosition) -> ApiOperation[None]:
        """Return the request for what follows the position."""
        return ApiOperation("GET", self.path, nothing, self.query, headers=position.headers, timeout=STREAM_TIMEOUT)


def idempotency_key() -> dict[str, str]:
    """Return the headers by which the platform knows a repetition."""
    return {"Idempotency-Key": str(uuid4())}


def path_part(text: str) -> str:
    """Return a text as one part of a path."""
    return quote(text, safe="")


def body_of(model: ApiModel) -> dict[str, Any]:
    """Return the body of a request; what is None is left out."""
    return model.model_dump(exclude_none=True)


def nothing(response: httpx.Response) -> None:
    """Read nothing."""
    return None


def text(response: httpx.Response) -> str:
    """Return the text of a response."""
    return response.text


def one(model: type[Model]) -> Callable[[httpx.Response], Model]:
    """Return the reader of one object."""
    return lambda response: model.model_validate_json(response.content)


def many(model: type[Model]) -> Callable[[httpx.Response], list[Model]]:
    """Return the reader of a list without pages."""
    return lambda response: [model.model_validate(each) for each in response.json()]


def objects(response: httpx.Response) -> ResultPage[Any]:
    """Read a list, or a page of one, as the plain objects that it has."""
    body = response.json()
    found = body if isinstance(body, list) else body["results"]
    following = None if isinstance(body, list) else body.get("next")
    return ResultPage(found, dict(httpx.URL(following).params) if following else None)


def page(model: type[Model]) -> Callable[[httpx.Response], ResultPage[Model]]:
    """Return the reader of a page of a list."""

    def read(response: httpx.Response) -> ResultPage[Model]:
        plain = objects(response)
        return ResultPage([model.model_validate(each) for each in plain.items], plain.next_query)

    return read
