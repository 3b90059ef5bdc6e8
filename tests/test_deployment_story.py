"""A deployment from its creation to its end, with real containers, a real host worker and a real web process."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Final

import docker
import pytest
import requests
from django.conf import settings

from deployments import services
from deployments.access import tokens
from deployments.models import Deployment, DeploymentState, Replica
from deployments.replicas.reconciliation import reconcile_all
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from deployments.tests.making import revision_request
from resources.amounts.units import MIB
from resources.models import Image
from scheduler.cycle.passes import run_pass
from sessions.lifecycle import LIVE, Status
from sessions.models import Session
from tests.factories import make_image, make_user
from tests.fgpu_sessions import PYTHON_IMAGE, InContainer, group_of
from tests.live import LiveServer
from tests.near_host import near_host
from tests.wait import SECONDS, until

pytestmark = [pytest.mark.docker, pytest.mark.django_db(transaction=True)]

# Says who it is; at /slow it sends the rest of its response once it is let go on.
SERVER: Final = """
import http.server, os, pathlib, time
class Server(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        me = os.environ["GPUPLATFORM_SESSION_ID"] + " " + os.environ["VERSION"]
        if self.path == "/slow":
            self.send_response(200)
            self.send_header("Content-Length", str(len(me) + 4))
            self.end_headers()
            self.wfile.write(me.encode())
            while not pathlib.Path("/tmp/go").exists():
                time.sleep(0.05)
            self.wfile.write(b" end")
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(me)))
        self.end_headers()
        self.wfile.write(me.encode())
http.server.ThreadingHTTPServer.request_queue_size = 128
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Server).serve_forever()
"""


@pytest.fixture
def web(tmp_path: Path, transactional_db: None) -> Iterator[LiveServer]:
    with near_host(tmp_path / "web.log") as running:
        yield running


def revision(version: str) -> RevisionRequest:
    return revision_request(
        image=Image.objects.filter(reference=PYTHON_IMAGE).first() or make_image(reference=PYTHON_IMAGE),
        command='exec python3 -c "$SERVER"',
        environment={"SERVER": SERVER, "VERSION": version},
        memory=256 * MIB,
        shared_memory=16 * MIB,
        health=HealthCheck(path="/", interval_seconds=1, timeout_seconds=1),
    )


class Client:
    """Asks for a deployment by a token."""

    def __init__(self, web: LiveServer, deployment: Deployment, secret: str) -> None:
        self.url = web.url
        self.deployment = deployment
        self.headers = {"Host": f"{deployment.label}.{settings.COMPUTE_APPS_DOMAIN}:{web.port}"}
        self.secret = secret

    def ask(self, path: str = "/", *, secret: str = "", stream: bool = False) -> requests.Response:
        headers = self.headers | {"Authorization": f"Bearer {secret or self.secret}"}
        return requests.get(self.url + path, headers=headers, timeout=SECONDS, stream=stream, allow_redirects=False)

    def all(self) -> set[str]:
        """Return the sessions that answer ten requests."""
        return {self.who()[0] for _ in range(10)}

    def who(self) -> tuple[str, str]:
        """Return the session and the version of the replica that answers."""
        response = self.ask()
        assert response.status_code == 200, response.text
        session, version = response.text.split()
        return session, version


def work() -> None:
    """Do what the scheduler's processes do every few seconds."""
    reconcile_all()
    run_pass()


def works_until(deployment: Deployment, *, healthy: set[int]) -> set[str]:
    """Work until replicas of these revisions alone take requests, as many as are wanted; return their sessions."""

    def found() -> set[str]:
        work()
        row = Deployment.objects.get(pk=deployment.pk)
        taking = list(row.replica_rows.taking_requests().values_list("pk", "revision__number"))
        is_so = {number for _, number in taking} == healthy and len(taking) == row.replicas
        return {pk for pk, _ in taking} if is_so and row.state == DeploymentState.HEALTHY else set()

    return until(found)


class Load:
    """Asks without a pause in threads of its own, and counts what was not answered as it should."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._done = threading.Event()
        self._pool = ThreadPoolExecutor(4)
        self.answered = 0
        self.failures: list[str] = []

    def __enter__(self) -> "Load":
        for _ in range(4):
            self._pool.submit(self._run)
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._pool.shutdown()

    def _run(self) -> None:
        while not self._done.wait(0.01):
            try:
                response = self._client.ask()
                if response.status_code != 200:
                    self.failures.append(f"{response.status_code} {response.text[:200]}")
                self.answered += 1
            except requests.RequestException as error:
                self.failures.append(repr(error))


@pytest.fixture
def client(web: LiveServer) -> Client:
    """A client of a new deployment with two replicas."""
    owner = make_user()
    group = group_of(settings.COMPUTE_HOST_NAME, 1)
    group.cpu_overcommit = Decimal(4)
    group.save()
    request = DeploymentRequest(
        name="who", resource_group=group, revision=revision("1"), replicas=2, drain_seconds=int(SECONDS)
    )
    deployment = services.create(owner, request)
    return Client(web, deployment, tokens.create_token(deployment, name="test", actor=owner).secret)


def test_a_deployment_from_creation_to_end(client: Client) -> None:
    deployment = client.deployment
    first = works_until(deployment, healthy={1})
    until(lambda: client.ask().status_code == 200)
    assert client.ask(secret="gpd_" + "x" * 43).status_code == 401
    until(lambda: client.all() == first)

    second = roll_out(client, first)
    killed = sorted(second)[0]
    with closing(docker.from_env()) as engine:
        engine.containers.get(f"gp-{killed}-1").kill()
    until(lambda: Session.objects.get(pk=killed).status == Status.ERROR)
    third = works_until(deployment, healthy={2})
    assert killed not in third
    assert len(third - second) == 1
    until(lambda: client.all() == third)

    services.end(deployment, actor=deployment.owner)
    works_until_ended(Session.objects.values_list("pk", flat=True))
    until(lambda: client.ask().status_code == 410)
    until(lambda: not containers_of(Session.objects.all()))


def containers_of(sessions: Iterable[Session]) -> set[str]:
    """Return the names of the containers that are left of these sessions."""
    names = {f"gp-{session.pk}-{session.attempt}" for session in sessions}
    with closing(docker.from_env()) as engine:
        return names & {str(each.name) for each in engine.containers.list(all=True, ignore_removed=True)}


def roll_out(client: Client, first: set[str]) -> set[str]:
    """Activate another revision beside a response that is under way, and others; return the new replicas."""
    deployment = client.deployment
    with Load(client) as load, client.ask("/slow", stream=True) as slow:
        begun = slow.raw.read(18).decode()
        draining = Session.objects.get(pk=begun.split()[0])
        services.new_revision(deployment, revision("2"), actor=deployment.owner)
        second = works_until(deployment, healthy={2})
        draining.refresh_from_db()
        assert draining.status == Status.RUNNING
        assert Replica.objects.get(pk=draining.pk).draining_since is not None
        InContainer(draining).run("touch /tmp/go")
        assert (begun + slow.raw.read().decode()) == f"{draining.pk} 1 end"
        works_until_ended(first)
        assert {client.who()[1] for _ in range(10)} == {"2"}
    assert load.failures == []
    assert load.answered > 20
    return second


def works_until_ended(sessions: Iterable[str]) -> None:
    """Work until these sessions have ended."""

    def is_over() -> bool:
        work()
        return not Session.objects.filter(pk__in=sessions, status__in=LIVE).exists()

    until(is_over)
