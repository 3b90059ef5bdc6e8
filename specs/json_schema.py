"""The JSON Schema (2020-12) of spec files, made of the serializers that validate them."""

from functools import cache
from typing import Any, Final

from django.conf import settings
from django.urls import path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import PolymorphicProxySerializer, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from restapi.views import ApiView
from specs.documents import KIND
from specs.kinds import KINDS
from specs.writing import SCHEMA_PATH

COMPONENTS: Final = "#/components/schemas/"
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


class _DescribedView(ApiView):
    """Takes documents of all kinds, for the generator of schemas alone."""

    @extend_schema(
        operation_id="spec",
        request=PolymorphicProxySerializer("Spec", [kind.serializer for kind in KINDS.values()], None),
        responses=None,
    )
    def post(self, request: Request) -> Response:
        """Return nothing."""
        return Response()


@cache
def json_schema() -> dict[str, Any]:
    """Return the schema of a document, with its kind."""
    generator = SchemaGenerator(patterns=[path("spec/", _DescribedView.as_view())])
    described = generator.get_schema(request=None, public=True)
    components = _within(described["components"]["schemas"])
    for kind, request in KINDS.items():
        component = components[request.serializer.__name__.removesuffix("Serializer")]
        components[kind] = component | {"properties": {KIND: {"const": kind}, **component["properties"]}}
    used = {name: components[name] for name in _reached(components, list(KINDS))}
    rules = [{"if": {"properties": {KIND: {"const": kind}}}, "then": {"$ref": f"#/$defs/{kind}"}} for kind in KINDS]
    return {
        **{"$schema": DIALECT, "$id": settings.COMPUTE_PUBLIC_URL.rstrip("/") + SCHEMA_PATH},
        **{"title": "GPU Platform: spec file", "type": "object", "required": [KIND]},
        **{"properties": {KIND: {"enum": list(KINDS)}}, "allOf": rules, "$defs": used},
    }


def _within(value: Any) -> Any:
    """Return a part of the API's description with its references as they are in the schema."""
    if isinstance(value, dict):
        return {name: _within(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_within(inner) for inner in value]
    return value.replace(COMPONENTS, "#/$defs/") if isinstance(value, str) else value


def _reached(components: dict[str, Any], names: list[str]) -> list[str]:
    """Return these names and those that they refer to."""
    found: list[str] = []
    while names:
        name = names.pop()
        if name not in found:
            found.append(name)
            names += [each for each in components if f"'#/$defs/{each}'" in str(components[name])]
    return sorted(found)
