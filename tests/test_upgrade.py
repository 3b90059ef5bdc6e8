"""The platform is upgraded from the previous version while people work: old and new processes run side by side."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from engine.containers import HOST_LABEL
from gpuplatform.bootstrap import services
from tests.containers import remove_containers
from tests.fleet import ADMIN, START_SECONDS, Fleet, SessionLoad, SteadyClient, web_processes
from tests.platform import environment_of
from tests.ports import free_port
from tests.shell_image import ensure_shell_image
from tests.steady_terminal import SteadyTerminal
from tests.versions import lay_out_previous, upgrade
from tests.wait import until
from tests.workers import end_arbiter

pytestmark = [pytest.mark.long(minutes=2), pytest.mark.docker]

GROUPS = "near", "far"  # of one host each; the second one's sessions are reached through its gateway
SET_UP = """
from gpuplatform.bootstrap import demo, installation
from tests.factories import make_group, make_image
make_group(name="near")
make_group(name="far")
demo.create(installation.logins_file())
make_image(reference={image!r})
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """The previous version of the platform with two hosts, each process in the folder `platform`."""
    tree, var_dir = tmp_path / "platform", tmp_path / "var"
    tmp_path.chmod(0o755)  # PostgreSQL runs as another user
    lay_out_previous(tree)
    image, settings = ensure_shell_image(), environment_of(var_dir)
    names = {group: f"{group}-{uuid4().hex[:8]}" for group in GROUPS}
    gateway = f"127.0.0.1:{free_port()}"
    settings |= {
        "COMPUTE_WEB_PROCESSES": "2",
        "COMPUTE_SIMULATED_GPUS": "",
        "COMPUTE_HOST_CPU": "4",
        "COMPUTE_SANDBOX_POOL": "0",
        "COMPUTE_HOST_NAME": names["near"],
        "COMPUTE_HOST_GROUP": "near",
        "DEBUG": "true",
        "DJANGO_SETTINGS_MODULE": "tests.settings_without_debug",
    }
    far = {"COMPUTE_HOST_NAME": names["far"], "COMPUTE_HOST_GROUP": "far", "COMPUTE_GATEWAY_ADDRESS": gateway}
    with ExitStack() as stack:
        stack.enter_context(services.running(var_dir, take_over=True))
        for name in names.values():
            stack.callback(remove_containers, f"{HOST_LABEL}={name}")
        fleet = Fleet(settings, tree)
        stack.callback(fleet.stop_all)
        fleet.add("far-host", "hostworker", **far)
        fleet.add("far-gateway", "gateway", **far)
        fleet.manage("migrate", "-v", "0")
        fleet.manage("shell", "-v", "0", "-c", SET_UP.format(image=image))
        fleet.start("web", "scheduler", "beat", "host", "far-host", "far-gateway", "ssh")
        fleet.wait_until_served()
        fleet.image = image
        yield fleet
    end_arbiter(Path(settings["COMPUTE_ARBITER_DIR"]))


def launched(client: SteadyClient, group: str, image: str) -> str:
    """Return the id of a session that runs in this group."""
    asked = {"image": image, "cpu": 1, "memory": "256MiB", "resource_group": group}
    session: str = client.post("sessions/", **asked)[0]["id"]
    until(lambda: client.get(f"sessions/{session}/")["status"] == "RUNNING")
    return session


def replace_web(fleet: Fleet) -> None:
    """Have the processes of the web server replaced one after another, as `systemctl reload` does."""
    before = web_processes(fleet.pid("web"))
    fleet.signal("web", signal.SIGHUP)
    until(lambda: (now := web_processes(fleet.pid("web"))) and not now & before, seconds=START_SECONDS)


def restart(fleet: Fleet, work: list[Any], *names: str) -> None:
    """Restart processes, as `systemctl restart` does, and see that all goes on."""
    for name in names:
        fleet.stop(name)
        fleet.start(name)
    go_on(work)


def go_on(work: list[Any]) -> None:
    """Wait for sessions to come and go, and for each terminal to answer."""
    for each in work:
        each.wait_for(1)


def test_an_upgrade_harms_no_session_and_loses_no_request(fleet: Fleet, tmp_path: Path) -> None:
    client = SteadyClient(fleet.url, ADMIN, fleet.password(ADMIN))
    kept = [launched(client, group, fleet.image) for group in GROUPS]
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
    replace_web(fleet)
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
