"""A deployment under requests while it is rolled out, scaled and hit by faults: every request is answered right.

What is right: the whole response of a replica, or 429 or 503 before any byte of one. A response that is cut is a fault
unless the replica that gave it has died.
"""

import http.client
import itertools
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from django.conf import settings

from bench.sizes import size
from deployments import services
from deployments.access import tokens
from deployments.models import Deployment, Replica
from deployments.requests import DeploymentRequest, HealthCheck, RevisionRequest
from resources.amounts.units import MIB
from resources.models import Image, ResourceGroup
from tests.cluster.checks import asked
from tests.cluster.faults import World
from tests.cluster.machines import PLATFORM
from tests.cluster.processes import Process
from tests.cluster.site import MANAGE, Host
from tests.factories import make_image, make_policy, make_user
from tests.tiny_image import TINY_IMAGE
from tests.wait import until

REQUESTS: Final = size(10_000, 200)  # at least; they go on while anything is still to happen
CLIENTS: Final = size(64, 4)
STREAMED: Final = 8  # of the clients read streams of a second
LINES: Final = 20  # of a stream
TIMEOUT_S: Final = 150.0  # of a client: more than a frozen host stands still
FROZEN_S: Final = size(60.0, 2.0)
SETTLE_S: Final = 300.0
PROXY_PORT: Final = 8050
REFUSED: Final = (429, 503)
SERVE: Final = r"""
mkdir -p /tmp/www/cgi-bin; cd /tmp/www
cat >cgi-bin/answer <<'END'
#!/bin/sh
printf 'Content-Type: text/plain\r\n\r\n%s of revision REVISION\n' "$QUERY_STRING"
END
cat >cgi-bin/stream <<'END'
#!/bin/sh
printf 'Content-Type: text/event-stream\r\n\r\n'
for line in $(seq LINES); do printf 'data: %s %s\n\n' "$QUERY_STRING" "$line"; sleep 0.05; done
printf 'data: [DONE]\n\n'
END
chmod +x cgi-bin/*; touch health
exec busybox httpd -f -p "$PORT" -h /tmp/www
"""


