"""Requests beyond what Django can work on wait shortly, or are refused with 503; slow clients hold nothing."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from django.conf import settings
from django.db import OperationalError, connection
from django.test import Client

from gpuplatform.serving.admission.control import SLOTS, Admission
from gpuplatform.serving.admission.costs import RequestCosts
from gpuplatform.serving.unavailable import RETRY_SECONDS
from proxy.http.asgi import Application, Message, Receive, Scope, Send
from tests.factories import make_user
from tests.live import LiveServer, login_cookie, serving
from tests.wait import SECONDS, until

FORM: list[Message] = [{"type": "http.request", "body": b"a=1", "more_body": False}]


def scope(path: str = "/", client: str = "192.0.2.1", method: str = "GET") -> Scope:
    """Return the event of a request."""
    return {"type": "http", "method": method, "path": path, "headers": [], "client": (client, 40000)}


async def respond(_: Scope, receive: Receive, send: Send) -> None:
    """Answer 200 once the body was received."""
    assert (await receive())["body"] == b"a=1"
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"done"})


def receiver(messages: list[Message]) -> Receive:
    """Return a client that sends these messages, and then nothing."""
    left = list(messages)

    async def receive() -> Message:
        if left:
            return left.pop(0)
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    return receive


async def status_of(
    application: Application, path: str = "/", messages: list[Message] = FORM, client: str = "192.0.2.1"
) -> int:
    """Return the status with which a request is answered."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async with asyncio.timeout(SECONDS):
        await application(scope(path, client), receiver(messages), send)
    return int(sent[0]["status"])


def held(release: asyncio.Event) -> Application:
    """Return an application that answers once it is released."""

    async def application(event: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        await respond(event, receive, send)

    return application


@pytest.mark.parametrize(("long_seconds", "most"), [(0.0, 2), (SECONDS, 1)])
async def test_a_long_request_lets_its_clients_next_start(long_seconds: float, most: int) -> None:
    release, under_way = asyncio.Event(), asyncio.Semaphore(0)
    started = 0

    async def application(event: Scope, receive: Receive, send: Send) -> None:
        nonlocal started
        started += 1
        under_way.release()
        await held(release)(event, receive, send)

    admission = Admission(application, long_seconds=long_seconds)
    requests_made = [asyncio.create_task(status_of(admission)) for _ in range(2)]
    async with asyncio.timeout(SECONDS):
        for _ in range(most):
            await under_way.acquire()
    assert started == most
    release.set()
    assert await asyncio.gather(*requests_made) == [200, 200]


async def test_requests_wait_for_a_slot_and_no_longer_than_allowed() -> None:
    release = asyncio.Event()
    admission = Admission(held(release), slots=1, wait_seconds=0.01)
    first = asyncio.create_task(status_of(admission))
    await asyncio.sleep(0)
    assert await status_of(admission) == 503
    assert await status_of(admission, "/api/v1/me/") == 503
    release.set()
    assert await first == 200
    assert await status_of(admission) == 200


async def test_beyond_the_queue_requests_are_refused_at_once() -> None:
    release = asyncio.Event()
    admission = Admission(held(release), slots=1, queue=1, wait_seconds=SECONDS)
    waiting = [asyncio.create_task(status_of(admission)) for _ in range(3)]
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() for task in done} == {503}
    release.set()
    assert Counter(await asyncio.gather(*waiting)) == {200: 2, 503: 1}


async def test_bodies_of_requests_that_wait_are_bounded() -> None:
    release = asyncio.Event()
    admission = Admission(held(release), slots=1, queue_bytes=5, wait_seconds=SECONDS)
    waiting = [asyncio.create_task(status_of(admission)) for _ in range(3)]  # of three bytes each
    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    assert {task.result() for task in done} == {503}
    release.set()
    assert Counter(await asyncio.gather(*waiting)) == {200: 2, 503: 1}


async def test_what_would_wait_too_long_is_refused_at_once() -> None:
    release, used = asyncio.Event(), iter(range(0, 10**6, 10**4))  # seconds of CPU time
    release.set()
    costs = RequestCosts(cpu_time=lambda: float(next(used)))
    admission = Admission(held(release), slots=1, wait_seconds=2 * SECONDS, costs=costs)
    assert await status_of(admission) == 200
    release.clear()
    second = asyncio.create_task(status_of(admission))  # there is a slot, so that it does not wait
    await asyncio.sleep(0)
    assert await status_of(admission) == 503
    release.set()
    assert await second == 200


async def test_another_client_is_served_before_the_rest_of_a_flood() -> None:
    release, order = asyncio.Event(), list[str]()

    async def application(event: Scope, receive: Receive, send: Send) -> None:
        await release.wait()
        order.append(event["client"][0])
        await respond(event, receive, send)

    admission = Admission(application, slots=1, wait_seconds=SECONDS)
    clients = [*["192.0.2.1"] * 20, "192.0.2.2"]
    waiting = [asyncio.create_task(status_of(admission, client=client)) for client in clients]
    await asyncio.sleep(0)
    release.set()
    await asyncio.gather(*waiting)
    assert order.index("192.0.2.2") <= 2


