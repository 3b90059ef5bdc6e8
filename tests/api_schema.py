"""Holds responses of the API against its own description: status, media type, headers and body."""

import copy
import re
from functools import cache
from typing import Any

from drf_spectacular.generators import SchemaGenerator
from jsonschema import Draft202012Validator, FormatChecker

UNCHECKED = frozenset({"OPTIONS", "HEAD"})


@cache
def api_schema() -> dict[str, Any]:
    """Return the OpenAPI description of the API."""
    schema: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return schema


@cache
def _components() -> dict[str, Any]:
    """Return the components for responses: an object has no other properties than those that are described."""
    components = copy.deepcopy(api_schema()["components"])
    for schema in components["schemas"].values():
        if "properties" in schema:
            schema.setdefault("additionalProperties", False)
    return {"schemas": components["schemas"]}


@cache
def _operations() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    """Return the operations of each path; those with fewer variables come first, as more special paths do."""
    paths = sorted(api_schema()["paths"].items(), key=lambda item: item[0].count("{"))
    return [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), operations) for path, operations in paths]


def operation_for(method: str, path: str) -> dict[str, Any] | None:
    """Return the operation of a request; None where the API describes none."""
    found = next((operations for pattern, operations in _operations() if pattern.fullmatch(path)), {})
    operation: dict[str, Any] | None = found.get(method.lower())
    return operation


@cache
def _validator(operation_id: str, status: str, media_type: str) -> Draft202012Validator:
    operations = (each for _, found in _operations() for each in found.values())
    operation = next(each for each in operations if each["operationId"] == operation_id)
    schema = operation["responses"][status]["content"][media_type]["schema"]
    return Draft202012Validator({**schema, "components": _components()}, format_checker=FormatChecker())


def check_response(method: str, path: str, response: Any) -> None:
    """Fail where the response is not as the API describes it."""
    operation = operation_for(method, path)
    if operation is None or method.upper() in UNCHECKED:
        return
    shown, status = f"{method} {path}", str(response.status_code)
    if status == "405":
        return
    assert status in operation["responses"], f"{shown}: the status {status} is not described: {response.content!r}"
    content = operation["responses"][status].get("content", {})
    media_type = response.headers.get("Content-Type", "").partition(";")[0]
    if not content:
        assert not getattr(response, "content", b""), f"{shown}: {status} is described without a body"
        return
    assert media_type in content, f"{shown}: {status} in {media_type} is not described, only {list(content)}"
    if media_type.endswith("json"):
        problems = [
            f"{error.json_path}: {error.message}"
            for error in _validator(operation["operationId"], status, media_type).iter_errors(response.json())
        ]
        assert not problems, f"{shown}: {status} is not as described: {problems}"
