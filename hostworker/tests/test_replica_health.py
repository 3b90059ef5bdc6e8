"""The health of replicas: what probes find, and what that makes of them."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

import pytest

from deployments.models import Deployment, Replica, ReplicaHealth
from deployments.replicas.reconciliation import reconcile
from deployments.requests import HealthCheck
from deployments.tests.making import make_deployment, revision_request, run_replicas
from hostworker.replicas.health import (
    HEALTHY,
    STARTING,
    UNHEALTHY,
    HealthRecord,
    Patience,
    ProbeTarget,
    after_probe,
    first_answer,
    probe,
)
from hostworker.replicas.replica_watch import ReplicaWatch, look_soon
from resources import clock
from resources.models import Host
from sessions import notify
from sessions.models import Session
from tests.factories import make_host
from tests.ports import free_port
from tests.wait import SECONDS, until

PATIENCE = Patience(start_seconds=60, retries=3)
Serve = Callable[[bytes], int]


def story(*problems: str, age: float = 100.0, begin: str = STARTING) -> list[str]:
    record, found = HealthRecord(health=begin), []
    for problem in problems:
        record = after_probe(record, problem, patience=PATIENCE, age_seconds=age)
        found.append(record.health)
    return found


def test_only_retries_in_a_row_make_it_unhealthy() -> None:
    assert story("x", "x", "", "x", "x", "x", begin=HEALTHY) == [HEALTHY] * 5 + [UNHEALTHY]


def test_one_success_heals() -> None:
    assert story("x", "", begin=UNHEALTHY) == [UNHEALTHY, HEALTHY]


def test_failures_do_not_count_while_it_starts() -> None:
    assert story(*"xxxxxx", age=59) == [STARTING] * 6
    assert story(*"xxx", age=60) == [STARTING, STARTING, UNHEALTHY]


def test_a_start_period_protects_nothing_that_was_healthy() -> None:
    assert story("", "x", "x", "x", age=1) == [HEALTHY, HEALTHY, HEALTHY, UNHEALTHY]


def test_the_last_probes_alone_decide_the_health() -> None:
    for problems in product(("", "x"), repeat=7):
        last = story(*problems, begin=HEALTHY)[-1]
        if problems[-1] == "":
            assert last == HEALTHY
        elif problems[-3:] == ("x", "x", "x"):
            assert last == UNHEALTHY
        else:
            assert last == HEALTHY


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Answer every connection with these bytes and hold it open; return the port."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def run(listener: socket.socket, answer: bytes) -> None:
        with ExitStack() as held, suppress(OSError):
            while True:
                connection = held.enter_context(listener.accept()[0])
                connection.recv(10_000)
                connection.sendall(answer)
                if not answer:
                    connection.close()

    def start(answer: bytes) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)
        threads.append(threading.Thread(target=run, args=(listener, answer)))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
    for thread in threads:
        thread.join()
    for listener in listeners:
        listener.close()


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", ""),
        (b"HTTP/1.1 204 No Content\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n", ""),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "/health answered with status 404."),
        (b"HTTP/1.1 503 Loading\r\n\r\n", "/health answered with status 503."),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "does not speak HTTP."),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, ""),  # the status is enough
        (b"HTTP/1.1 ", "It did not answer within 1 s."),
        (b"", "/health closed the connection without a response."),
    ],
)
async def test_a_probe_says_what_is_wrong(serve: Serve, answer: bytes, words: str) -> None:
    target = ProbeTarget(address="127.0.0.1", port=serve(answer), path="/health", timeout_seconds=1)
    found = await probe(target)
    assert found.endswith(words) if words else found == ""


@pytest.mark.loopback
async def test_a_port_that_accepts_is_enough_for_tcp(serve: Serve) -> None:
    open_port, closed = serve(b"whatever"), free_port()
    assert await probe(ProbeTarget(address="127.0.0.1", port=open_port, path="", timeout_seconds=1)) == ""
    refused = await probe(ProbeTarget(address="127.0.0.1", port=closed, path="", timeout_seconds=1))
    assert refused == f"Nothing listens on port {closed}."


@pytest.fixture
def host(transactional_db: None) -> Host:
    return make_host()


@pytest.fixture
def watch(host: Host) -> Iterator[ReplicaWatch]:
    watch = ReplicaWatch(host)
    yield watch
    watch.end()


def running(host: Host, *ports: int, **health: object) -> tuple[Deployment, list[Replica]]:
    """Return a deployment with a replica at each port of 127.0.0.1; all have the revision of the first."""
    check = HealthCheck(path="/health", **({"interval_seconds": 1, "timeout_seconds": 1} | health))  # type: ignore[arg-type]
    deployment = make_deployment(host=host, replicas=len(ports), revision=revision_request(port=ports[0], health=check))
    reconcile(deployment.pk)
    replicas = run_replicas(deployment, host)
    Session.objects.filter(replica__deployment=deployment).update(address="127.0.0.1")
    return deployment, replicas


def health_of(replica: Replica) -> str:
    return Replica.objects.get(pk=replica.pk).health


def polls_until(watch: ReplicaWatch, found: Callable[[], bool]) -> None:
    def look() -> bool:
        watch.poll()
        return found()

    until(look)


@pytest.mark.loopback
def test_a_replica_becomes_healthy_and_its_proxies_hear_of_it(host: Host, watch: ReplicaWatch, serve: Serve) -> None:
    deployment, [replica] = running(host, serve(b"HTTP/1.1 200 OK\r\n\r\n"))
    starts, healthy = {"deployment": deployment.pk}, {"healthy": replica.pk, "attempt": replica.session.attempt}
    with closing(notify.proxies_redis().pubsub(ignore_subscribe_messages=True)) as channel:
        channel.subscribe(notify.ROUTES_CHANNEL)
        polls_until(watch, lambda: health_of(replica) == ReplicaHealth.HEALTHY)
        heard = (json.loads(message["data"]) for message in channel.listen())
        assert [next(heard), next(heard)] == [starts, starts | healthy]
    row = Replica.objects.get(pk=replica.pk)
    assert row.healthy_at is not None
    assert (row.failures, row.health_detail, row.unhealthy_at) == (0, "", None)


@pytest.mark.loopback
def test_a_replica_that_starts_slowly_is_found_soon(host: Host, watch: ReplicaWatch) -> None:
    port = free_port()
    _, [replica] = running(host, port, interval_seconds=300)
    polls_until(watch, lambda: Replica.objects.get(pk=replica.pk).health_detail != "")
    with ThreadingHTTPServer(("127.0.0.1", port), SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        polls_until(watch, lambda: "404" in Replica.objects.get(pk=replica.pk).health_detail)
        server.shutdown()


@pytest.mark.loopback
def test_a_replica_that_fails_too_often_is_unhealthy(host: Host, watch: ReplicaWatch, serve: Serve) -> None:
    _, [replica] = running(host, serve(b"HTTP/1.1 500 Oh\r\n\r\n"), retries=2, start_seconds=1)
    polls_until(watch, lambda: Replica.objects.get(pk=replica.pk).health_detail != "")
    assert health_of(replica) == ReplicaHealth.STARTING
    Session.objects.update(started_at=clock.now() - timedelta(minutes=5))
    polls_until(watch, lambda: health_of(replica) == ReplicaHealth.UNHEALTHY)
    row = Replica.objects.get(pk=replica.pk)
    assert (row.failures, row.health_detail) == (2, "/health answered with status 500.")
    assert row.unhealthy_at is not None


@pytest.mark.loopback
def test_a_replica_that_hangs_holds_up_no_other(host: Host, watch: ReplicaWatch, serve: Serve) -> None:
    hangs, answers = serve(b"HTTP/1.1 "), serve(b"HTTP/1.1 200 OK\r\n\r\n")
    _, [slow] = running(host, hangs, timeout_seconds=int(SECONDS), interval_seconds=int(SECONDS))
    _, [quick] = running(host, answers)
    began = time.monotonic()
    polls_until(watch, lambda: health_of(quick) == ReplicaHealth.HEALTHY)
    assert time.monotonic() - began < SECONDS
    assert health_of(slow) == ReplicaHealth.STARTING


@pytest.mark.loopback
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: Session.objects.update(attempt=7), id="of an earlier start"),
        pytest.param(lambda: Replica.objects.update(draining_since=clock.now()), id="before it drained"),
    ],
)
def test_what_a_probe_found_too_late_is_dropped(
    host: Host, watch: ReplicaWatch, serve: Serve, change: Callable[[], int]
) -> None:
    _, [replica] = running(host, serve(b"HTTP/1.1 200 OK\r\n\r\n"), interval_seconds=300)
    watch.poll()
    change()
    until(lambda: all(each.problem.done() for each in watch._under_way.values()))
    watch.poll()
    assert health_of(replica) == ReplicaHealth.STARTING


@pytest.mark.loopback
def test_replicas_elsewhere_or_draining_are_not_probed(host: Host, watch: ReplicaWatch) -> None:
    _, [draining] = running(host, free_port())
    Replica.objects.filter(pk=draining.pk).update(draining_since=clock.now())
    running(make_host(), free_port())
    watch.poll()
    assert not watch._under_way


@pytest.mark.loopback
def test_a_start_is_probed_at_once_and_its_answer_stored(host: Host, watch: ReplicaWatch) -> None:
    port = free_port()
    _, [replica] = running(host, port)
    look_soon(0)  # another host's
    look_soon(host.pk)
    listener = socket.create_server(("127.0.0.1", port), backlog=128)
    with closing(listener):
        threading.Thread(target=answer_all, args=(listener,), daemon=True).start()
        until(lambda: Replica.objects.get(pk=replica.pk).health == ReplicaHealth.HEALTHY)


def answer_all(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            with listener.accept()[0] as connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.loopback
async def test_the_older_a_start_the_fewer_probes() -> None:
    counts = []
    for age in (0.0, 5.0, 100.0):
        attempts = 0

        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal attempts
            attempts += 1
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            target = ProbeTarget(address="127.0.0.1", port=port, path="/", timeout_seconds=1)
            assert await first_answer(target, age_seconds=age, seconds=0.5)
        counts.append(attempts)
    assert counts[0] > counts[1] > counts[2] == 1
