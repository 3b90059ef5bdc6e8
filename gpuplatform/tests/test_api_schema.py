"""The API's description of itself."""

import copy

import jsonschema
import jsonschema_rs
import pytest
from django.test import Client
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator

from gpuplatform.rest import examples as api_examples
from tests.api_schema import api_schema

PATHS = {
    "/api/v1/auth/token/": {"post", "delete"},
    "/api/v1/me/": {"get", "patch"},
    "/api/v1/me/limits/": {"get"},
    "/api/v1/images/": {"get"},
    "/api/v1/presets/": {"get"},
    "/api/v1/resource-groups/": {"get"},
    "/api/v1/hosts/": {"get"},
    "/api/v1/folders/": {"get", "post"},
    "/api/v1/folders/{id}/": {"get", "patch", "delete"},
    "/api/v1/folders/{id}/restore/": {"post"},
    "/api/v1/folders/{id}/delete-forever/": {"post"},
    "/api/v1/folders/{id}/shares/": {"get", "post"},
    "/api/v1/folders/{id}/shares/{share_id}/": {"patch", "delete"},
    "/api/v1/folders/{folder_id}/entries/": {"get", "post", "delete"},
    "/api/v1/folders/{folder_id}/entries/move/": {"post"},
    "/api/v1/folders/{folder_id}/trash/": {"get", "delete"},
    "/api/v1/folders/{folder_id}/trash/{item_id}/": {"delete"},
    "/api/v1/folders/{folder_id}/trash/{item_id}/restore/": {"post"},
    "/api/v1/folders/{folder_id}/text/": {"get", "put"},
    "/api/v1/storage-roots/": {"get"},
    "/api/v1/sessions/": {"get", "post"},
    "/api/v1/sessions/{id}/": {"get", "patch"},
    "/api/v1/sessions/{id}/events/": {"get"},
    "/api/v1/sessions/{id}/logs/": {"get"},
    "/api/v1/sessions/{id}/terminate/": {"post"},
    "/api/v1/sessions/{session_id}/apps/": {"get"},
    "/api/v1/sessions/{session_id}/apps/{app}/": {"get", "post", "delete"},
    "/api/v1/sessions/{session_id}/apps/{app}/share/": {"get", "post"},
    "/api/v1/sessions/{session_id}/apps/{app}/share/{link_id}/": {"delete"},
    "/api/v1/folders/{folder_id}/uploads/": {"get", "post"},
    "/api/v1/folders/{folder_id}/uploads/{upload_id}/": {"patch", "delete"},
    "/api/v1/folders/{folder_id}/download/": {"get"},
    "/api/v1/folders/{folder_id}/zip/": {"get", "post"},
    "/api/v1/ssh-keys/": {"get", "post"},
    "/api/v1/ssh-server/": {"get"},
    "/api/v1/ssh-keys/{id}/": {"get", "delete"},
}


def test_the_schema_is_valid_without_warnings(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonschema, "validate", jsonschema_rs.validate)  # jsonschema itself takes far longer
    GENERATOR_STATS.reset()
    schema = SchemaGenerator().get_schema(request=None, public=True)
    validate_schema(schema)
    assert not GENERATOR_STATS, capsys.readouterr().err
    methods = {"get", "post", "put", "patch", "delete"}
    found = {path: methods & set(operations) for path, operations in schema["paths"].items()}
    assert found.items() >= PATHS.items()
    assert schema["components"]["securitySchemes"]["token"]["name"] == "Authorization"


@pytest.mark.parametrize("path", ["nothing/", "sessions", "sessions/x/", ""])
@pytest.mark.parametrize("method", ["get", "post", "delete", "options"])
def test_an_unknown_api_address_is_404_in_json(client: Client, method: str, path: str) -> None:
    answer = getattr(client, method)(f"/api/v1/{path}")
    assert (answer.status_code, answer["Content-Type"]) == (404, "application/problem+json")
    assert "end with a slash" in answer.json()["detail"]


def test_the_api_docs_are_public_and_self_contained(client: Client) -> None:
    assert client.get("/api/schema/").status_code == 200
    page = client.get("/api/docs/")
    assert page.status_code == 200
    assert "/static/drf_spectacular_sidecar/swagger-ui-dist/" in page.content.decode()
    assert "https://" not in page.content.decode()


def test_every_body_has_an_example_that_is_valid() -> None:
    schema = copy.deepcopy(api_schema())
    for component in schema["components"]["schemas"].values():  # what is read-only is required of responses alone
        properties = component.get("properties", {})
        component["required"] = [name for name in component.get("required", []) if not properties[name].get("readOnly")]
    operations = [operation for found in schema["paths"].values() for operation in found.values()]
    bodies = {
        operation["operationId"]: body
        for operation in operations
        if (body := operation.get("requestBody", {}).get("content", {}).get("application/json"))
    }
    assert bodies.keys() == api_examples.EXAMPLES.keys()
    problems = [
        f"{name}: {error.message}"
        for name, body in bodies.items()
        for error in Draft202012Validator({**body["schema"], "components": schema["components"]}).iter_errors(
            body["examples"]["Example"]["value"]
        )
    ]
    assert not problems, "\n".join(problems)
