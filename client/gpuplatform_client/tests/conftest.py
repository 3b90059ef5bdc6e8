"""The program `gpuplatform`, signed in at the `server` as the `user` of a module."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import httpx
import pytest
import typer.testing
from typer.testing import CliRunner, Result

from accounts.models import ApiToken, User
from gpuplatform_client.cli.app import app
from gpuplatform_client.tests.program import Command
from tests.live import LiveServer

# The program takes longer to make than to run.
typer.testing._get_command = cache(typer.testing._get_command)  # type: ignore[attr-defined]
TRUST: Final = cache(httpx.create_ssl_context)  # to read all authorities takes longer than most commands


@pytest.fixture(autouse=True, scope="module")
def _authorities_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("httpx._transports.default.create_ssl_context", TRUST)
        yield


@pytest.fixture
def gpuplatform(tmp_path: Path) -> Command:
    """Runs the program with a configuration of its own; signed in nowhere."""

    def run(*arguments: str, given: str | None = None, **variables: str) -> Result:
        return CliRunner(env={"HOME": str(tmp_path), **variables}).invoke(app, arguments, given)

    return run


@pytest.fixture
def signed_in(gpuplatform: Command, server: LiveServer, user: User) -> Command:
    token = ApiToken.objects.issue(user)[1]
    assert gpuplatform("login", server.url, "--token", token).stdout.startswith("Signed in as user@example.org")
    return gpuplatform
