"""Each command of the tables, carried out against a platform that responds with what the API describes."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from typer.testing import CliRunner, Result

from gpuplatform_client.cli.app import app
from gpuplatform_client.cli.exit_codes import MEANINGS
from gpuplatform_client.cli.resources.collections import Act, Collection, Field
from gpuplatform_client.cli.resources.commands import PART
from gpuplatform_client.tests.test_api_coverage import described, named, of_table, response_schema, schema_of
from gpuplatform_client.tests.test_failures import responding
from tests.api_schema import operation_for

pytestmark = pytest.mark.loopback

TEXT: Final = "2" * 16  # also an id of a session, and a number
EXAMPLES: Final = {"date-time": "2026-11-01T10:00:00Z", "uuid": "b6a1e1a0-0000-4000-8000-000000000000"}
REQUIRED: Final = {"integer": 7, "number": 0.5, "boolean": True, "null": None}


def example(node: dict[str, Any]) -> Any:
    """Return a value that fits a schema."""
    node = schema_of(node)
    for choice in ("oneOf", "anyOf", "allOf"):
        if choice in node:
            return example(node[choice][0])
    if "enum" in node:
        return node["enum"][0]
    kind = node["type"][0] if isinstance(node.get("type"), list) else node.get("type", "string")
    if kind == "object" or "properties" in node:
        return {name: example(each) for name, each in node.get("properties", {}).items()}
    if kind == "array":
        return [example(node["items"])]
    return REQUIRED[kind] if kind in REQUIRED else EXAMPLES.get(node.get("format", ""), TEXT)


class Platform:
    """Responds to each request with an example of what is described, and remembers the last one that is not a list."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, list[str]], Any]] = []

    def respond(self, handler: BaseHTTPRequestHandler) -> None:
        """Send the response to a request."""
        address = urlsplit(handler.path)
        length = int(handler.headers["Content-Length"] or 0)
        body = json.loads(handler.rfile.read(length)) if length else None
        self.asked.append((handler.command, address.path, parse_qs(address.query), body))
        operation = operation_for(handler.command, address.path)
        found = example(response_schema(operation)) if operation and response_schema(operation) else None
        if isinstance(found, dict) and "results" in found:
            found["next"] = None
        handler.send_response(200 if operation else 404)
        handler.end_headers()
        handler.wfile.write(json.dumps(found).encode() if found is not None else b"")


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Platform, str]]:
    platform = Platform()
    with responding(platform.respond) as url:
        yield platform, url


def arguments_of(collection: Collection, act: Act, directory: Path) -> tuple[list[str], list[str]]:
    """Return the arguments of a command, and all its options with values."""
    files = {kind: directory / kind for kind in ("FILE", "JSON")}
    files["FILE"].write_text("text\n")
    files["JSON"].write_text('"text"\n')
    arguments = [TEXT for _ in PART.findall(collection.path_of(act))]
    options: list[str] = []
    for field in act.taken:
        value = str(files[field.kind]) if field.is_file else _value(field)
        if field.is_argument:
            arguments.append(value)
        elif field.kind == "bool":
            options.append(f"--no-{field.name.replace('_', '-')}")
        else:
            options += [f"--{field.name.replace('_', '-')}{'-file' if field.is_file else ''}", value]
    return arguments, options


def _value(field: Field) -> str:
    return {"N": "3", "WHEN": "2h"}.get(field.kind, "given")


def run(url: str, *arguments: str) -> Result:
    environment = {"GPUPLATFORM_URL": url, "GPUPLATFORM_TOKEN": "token", "COLUMNS": "300"}
    return CliRunner(env=environment).invoke(app, arguments)


@named
def test_a_command_sends_what_it_was_told(
    collection: Collection, name: str, act: Act, served: tuple[Platform, str], tmp_path: Path
) -> None:
    platform, url = served
    words = [*collection.group.split(), name]
    arguments, options = arguments_of(collection, act, tmp_path)
    done = run(url, *words, *options, *arguments)
    assert done.exit_code == 0, done.output
    method, path, query, body = platform.asked[-1]
    operation = operation_for(method, path)
    assert operation
    assert operation["operationId"] == of_table(collection, act)
    sent = query if act.method in ("GET", "DELETE") else body or {}
    assert {field.name for field in act.taken} | act.body.keys() == sent.keys() - {*parse_qs(collection.path)}
    for field in act.taken:
        if field.kind == "bool":
            assert sent[field.name] in (False, ["false"])
        elif field.is_file:
            assert sent[field.name] == "text"
    assert (done.stdout != "") == (
        act.method != "DELETE" and bool(response_schema(described(of_table(collection, act))))
    )


