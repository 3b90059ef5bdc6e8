"""The platform is upgraded from the previous version while people work: old and new processes run side by side."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import ADMIN, Fleet, SessionLoad, SteadyClient
from tests.steady_terminal import SteadyTerminal
from tests.two_host_fleet import GROUPS, two_host_fleet
from tests.versions import lay_out_previous, upgrade

pytestmark = [pytest.mark.long(minutes=2), pytest.mark.docker]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The previous version of the platform with two hosts, each process in the folder `platform`."""
    lay_out_previous(tmp_path / "platform")
    with two_host_fleet(tmp_path, tmp_path / "platform") as fleet:
        yield fleet


def restart(fleet: Fleet, work: list[Any], *names: str) -> None:
    """Restart processes, and see that all goes on."""
    for name in names:
        fleet.restart(name)
    go_on(work)


def go_on(work: list[Any]) -> None:
    """Wait for sessions to come and go, and for each terminal to answer."""
    for each in work:
        each.wait_for(1)


def test_an_upgrade_harms_no_session_and_loses_no_request(fleet: Fleet, tmp_path: Path) -> None:
    client = SteadyClient(fleet.url, ADMIN, fleet.password(ADMIN))
    kept = [client.launch(image=fleet.image, memory="256MiB", resource_group=group) for group in GROUPS]
    terminals = [SteadyTerminal(fleet.url, session, client.token) for session in kept]
    wanted = [{"image": fleet.image, "cpu": 1, "memory": "256MiB", "resource_group": group} for group in GROUPS]
    loads = [SessionLoad(fleet.url, ADMIN, fleet.password(ADMIN), each, threads=1) for each in wanted]
    work: list[Any] = [*terminals, *loads]
    go_on(work)

    upgrade(tmp_path / "platform")
    fleet.manage("migrate", "-v", "0")
    go_on(work)
    restart(fleet, work, "scheduler", "beat")  # both hosts are of the version before
    restart(fleet, work, "host")
    fleet.reload("web")
    go_on(work)
    restart(fleet, work, "far-host", "far-gateway", "ssh")

    for each in work:
        each.finish()
    assert fleet.ended() == []
    for session in kept:
        found = client.get(f"sessions/{session}/")
        assert (found["status"], found["attempt"]) == ("RUNNING", 1)
    for load in loads:
        for session in load.started:
            found = client.get(f"sessions/{session}/")
            assert (found["status"], found["attempt"]) == ("TERMINATED", 1)
