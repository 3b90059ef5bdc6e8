"""The published JSON Schema: it takes what the API takes, and refuses what is misspelt."""

from typing import Any

import pytest
from django.test import Client
from jsonschema import Draft202012Validator

from restapi.plain_yaml import documents
from specs.json_schema import json_schema
from specs.kinds import KINDS
from specs.tests.test_spec_files import ALL_KINDS
from specs.tests.test_spec_mistakes import MISTAKES

# What only the platform knows: names of what there is, what goes together, limits, texts that services check.
OF_SHAPE = (
    *("no kind", "kind misspelt", "kind is a list", "unknown field", "unknown field inside", "number that is a word"),
    *("number too small", "count too large", "version that is a number", "variables as a list", "cluster that is none"),
    *("mount with an unknown field", "mount with a wrong value", "time without sense", "memory without sense"),
    *("cluster without a size", "cluster of another mode", "deployment with a wrong name", "health inside"),
    "canary beyond a percentage",
)


def problems(text: str) -> list[str]:
    validator = Draft202012Validator(json_schema(), format_checker=Draft202012Validator.FORMAT_CHECKER)
    return [error.message for document in documents(text) for error in validator.iter_errors(document.value)]


def test_the_schema_is_published_without_login(client: Client) -> None:
    answer = client.get("/api/specs.schema.json")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/schema+json")
    schema: dict[str, Any] = answer.json()
    Draft202012Validator.check_schema(schema)
    assert schema["$id"].endswith("/api/specs.schema.json")
    assert schema["properties"]["kind"]["enum"] == list(KINDS)
    assert schema["$defs"]["session"]["properties"]["fgpu"]["description"]
    assert client.post("/api/specs.schema.json").status_code == 405


def test_it_takes_what_the_api_takes() -> None:
    assert problems(ALL_KINDS) == []


@pytest.mark.parametrize("name", OF_SHAPE)
def test_it_refuses_mistakes_of_shape(name: str) -> None:
    assert problems(MISTAKES[name][0])


def test_it_has_the_fields_of_the_serializers() -> None:
    for kind, request in KINDS.items():
        described = json_schema()["$defs"][kind]
        assert {*described["properties"]} == {"kind", *map(str, request.serializer().fields)}
        assert described["additionalProperties"] is False
