"""Problem details of HTTP errors (RFC 9457), without Django: servers send them in front of it, too."""

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

MEDIA_TYPE: Final = "application/problem+json"
GENERAL: Final = frozenset({None, "detail", "non_field_errors"})  # keys of messages that concern no field


def problem(
    status: int, detail: str, *, code: str = "", errors: Mapping[str, list[str]] | None = None
) -> dict[str, Any]:
    """Return the members of the problem; `errors` has a list of messages for each invalid field."""
    title = _title(status)
    members = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return {**members, "code": code or title.lower().replace(" ", "_").replace("-", "_"), "errors": dict(errors or {})}


def problem_text(status: int, detail: str) -> str:
    """Return the problem in JSON."""
    return json.dumps(problem(status, detail))


def messages_by_field(data: Any) -> tuple[list[str], dict[str, list[str]]]:
    """Return the general messages, and those of each field; one inside of another is named `mounts.0.path`."""
    general: list[str] = []
    fields: dict[str, list[str]] = {}
    for name, message in _messages(data, None):
        if name is None or name in GENERAL:
            general.append(message)
        else:
            fields.setdefault(name.removesuffix(".non_field_errors"), []).append(message)
    return general, fields


def _messages(data: Any, name: str | None) -> Iterator[tuple[str | None, str]]:
    if isinstance(data, Mapping):
        for key, value in data.items():
            yield from _messages(value, _inner(name, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _messages(value, _inner(name, index) if isinstance(value, Mapping | list) else name)
    else:
        yield name, str(data)


def _inner(name: str | None, key: object) -> str:
    return str(key) if name is None else f"{name}.{key}"


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:  # such as 460, of tus
        return "Error"