@dataclass
class Answers:
    """What clients were answered, and what must not have been."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    cut: list[tuple[float, str]] = field(default_factory=list)  # Unix time, words
    repeated: int = 0  # sent again on another connection, as that of before had ended unanswered


class Traffic:
    """Clients that send one request after the other to the addresses of the deployment, until they are stopped."""

    def __init__(self, label: str, secret: str, urls: list[str]) -> None:
        self.answers = Answers()
        self._headers = {"Host": f"{label}.{settings.COMPUTE_APPS_DOMAIN}", "Authorization": f"Bearer {secret}"}
        self._urls = urls
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(each,), daemon=True) for each in range(CLIENTS)]

    def start(self) -> None:
        """Start all clients."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> Answers:
        """Return what they were answered, once at least REQUESTS were sent and each has its last answer."""
        until(lambda: self.answers.counts.total() >= REQUESTS, seconds=SETTLE_S)
        self._is_over.set()
        for thread in self._threads:
            thread.join(TIMEOUT_S)
        return self.answers

    def _run(self, client: int) -> None:
        is_stream = client % (CLIENTS // STREAMED or 1) == 0
        connection: http.client.HTTPConnection | None = None
        while not self._is_over.is_set():
            number = next(self._numbers)
            target = f"/cgi-bin/{'stream' if is_stream else 'answer'}?{number}"
            connection = self._request(connection, target, number, is_stream=is_stream)

    def _request(
        self, connection: http.client.HTTPConnection | None, target: str, number: int, *, is_stream: bool
    ) -> http.client.HTTPConnection | None:
        """Send one request and note its answer; return the connection for the next one.

        A connection that ends without a byte of a response is no answer: an idle one may be closed, and a server be
        replaced; the request is safe, so it is sent again as clients do (RFC 9110, 9.2.2).
        """
        for attempt in itertools.count():
            try:
                connection = connection or self._connected(number + attempt)
                connection.request("GET", target, headers=self._headers)
                response = connection.getresponse()
            except (ConnectionError, http.client.RemoteDisconnected) as error:
                connection = None
                self._note_repeated(attempt, target, error)
                if self._is_over.is_set() or attempt > 100:
                    return None
                time.sleep(0.05)
                continue
            except OSError as error:
                self._note("no answer", f"{target}: {error!r}")
                return None
            try:
                body = response.read()
            except (OSError, http.client.HTTPException) as error:
                self._note_cut(target, repr(error))
                return None
            self._judge(target, number, response.status, body, is_stream=is_stream)
            if response.will_close:
                connection.close()
                return None
            return connection
        return None

    def _connected(self, number: int) -> http.client.HTTPConnection:
        place = urlsplit(self._urls[number % len(self._urls)])
        return http.client.HTTPConnection(str(place.hostname), place.port or 80, timeout=TIMEOUT_S)

    def _judge(self, target: str, number: int, status: int, body: bytes, *, is_stream: bool) -> None:
        if status in REFUSED:
            self._note(str(status))
            time.sleep(0.2)  # it says later, and a client that heeds it leaves the machine to others
        elif status == 200 and (right := right_body(body, number, is_stream=is_stream)) == body:
            self._note("stream" if is_stream else "answer")
        elif status == 200 and right.startswith(body):
            self._note_cut(target, f"after {len(body)} bytes")
        else:
            self._note(f"wrong {status}", f"{target}: {status} {body[:200]!r}")

    def _note(self, kind: str, wrong: str = "") -> None:
        with self._lock:
            self.answers.counts[kind] += 1
            if wrong:
                self.answers.wrong.append(wrong)

    def _note_cut(self, target: str, how: str) -> None:
        with self._lock:
            self.answers.cut.append((time.time(), f"{target}: {how}"))
            self.answers.counts["cut"] += 1

    def _note_repeated(self, attempt: int, target: str, error: Exception) -> None:
        with self._lock:
            self.answers.repeated += 1
            if attempt > 100:
                self.answers.wrong.append(f"{target}: {error!r}")


def right_body(body: bytes, number: int, *, is_stream: bool) -> bytes:
    """Return the whole response to the request of this number, of the revision that this one is of."""
    if not is_stream:
        revision = 2 if body.endswith(b"2\n") else 1
        return f"{number} of revision {revision}\n".encode()
    lines = [f"data: {number} {line}\n\n" for line in range(1, LINES + 1)]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def serve_through_faults(world: World, group: ResourceGroup) -> dict[str, Any]:
    """Return how requests were answered while a deployment went through changes and faults, and what was wrong."""
    for host in world.hosts:
        host.engine.take_image(TINY_IMAGE)
    image, owner = make_image(reference=TINY_IMAGE), make_user(policy=make_policy())
    deployment = services.create(owner, _request(group, image))
    issued = tokens.create_token(deployment, name="clients", actor=owner)
    proxy = _proxy(world)
    _settled(deployment, 4)
    site = world.site
    traffic = Traffic(deployment.label, issued.secret, [*site.urls, f"http://{PLATFORM}:{PROXY_PORT}"])
    steps: dict[str, tuple[float, float]] = {}  # seconds since the first request, and until all was as wanted
    deaths: list[tuple[float, float]] = []  # Unix times between which a replica died, or stood still for long

    def step(name: str, replicas: int = 4) -> None:
        since = time.time()
        _settled(deployment, replicas)
        steps[name] = round(since - began_at, 1), round(time.time() - since, 1)

    began_at = time.time()
    traffic.start()
    services.new_revision(deployment, _revision(2, image), actor=owner)
    step("rolling update")
    services.abort_rollout(deployment, actor=owner)
    step("roll back")
    begun = time.time()
    with world.excused(_host_of(world, _first(deployment)).name):
        _kill_a_replica(world, deployment)
    step("replica killed")
    deaths.append((begun, time.time()))
    begun, host = time.time(), _host_of(world, _first(deployment))
    with world.excused(host.name), host.frozen():
        time.sleep(FROZEN_S)
    step("host frozen")
    deaths.append((begun, time.time()))
    for name, process in (("web process replaced", site.web[0]), ("proxy process replaced", proxy)):
        process.stop()
        process.start()
        step(name)
    for wanted in (1, 4):
        services.set_replicas(deployment, wanted, actor=owner)
        step(f"scaled to {wanted}", wanted)
    answers = traffic.stop()
    services.end(deployment, actor=owner)
    until(lambda: not _live(deployment), seconds=SETTLE_S)
    cut = [
        f"{at - began_at:.1f} s: {words}"
        for at, words in answers.cut
        if not any(begun <= at <= ended for begun, ended in deaths)
    ]
    return {
        "requests": answers.counts.total(),
        "answers": dict(answers.counts),
        "repeated": answers.repeated,
        "cut_by_deaths": len(answers.cut) - len(cut),
        "cut": cut,
        "wrong": answers.wrong,
        "steps_s": steps,
    }


def _request(group: ResourceGroup, image: Image) -> DeploymentRequest:
    revision = _revision(1, image)
    return DeploymentRequest(
        name="served", resource_group=group, revision=revision, replicas=4, concurrency=16, queue=200
    )


def _revision(number: int, image: Image) -> RevisionRequest:
    return RevisionRequest(
        image=image,
        cpu=1,
        memory=128 * MIB,
        shared_memory=16 * MIB,
        fgpu=4000,
        command=SERVE.replace("REVISION", str(number)).replace("LINES", str(LINES)),
        health=HealthCheck(path="/health", interval_seconds=2, timeout_seconds=2, retries=3, start_seconds=60),
    )


def _proxy(world: World) -> Process:
    """Return a running process that serves apps alone."""
    address = f"{PLATFORM}:{PROXY_PORT}"
    words = (*MANAGE, "appproxy", "--address", address)
    process = Process("appproxy", words, world.site.environment(), world.site.logs)
    process.start()
    until(lambda: _takes_connections(PLATFORM, PROXY_PORT))
    return process


def _takes_connections(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True


def _live(deployment: Deployment) -> list[Replica]:
    return asked(lambda: list(deployment.replica_rows.live().select_related("session__host", "revision")))


def _first(deployment: Deployment) -> Replica:
    return _live(deployment)[0]


def _settled(deployment: Deployment, wanted: int) -> None:
    """Return once just so many replicas are there, of the current revision, and take requests."""

    def is_settled() -> bool:
        current = asked(lambda: Deployment.objects.values_list("revision", flat=True).get(pk=deployment.pk))
        serving = [each for each in _live(deployment) if each.takes_requests and each.revision_id == current]
        return len(serving) == len(_live(deployment)) == wanted

    until(is_settled, seconds=SETTLE_S)


def _host_of(world: World, replica: Replica) -> Host:
    return next(host for host in world.hosts if host.name == str(replica.session.host))


def _kill_a_replica(world: World, deployment: Deployment) -> None:
    """Kill all processes of a replica, as the kernel does that is out of memory."""
    replica = _first(deployment)
    containers = _host_of(world, replica).engine.containers()
    container, _ = containers[(replica.pk, replica.session.attempt)]
    _host_of(world, replica).engine.kill_container(container)
    until(lambda: replica.pk not in {each.pk for each in _live(deployment)}, seconds=SETTLE_S)
