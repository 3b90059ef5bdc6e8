"""The platform is upgraded from what landed last while people work: old and new processes run side by side.

There are two machines: the first has a web server, scheduler, beat and a host, the second another web server and a
host with its gateway. Requests of people go to both web servers in turn.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fleet import ADMIN, Fleet, SessionLoad, SteadyClient
from tests.steady_terminal import SteadyTerminal
from tests.steady_visitors import OpenList, Uploader, Visitor
from tests.two_host_fleet import COLLECT, GROUPS, two_host_fleet
from tests.versions import lay_out_previous, upgrade

pytestmark = [pytest.mark.long(minutes=3), pytest.mark.docker]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The previous version of the platform on two machines, whose code is in the folders `first` and `second`."""
    lay_out_previous(tmp_path / "first")
    lay_out_previous(tmp_path / "second")
    with two_host_fleet(tmp_path, tmp_path / "first", tmp_path / "second") as fleet:
        yield fleet


def restart(fleet: Fleet, work: list[Any], *names: str) -> None:
    """Restart processes, and see that all goes on."""
    for name in names:
        fleet.restart(name)
    go_on(work)


def go_on(work: list[Any]) -> None:
    """Wait for sessions to come and go, for each terminal to answer, and for people to get what they ask for."""
    for each in work:
        each.wait_for(1)


def test_an_upgrade_harms_no_session_and_loses_no_request(fleet: Fleet, tmp_path: Path) -> None:
    client = SteadyClient(fleet.url, ADMIN, fleet.password(ADMIN))
    kept = [client.launch(image=fleet.image, memory="256MiB", resource_group=group) for group in GROUPS]
    urls = [fleet.url, fleet.url_of("far-web")]
    terminals = [SteadyTerminal(url, session, client.token) for url, session in zip(urls, kept, strict=True)]
    wanted = [{"image": fleet.image, "cpu": 1, "memory": "256MiB", "resource_group": group} for group in GROUPS]
    loads = [SessionLoad(fleet.url, ADMIN, fleet.password(ADMIN), each, threads=1) for each in wanted]
    visitor = Visitor(urls, ADMIN, fleet.password(ADMIN))
    visitor.shared_files = "StaticFilesOfVersions" in (tmp_path / "first/gpuplatform/settings.py").read_text()
    visitor.wait_for(1)
    people = [
        visitor,
        OpenList(urls, visitor),
        Uploader(urls, client.token, client.post("folders/", name="data")["id"]),
    ]
    work: list[Any] = [*terminals, *loads, *people]
    go_on(work)

    upgrade(tmp_path / "first")
    fleet.manage("migrate", "-v", "0")
    fleet.manage("shell", "-v", "0", "-c", COLLECT)
    visitor.wait_for_all_pages()  # as the version before shows them, from the files of this one
    restart(fleet, work, "scheduler", "beat", "far-host")  # hosts are of the version before, and begin anew
    upgrade(tmp_path / "second")
    fleet.manage("shell", "-v", "0", "-c", COLLECT, beside="far-web")
    restart(fleet, work, "host")
    fleet.reload("web")
    visitor.wait_for_all_pages()  # of both versions
    go_on(work)
    fleet.reload("far-web")
    fleet.reload("far-gateway")
    restart(fleet, work, "far-host", "ssh")

    for each in work:
        each.finish()
    assert fleet.ended() == []
    assert [each.failed for each in people] == [[], [], []]
    assert visitor.sign_ins == 1
    for session in kept:
        found = client.get(f"sessions/{session}/")
        assert (found["status"], found["attempt"]) == ("RUNNING", 1)
    for load in loads:
        for session in load.started:
            found = client.get(f"sessions/{session}/")
            assert (found["status"], found["attempt"]) == ("TERMINATED", 1)
    figures = {
        "pages": visitor.pages,
        "rounds": [each.rounds for each in people],
        "made again": [each.refused for each in people] + [load.repeated for load in loads],
        "longest silence of terminals, s": [round(each.longest_gap_s, 1) for each in terminals],
        "sessions": [len(load.started) for load in loads],
    }
    sys.stdout.write(f"{json.dumps(figures)}\n")  # `pytest -s` shows it
