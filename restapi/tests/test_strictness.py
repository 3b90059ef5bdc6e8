"""Every address of the API takes the parameters that its description names, and its errors are problem details."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.urls import URLPattern, URLResolver, get_resolver

from restapi import problems
from restapi.views import QueryChecks
from tests.api import client_of
from tests.api_schema import api_schema
from tests.factories import make_user

pytestmark = pytest.mark.django_db

OPERATIONS = Path(__file__).with_name("operations.txt")
LISTS = ["sessions", "folders", "hosts", "images", "presets", "resource-groups", "tokens", "notifications"]


def _views(patterns: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for entry in patterns:
        if isinstance(entry, URLResolver):
            yield from _views(entry.url_patterns, prefix + str(entry.pattern))
        elif isinstance(entry, URLPattern) and (view := getattr(entry.callback, "cls", None)) is not None:
            yield prefix + str(entry.pattern), view


def test_all_views_check_their_query() -> None:
    found = {path: view for path, view in _views(get_resolver().url_patterns) if path.startswith("api/v1/")}
    assert len(found) > 50
    assert not [path for path, view in found.items() if not issubclass(view, QueryChecks)]


def test_operation_ids_are_stable() -> None:
    found = sorted(
        f"{operation['operationId']} {method.upper()} {path}"
        for path, operations in api_schema()["paths"].items()
        for method, operation in operations.items()
    )
    known = OPERATIONS.read_text().splitlines()
    lost = set(known) - set(found)
    assert not lost, "Clients that were generated of the schema call these; keep them."
    assert found == known, f"Add what is new to {OPERATIONS.name}: {sorted(set(found) - set(known))}"


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("tabb=running", "tabb"),
        ("name=", "name"),
        ("tab=", "tab"),
        ("tab=running&tab=others", "tab"),
        ("format=json", "format"),
    ],
)
def test_a_wrong_parameter_is_named(query: str, name: str) -> None:
    answer = client_of(make_user()).get(f"/api/v1/sessions/?{query}")
    assert (answer.status_code, list(answer.json()["errors"])) == (400, [name])


@pytest.mark.parametrize("name", LISTS)
def test_lists_refuse_unknown_parameters(name: str) -> None:
    answer = client_of(make_user()).get(f"/api/v1/{name}/?nonsense=1&page_size=0")
    assert (answer.status_code, answer["Content-Type"]) == (400, problems.MEDIA_TYPE)
    assert answer.json()["errors"].keys() >= {"nonsense"}


def test_only_lists_take_pages() -> None:
    client = client_of(make_user())
    assert client.get("/api/v1/me/?page=1").json()["errors"].keys() == {"page"}
    assert client.get("/api/v1/sessions/?page=1").status_code == 200


def test_messages_inside_of_fields_are_named_by_path() -> None:
    general, fields = problems.messages_by_field(
        {"mounts": [{}, {"path": ["bad"]}], "name": "taken", "non_field_errors": ["no"], "": ["what"]}
    )
    assert general == ["no"]
    assert fields == {"mounts.1.path": ["bad"], "name": ["taken"], "": ["what"]}


def test_an_error_is_a_problem_whatever_is_accepted() -> None:
    answer = client_of().get("/api/v1/me/", headers={"accept": "text/plain"})
    assert (answer.status_code, answer["Content-Type"]) == (406, problems.MEDIA_TYPE)
    assert answer.json()["title"] == "Not Acceptable"
