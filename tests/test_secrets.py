"""Secrets are nowhere that others read: logs, command lines, containers, other sessions, tables of others."""

import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import docker
import psycopg
import pytest
from docker.models.containers import Container

from bench.common import ApiUser
from engine.containers import HOST_LABEL
from operations import embedded
from tests.guide import USER
from tests.platform import Platform
from tests.plugin import ENVIRONMENT

pytestmark = pytest.mark.docker

PLACES = {  # of secrets that are stored, by table
    "variable": {"compute_session"},  # the user's own, for the owner alone
}
TABLES = "SELECT quote_ident(table_name) FROM information_schema.tables WHERE table_schema = 'public'"


@pytest.fixture
def client(platform: Platform) -> Iterator[ApiUser]:
    made = ApiUser(platform)
    yield made
    made.close()


def command_lines() -> Iterator[tuple[str, bytes]]:
    """Yield the command line of each process of this machine, which all of its users can read."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            content = path.read_bytes()
            yield f"command line of {content.split(bytes(1))[0]!r}", content


def logs(platform: Platform) -> Iterator[tuple[str, bytes]]:
    """Yield the logs of all processes."""
    for path in (*platform.var_dir.rglob("*.log"), *platform.var_dir.rglob("*.out")):
        with suppress(OSError):
            yield str(path), path.read_bytes()


def configurations(containers: list[Container]) -> Iterator[tuple[str, bytes]]:
    """Yield what the engine tells of the containers."""
    for each in containers:
        yield f"inspection of {each.name}", repr(each.attrs).encode()


def inside(container: Container) -> tuple[str, bytes]:
    """Return what somebody else's session shows its user: variables of all processes, and their command lines."""
    output = container.exec_run(["sh", "-c", "env; cat /proc/*/environ /proc/*/cmdline /run/gpuplatform/* 2>/dev/null"])
    assert isinstance(output.output, bytes)
    return "another session", output.output


def tables_with(platform: Platform, text: str) -> set[str]:
    """Return the tables that have the text in a row."""
    with psycopg.connect(embedded.database_url(platform.var_dir)) as connection:
        names = [name for (name,) in connection.execute(TABLES).fetchall()]
        return {name for name in names if connection.execute(_SEARCH.format(name), [text]).fetchone()}


_SEARCH: Any = "SELECT 1 FROM {0} AS searched WHERE strpos(searched::text, %s) > 0 LIMIT 1"


def test_secrets_are_nowhere_that_others_read(platform: Platform, client: ApiUser) -> None:
    variable = secrets.token_hex(16)
    shape = {"cpu": 1, "memory": 1 << 30, "fgpu": "0", "image": client.image}
    own = client.post("/sessions/", shape | {"env": {"WANDB_API_KEY": variable}})[0]["id"]
    other = client.post("/sessions/", shape)[0]["id"]
    for session in (own, other):
        client.wait(session, "RUNNING")
    password = platform.passwords[USER]
    token = client.post("/auth/token/", {"email": USER, "password": password})["token"]
    known = {"variable": variable, "key": ENVIRONMENT["SECRET_KEY"], "token": token}
    engine = docker.from_env()
    containers = engine.containers.list(filters={"label": f"{HOST_LABEL}={platform.host_name}"})
    neighbour = next(each for each in containers if other in str(each.name))
    readable = [*command_lines(), *logs(platform), *configurations(containers), inside(neighbour)]
    found = [(name, where) for name, value in known.items() for where, content in readable if value.encode() in content]
    assert not found
    assert any(content for where, content in readable if where == "another session")
    for name, value in (known | {"password": password}).items():
        assert tables_with(platform, value) == PLACES.get(name, set()), name
    for session in (own, other):
        client.post(f"/sessions/{session}/terminate/", {})
