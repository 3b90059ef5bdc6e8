"""PostgreSQL and Redis fail over while sessions come and go: nothing that was confirmed is lost."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.failover import FailoverServers, failover_servers
from tests.fleet import ADMIN, LAUNCH, Fleet, SessionLoad, in_memory_fleet
from tests.wait import until

pytestmark = [pytest.mark.long(minutes=1), pytest.mark.loopback]


@pytest.fixture
def servers() -> Iterator[FailoverServers]:
    with failover_servers() as running:
        yield running


@pytest.fixture
def fleet(servers: FailoverServers, tmp_path: Path) -> Iterator[Fleet]:
    with in_memory_fleet(tmp_path, **servers.environment()) as running:
        yield running


def rows(servers: FailoverServers, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(servers.database.url) as connection:
        return connection.execute(query).fetchall()


def test_failovers_lose_nothing_that_was_confirmed(servers: FailoverServers, fleet: Fleet, tmp_path: Path) -> None:
    load = SessionLoad(fleet.url, ADMIN, fleet.password(ADMIN), LAUNCH)
    load.wait_for(3)
    servers.redis.kill_primary()
    load.wait_for(6)
    servers.redis.wait_for_failover()
    load.wait_for(6)
    servers.database.fail_over()
    load.wait_for(6)
    load.finish()
    assert fleet.ended() == []
    seen = rows(servers, "SELECT id, status, attempt FROM compute_session")
    assert {session: rest for session, *rest in seen} == {session: ["TERMINATED", 1] for session in load.started}
    assert until(lambda: rows(servers, "SELECT count(*) FROM compute_lease") == [(0,)])
    backup = fleet.manage("backup", str(tmp_path / "backups")).splitlines()[-1]
    assert Path(backup).stat().st_size > 10_000
    found = fleet.manage("doctor", check=False)
    assert f"primary 127.0.0.1:{servers.database.ports[1]}" in found
    assert f"primary 127.0.0.1:{servers.redis.ports[1]}" in found