@named
def test_what_is_read_is_printed_for_programs(
    collection: Collection, name: str, act: Act, served: tuple[Platform, str], tmp_path: Path
) -> None:
    if act.shows not in ("rows", "facts"):
        return
    words = [*collection.group.split(), name, *arguments_of(collection, act, tmp_path)[0]]
    as_json, as_yaml = (run(served[1], *words, "-o", form).stdout for form in ("json", "yaml"))
    assert json.loads(as_json) == yaml.safe_load(as_yaml)


def test_a_list_is_a_table_rows_or_names(served: tuple[Platform, str]) -> None:
    _, url = served
    table = run(url, "presets").stdout.splitlines()
    assert [line.split()[:4] for line in table] == [["NAME", "RESOURCE", "GROUP", "CPU"], [TEXT, TEXT, "7", "7"]]
    assert run(url, "presets", "ls", "-o", "wide").stdout.splitlines()[0].split()[-2:] == ["SHARED", "MEMORY"]
    assert [line.split() for line in run(url, "presets", "--no-headers").stdout.splitlines()] == [table[1].split()]
    assert run(url, "presets", "-o", "name").stdout == run(url, "presets", "-q").stdout == f"{TEXT}\n"


def test_options_are_checked_before_anything_is_sent(served: tuple[Platform, str]) -> None:
    platform, url = served
    asked = len(platform.asked)
    for words in (
        ("webhooks", "set", "lab"),  # nothing to change
        ("announcements", "create", "Maintenance", "--starts-at", "soon"),
        ("admin", "presets", "create", "small", "--cpu", "many"),
        ("keys", "add", "/nothing"),
        ("tokens", "create"),
    ):
        assert run(url, *words).exit_code == 2, words
    assert len(platform.asked) == asked


def test_none_and_moments_are_sent_as_such(served: tuple[Platform, str]) -> None:
    platform, url = served
    limits = ("--cpu", "none", "--max-sessions", "3", "--no-allow-sudo")
    assert run(url, "admin", "policies", "create", "lab", *limits).exit_code == 0
    assert platform.asked[-1][3] == {"name": "lab", "cpu": None, "max_sessions": "3", "allow_sudo": False}
    assert run(url, "admin", "groups", "set", TEXT, "--users", "none").exit_code == 0
    assert platform.asked[-1][3] == {"users": []}
    assert run(url, "hosts", "drain", "alpha", "--end-at", "2h", "--reason", "repair").exit_code == 0
    sent = platform.asked[-1][3]
    assert timedelta(hours=1) < datetime.fromisoformat(sent["end_at"]) - datetime.now(UTC) < timedelta(hours=3)


def test_the_help_of_commands_and_exit_codes_is_shown() -> None:
    codes = CliRunner().invoke(app, ["help", "exit-codes"]).stdout.splitlines()
    assert [int(line.split()[0]) for line in codes[1:]] == sorted(MEANINGS)
    assert "Send a message of the type webhook.test." in CliRunner().invoke(app, ["help", "webhooks", "test"]).stdout
    assert "Administration" in CliRunner().invoke(app, ["help"]).stdout
    assert CliRunner().invoke(app, ["help", "nothing"]).exit_code == 2


@pytest.mark.parametrize(
    ("status", "code"), [(401, 3), (403, 5), (404, 4), (400, 5), (409, 5), (429, 6), (500, 6), (503, 6)]
)
def test_what_the_platform_says_is_the_exit_code(status: int, code: int) -> None:
    def refuse(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(int(handler.headers["Content-Length"] or 0))
        handler.send_response(status)
        handler.end_headers()
        handler.wfile.write(b'{"detail": "No."}')

    with responding(refuse) as url:
        done = run(url, "tokens", "create", "laptop")  # which is not repeated
    assert (done.exit_code, done.stdout, "Error: No." in done.stderr) == (code, "", True)
    assert run(url, "tokens", "create", "laptop").exit_code == 6  # it is gone
