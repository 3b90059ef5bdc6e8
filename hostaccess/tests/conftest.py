"""Fixtures of the tests of hosts' access."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hostaccess.models import HostAccess
from sessions.models import Session
from tests.factories import make_group, make_host, make_user, run_session
from tests.joined_hosts import connected, hosts_may_join, joined_host


@pytest.fixture
def variables(transactional_db: None, installation: UUID) -> Iterator[dict[str, str]]:
    """The host `gpu7`, which has joined the group `lab`: what it was given."""
    make_group(name="lab")
    with hosts_may_join(installation), joined_host("gpu7", "lab") as given:
        yield given


@pytest.fixture
def host_connection(variables: dict[str, str]) -> Iterator[psycopg.Connection[Any]]:
    """A connection to PostgreSQL with the credentials of `gpu7`."""
    with connected(variables) as opened:
        yield opened


@pytest.fixture
def own(variables: dict[str, str]) -> Session:
    """A session that runs on the host whose credentials are used."""
    group = HostAccess.objects.get(name="gpu7").group
    return run_session(host=make_host(name="gpu7", group=group, gpus=1), owner=make_user(), fgpu=1000)
