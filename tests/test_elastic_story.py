"""Hosts of the provider `command`: a real one joins by its token and goes again, and the example of the docs works."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_django import Settings

from engine.containers import HOST_LABEL
from hostaccess.models import HostAccess
from resources.amounts.units import GIB, MIB
from resources.elastic.command import CommandProvider
from resources.elastic.providers import HostRequest, HostShape
from resources.models import ElasticHost, ElasticPool, ElasticState, Host
from scheduler.cycle import passes
from scheduler.tests.machines import make_pool, move_back, reconcile
from sessions.launching import services
from sessions.lifecycle import Status
from sessions.models import Session
from tests.containers import remove_containers
from tests.fgpu_sessions import ensure_hook_built, submit
from tests.joined_hosts import NOT_OF_A_HOST, ROOT, hosts_may_join
from tests.live import serving
from tests.shell_image import ensure_shell_image
from tests.two_hosts import QUIET, REAL
from tests.wait import until

pytestmark = pytest.mark.docker

VERBS: Final = ("create", "list", "delete")
# Hosts as processes of this machine: each joins, and is a host worker from then on.
PROGRAM: Final = """#!{python}
import json, os, pathlib, signal, subprocess, sys
folder = pathlib.Path({folder!r})
verb, asked = sys.argv[1], json.load(sys.stdin)
if verb == "create":
    file = folder / asked["name"]
    if not file.exists():
        words = [sys.executable, __file__, "host", asked["join_address"], str(file) + ".env"]
        known = json.loads((folder / "environment.json").read_text())
        known["GPUPLATFORM_JOIN_TOKEN"] = asked["join_token"]
        with open(str(file) + ".log", "wb") as log:
            host = subprocess.Popen(words, env=known, stdin=-1, stdout=log, stderr=log, start_new_session=True)
        host.stdin.write(b"{{}}")
        host.stdin.close()
        file.write_text(str(host.pid))
    print(json.dumps({{"identifier": asked["name"]}}))
elif verb == "list":
    names = [file.name for file in folder.iterdir() if file.suffix == "" and file.name.startswith(asked["prefix"])]
    hosts = [{{"identifier": name, "host_name": name, "state": "RUNNING"}} for name in names]
    print(json.dumps({{"hosts": hosts}}))
elif verb == "delete":
    file = folder / asked["identifier"]
    if file.exists():
        os.killpg(int(file.read_text()), signal.SIGTERM)
        file.unlink()
elif verb == "host":
    url, file = sys.argv[2:]
    os.chdir({root!r})
    subprocess.run([sys.executable, "manage.py", "join", url, "--file", file], check=True)
    sys.path.insert(0, {root!r})
    from hostaccess.host_file import read
    os.execve(sys.executable, [sys.executable, "manage.py", "hostworker"], os.environ | read(pathlib.Path(file)))
"""


def configure(folder: Path, settings: Settings, script: str) -> dict[str, Any]:
    """Put the program `machines` where providers may run it, and return the configuration of a pool with it."""
    settings.COMPUTE_PROVIDER_COMMANDS = str(folder)
    (folder / "machines").write_text(script)
    (folder / "machines").chmod(0o755)
    return {verb: ["machines", verb] for verb in VERBS}


@contextmanager
def pool_of_processes(folder: Path, settings: Settings) -> Iterator[ElasticPool]:
    """Serve the platform, with a pool whose hosts are processes of this machine."""
    programs, hosts = folder / "programs", folder / "hosts"
    programs.mkdir()
    hosts.mkdir()
    with ExitStack() as stack:
        stack.enter_context(hosts_may_join())
        web = stack.enter_context(serving(folder / "web.log", COMPUTE_RUNTIME=REAL))
        settings.COMPUTE_PUBLIC_URL = web.url
        own = {**QUIET, **NOT_OF_A_HOST, "COMPUTE_RUNTIME": REAL, "COMPUTE_VAR_DIR": str(settings.COMPUTE_VAR_DIR)}
        (hosts / "environment.json").write_text(json.dumps({**os.environ, **own}))
        script = PROGRAM.format(python=sys.executable, folder=str(hosts), root=str(ROOT))
        kind = {"name": "small", "cpus": 1, "memory": "512m"}
        pool = make_pool(
            provider="command", configuration=configure(programs, settings, script), host_types=[kind], max_hosts=1
        )
        stack.callback(clear, pool)
        yield pool


def clear(pool: ElasticPool) -> None:
    """Take away what a test that failed has left."""
    provider = pool.make_provider()
    for host in provider.list():
        provider.delete(host.identifier)
        remove_containers(f"{HOST_LABEL}={host.host_name}")


@pytest.mark.django_db(transaction=True)
def test_a_real_host_joins_serves_and_is_given_back(tmp_path: Path, settings: Settings) -> None:
    ensure_hook_built()
    image = ensure_shell_image()
    with pool_of_processes(tmp_path, settings) as pool:
        session = submit(pool.group, "0", image, memory=256 * MIB)

        def has_come_to(status: Status) -> bool:
            passes.run_pass()
            reconcile()
            return Session.objects.filter(pk=session.pk, status=status).exists()

        until(lambda: has_come_to(Status.RUNNING), seconds=120)
        row = ElasticHost.objects.get()
        session.refresh_from_db()
        assert session.host is not None
        assert (session.host.name, row.state) == (row.name, ElasticState.UP)
        assert HostAccess.objects.get().joined_at is not None
        services.terminate(session, actor=session.owner)
        until(lambda: has_come_to(Status.TERMINATED))
        reconcile()
        move_back(row, pool.cool_down)
        reconcile()
        move_back(row, timedelta(minutes=1))
        reconcile()
        row.refresh_from_db()
        assert (row.state, row.reason) == (ElasticState.ENDED, "Idle")
        assert pool.make_provider().list() == []
        assert not Host.objects.exists()
        assert not HostAccess.objects.exists()


def test_the_example_with_containers_does_as_it_should(tmp_path: Path, settings: Settings) -> None:
    page = (ROOT / "docs/elastic.md").read_text()
    example = re.search(r"^    #!/bin/sh\n(?:    .*\n|\n)+", page, re.MULTILINE)
    assert example
    prefix = f"gptest{os.getpid()}-"
    image = f"gptest/elastic-host:{os.getpid()}"
    script = re.sub(r"^    ", "", example[0], flags=re.MULTILINE).replace("gpu-host", image)
    for command in (
        ["docker", "create", "--name", f"{prefix}image", ensure_shell_image(), "sleep", "600"],
        ["docker", "commit", f"{prefix}image", image],
        ["docker", "rm", f"{prefix}image"],
    ):
        subprocess.run(command, check=True, capture_output=True)
    provider = CommandProvider(configure(tmp_path, settings, script), prefix)
    request = HostRequest(
        name=f"{prefix}1", group="lab", shape=HostShape(1, GIB), join_token="token", join_address="https://lab"
    )
    try:
        assert provider.create(request) == provider.create(request) == request.name
        listed = [(host.identifier, host.host_name) for host in provider.list()]
        assert listed == [(request.name, request.name)]
        provider.delete(request.name)
        assert provider.list() == []
        provider.delete(request.name)
    finally:
        for left in (["rm", "--force", request.name], ["rmi", image]):
            subprocess.run(["docker", *left], check=False, capture_output=True)
