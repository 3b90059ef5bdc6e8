"""The command line has every operation of the API, but for those that `not_commands.txt` names with a reason."""

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, get_origin

import pytest

from gpuplatform_client import cli
from gpuplatform_client.cli.resources import administration, table
from gpuplatform_client.cli.resources.collections import Act, Collection
from gpuplatform_client.cli.resources.commands import FINDERS
from gpuplatform_client.models.api_model import ApiModel
from gpuplatform_client.operations import lookups
from gpuplatform_client.operations.methods import ApiMethods, ItemsMethod, OperationMethod
from tests.api_schema import api_schema
from tests.live import ROOT

EXCEPTIONS: Final = dict(
    line.split(" ", 1) for line in Path(__file__).with_name("not_commands.txt").read_text().splitlines()
)
COLLECTIONS: Final = (*table.COLLECTIONS, *administration.COLLECTIONS)
ACTS: Final = [(collection, name, act) for collection in COLLECTIONS for name, act in collection.commands()]
OF_CLIENTS: Final = {  # methods of clients that are no operations of their own
    "login": ["auth_token_create"],
    "upload": ["folders_uploads_create", "folders_uploads_partial_update"],
    "download": ["folders_download_retrieve"],
}
named = pytest.mark.parametrize(
    ("collection", "name", "act"), ACTS, ids=[f"{each.group} {name}".strip() for each, name, _ in ACTS]
)


def _shape(path: str) -> str:
    return re.sub(r"\{\w*\}", "{}", path.partition("?")[0])


OPERATIONS: Final = {
    (method, _shape(path)): name
    for name, method, path in (
        line.split() for line in (ROOT / "restapi/tests/operations.txt").read_text().splitlines()
    )
}


def of_table(collection: Collection, act: Act) -> str:
    """Return the id of the operation that a command of a table calls."""
    return OPERATIONS[act.method, _shape(f"/api/v1/{collection.path_of(act)}")]


def _of_tables() -> Iterator[str]:
    for collection, _, act in ACTS:
        yield of_table(collection, act)
        if "{}" in act.request and collection.key != "id" and collection.thing not in FINDERS:
            yield OPERATIONS["GET", _shape(f"/api/v1/{collection.path}")]  # where its object is looked up


def _of_modules() -> Iterator[str]:
    """Yield the operations of the methods of `Client` that modules of the command line call."""
    paths = [*Path(cli.__file__).parent.rglob("*.py"), Path(lookups.__file__)]
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    called = {node.attr for node in nodes if isinstance(node, ast.Attribute)} - {"call", "listed"}
    for name in called:
        method = vars(ApiMethods).get(name)
        if isinstance(method, OperationMethod | ItemsMethod):
            yield _operation_of(method._operation)
        yield from OF_CLIENTS.get(name, ())
    for node in nodes:
        match node:  # client.call("POST", "me/password/", ...)
            case ast.Call(ast.Attribute(attr="call"), [ast.Constant(str(method)), ast.Constant(str(path)), *_]):
                yield OPERATIONS[method, f"/api/v1/{path}"]


def _operation_of(function: Any) -> str:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    needed = {each.name: _example(each.annotation) for each in parameters if each.default is each.empty}
    needed = {name: value for name, value in needed.items() if name not in ("query", "settings", "changes", "limits")}
    sent = function(**needed)
    method, path = getattr(sent, "method", "GET"), f"/api/v1/{sent.path}"
    fitting = [
        (shape.count("{}"), name)
        for (verb, shape), name in OPERATIONS.items()
        if verb == method and re.fullmatch(re.escape(shape).replace(r"\{\}", "[^/]+"), path)
    ]
    return min(fitting)[1]


def _example(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, ApiModel):
        return kind(**dict.fromkeys(inspect.signature(kind).parameters, "1"))
    return {} if get_origin(kind) is Mapping else [] if str(kind).startswith("list") else "1"


def test_every_operation_is_a_command_or_has_a_reason() -> None:
    covered = {*_of_tables(), *_of_modules()}
    missing = {*OPERATIONS.values()} - covered - EXCEPTIONS.keys()
    assert missing == set(), "make commands of them, or say in not_commands.txt why not"
    assert EXCEPTIONS.keys() - {*OPERATIONS.values()} == set(), "there is no such operation"
    assert EXCEPTIONS.keys() & covered == set(), "these are commands"
    assert all(len(reason) > 20 for reason in EXCEPTIONS.values())


def schema_of(node: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without its references."""
    while "$ref" in node or len(node.get("allOf", ())) == 1:
        node = (
            node["allOf"][0]
            if "allOf" in node
            else api_schema()["components"]["schemas"][node["$ref"].rpartition("/")[2]]
        )
    return node


def described(name: str) -> dict[str, Any]:
    """Return the description of an operation."""
    operations = (each for path in api_schema()["paths"].values() for each in path.values())
    found: dict[str, Any] = next(each for each in operations if each["operationId"] == name)
    return found


def response_schema(operation: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the body of a successful response; empty where there is none."""
    bodies = [response.get("content", {}) for code, response in operation["responses"].items() if code[0] == "2"]
    return schema_of(next((body["application/json"]["schema"] for body in bodies if "application/json" in body), {}))


@named
def test_fields_are_those_of_the_api(collection: Collection, name: str, act: Act) -> None:
    operation = described(of_table(collection, act))
    queries = {each["name"]: each["schema"] for each in operation.get("parameters", []) if each["in"] == "query"}
    if act.method in ("GET", "DELETE"):
        known = queries
    else:
        content = operation.get("requestBody", {}).get("content", {}).get("application/json", {"schema": {}})
        known = schema_of(content["schema"]).get("properties", {})
    for field in act.taken:
        assert field.name in known, f"{field.name}: there are {sorted(known)}"
        kind = schema_of(known[field.name]).get("type")
        if field.kind != "JSON":
            assert (kind == "array", kind == "boolean") == (field.is_list, field.kind == "bool"), field
    assert act.body.keys() <= known.keys()
    required = {
        each["name"] for each in operation.get("parameters", []) if each.get("required") and each["in"] == "query"
    }
    assert required <= {field.name for field in act.taken}


@named
def test_columns_are_those_of_the_api(collection: Collection, name: str, act: Act) -> None:
    shown = response_schema(described(of_table(collection, act)))
    properties = shown.get("properties", {})
    if act.of:
        assert act.of in properties
        shown = schema_of(properties[act.of])
    if act.shows == "rows":
        rows = shown if shown.get("type") == "array" else schema_of(shown["properties"]["results"])
        shown = schema_of(rows["items"])
        columns = act.columns or f"{collection.columns} {collection.wide}"
        assert {*columns.split()} - shown["properties"].keys() == set()
    if act.method != "DELETE" and act.shows != "text" and shown:
        assert (act.prints or collection.key) in shown["properties"]