async def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    release, sent = asyncio.Event(), []
    admission = Admission(held(release), slots=1, wait_seconds=SECONDS)
    first = asyncio.create_task(status_of(admission))
    await asyncio.sleep(0)

    async def send(message: Message) -> None:
        sent.append(message)

    await admission(scope(), receiver([*FORM, {"type": "http.disconnect"}]), send)
    release.set()
    assert await first == 200
    assert not sent


async def test_a_request_without_its_client_keeps_its_slot() -> None:
    release, begun = asyncio.Event(), asyncio.Event()
    ends: list[str] = []

    async def application(event: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await receive()
        left = asyncio.ensure_future(receive())  # as Django listens for it
        await asyncio.wait({left, asyncio.create_task(release.wait())}, return_when=asyncio.FIRST_COMPLETED)
        ends.append("left" if left.done() else "released")
        left.cancel()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"done"})

    async def send(message: Message) -> None:
        pass

    admission = Admission(application, slots=1, wait_seconds=0.01)
    gone = asyncio.create_task(admission(scope(), receiver([*FORM, {"type": "http.disconnect"}]), send))
    await begun.wait()
    assert await status_of(admission) == 503
    release.set()
    await gone
    assert ends == ["released"]


async def test_the_health_check_needs_no_slot() -> None:
    release = asyncio.Event()
    admission = Admission(held(release), slots=1, wait_seconds=0.01)
    first = asyncio.create_task(status_of(admission))
    await asyncio.sleep(0)
    health = asyncio.create_task(status_of(admission, "/healthz"))
    release.set()
    statuses = await asyncio.gather(first, health)
    assert Counter(statuses) == {200: 2}


@pytest.mark.parametrize("blocked", ["request", "response"])
async def test_a_slow_client_holds_no_slot(blocked: str) -> None:
    admission = Admission(respond, slots=1, wait_seconds=SECONDS)
    stuck = asyncio.Event()

    async def send(message: Message) -> None:
        stuck.set()
        await asyncio.Event().wait()

    async def receive() -> Message:
        stuck.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    slow_receive: Callable[[], object] = receive if blocked == "request" else receiver(FORM)
    slow = asyncio.create_task(admission(scope(), slow_receive, send))  # type: ignore[arg-type]  # ASGI's callables
    await stuck.wait()
    assert await status_of(admission) == 200
    slow.cancel()


async def test_a_client_that_leaves_early_takes_no_slot() -> None:
    async def application(event: Scope, receive: Receive, send: Send) -> None:
        pytest.fail("nobody waits for a response")

    async def send(message: Message) -> None:
        pytest.fail("nobody is there")

    left: list[Message] = [{"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"}]
    await Admission(application)(scope(), receiver(left), send)


async def test_clients_get_503_while_threads_wait_for_the_database() -> None:
    release, is_silent = asyncio.Event(), True
    admission = Admission(held(release), slots=2, probe_after_seconds=0.01, database_answers=lambda: not is_silent)
    statuses = await asyncio.gather(status_of(admission), status_of(admission, "/api/v1/me/"))
    assert Counter(statuses) == {503: 2}
    is_silent = False
    third = asyncio.create_task(status_of(admission))  # the slots are not free yet
    await asyncio.sleep(0)
    release.set()
    assert await third == 200


async def test_slow_requests_are_waited_for_while_the_database_answers() -> None:
    release, asked = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def answers() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return True

    slow = asyncio.create_task(status_of(Admission(held(release), probe_after_seconds=0.01, database_answers=answers)))
    await asked.wait()
    release.set()
    assert await slow == 200


@pytest.mark.loopback
@pytest.mark.django_db(transaction=True)
def test_overload_is_never_an_error(server: LiveServer) -> None:
    cookie = login_cookie(make_user(), server.url)

    def load(_: int) -> requests.Response:
        return requests.get(f"{server.url}/sessions/", cookies={cookie["name"]: cookie["value"]}, timeout=SECONDS)

    with ThreadPoolExecutor(8 * SLOTS) as clients:
        responses = list(clients.map(load, range(8 * SLOTS)))
    assert {response.status_code for response in responses} <= {200, 503}
    assert all("Retry-After" in response.headers for response in responses if response.status_code == 503)


@pytest.mark.loopback
@pytest.mark.django_db(transaction=True)
def test_the_health_check_names_a_database_that_is_away(tmp_path: Path) -> None:
    with serving(tmp_path / "web.log", DATABASE_URL="postgresql://postgres@127.0.0.1:1/nothing") as web:
        until(lambda: told(web)["redis"] == "ok")  # it is given a second and a half
        assert told(web)["database"] == "unreachable"


def told(web: LiveServer) -> dict[str, str]:
    """Return what the health check says, which is that something is away."""
    health = requests.get(f"{web.url}/healthz", timeout=SECONDS)
    assert health.status_code == 503
    said: dict[str, str] = health.json()
    return said


@pytest.mark.django_db
def test_pages_and_api_say_when_the_database_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(raise_request_exception=False)
    client.cookies[settings.SESSION_COOKIE_NAME] = "x" * 32

    def refuse(*_: object) -> None:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(connection, "cursor", refuse)
    page, api = client.get("/sessions/"), client.get("/api/v1/me/")
    assert (page.status_code, page["Retry-After"]) == (503, str(RETRY_SECONDS))
    assert "Your sessions keep running" in page.content.decode()
    assert (api.status_code, api.json()["detail"]) == (503, "The database does not answer at present.")
