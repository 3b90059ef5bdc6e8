"""Requests for a service whose replicas are several apps: which replica gets one, and what if that fails."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from proxy.budgets import TokenUse
from proxy.counters import CounterMemory, SharedCounters
from proxy.limits import GATEWAY_LIMITS, ProxyLimits
from proxy.tests.black_box import seen, seen_headers
from proxy.tests.services import HOST, RunningService, call, running_service
from proxy.tests.site import SECRET, cookie, token
from proxy.tests.test_counters import Counting
from proxy.tests.wire import TEXT, Client, Reply, connected, handshake, masked, request

pytestmark = pytest.mark.loopback

LAST = 0x80
BROWSER = {"Sec_Fetch_Mode": "navigate", "Accept": "text/html"}


async def ask(running: RunningService, data: bytes) -> Reply:
    """Return the response to one request over a connection of its own."""
    async with connected(running.port) as client:
        return await client.ask(data)


async def thinking(stack: AsyncExitStack, running: RunningService) -> Client:
    """Return a client whose request is under way at a replica, which will not answer it."""
    client = await stack.enter_async_context(connected(running.port))
    before = sum(running.served())
    await client.send(call("GET", "/think"))
    await running.until(lambda: sum(running.served()) > before)
    return client


def problem(reply: Reply) -> tuple[int, str, bool]:
    """Return the status and title of a refusal, and whether it says when to come again."""
    return reply.status, json.loads(reply.body)["title"], bool(reply.all("retry-after"))


async def test_requests_take_turns_on_one_connection() -> None:
    async with running_service(3) as running, connected(running.port) as client:
        for _ in range(9):
            assert (await client.ask(call())).status == 200
        assert running.served() == [3, 3, 3]


async def test_the_replica_with_fewest_outstanding_requests_is_chosen() -> None:
    async with running_service(2) as running, AsyncExitStack() as stack:
        await thinking(stack, running)
        busy = running.served().index(1)
        for _ in range(4):
            assert (await ask(running, call())).status == 200
        assert running.served()[busy] == 1
        assert sum(running.served()) == 5


async def test_the_token_reaches_no_replica() -> None:
    async with running_service(1) as running:
        for headers in ({}, {"Authorization": "Basic eA==", "X_Api_Key": SECRET}):
            headers_seen = seen_headers(await ask(running, call("GET", "/echo", **headers)))
            assert SECRET not in str(headers_seen)
        assert ("authorization", "Basic eA==") in headers_seen


@pytest.mark.parametrize("is_far", [False, True])
async def test_an_unreachable_replica_is_passed_over(*, is_far: bool) -> None:
    body = b"x" * 1000
    async with running_service(2, is_far=is_far) as running:
        if is_far:
            await stop_listening(running)
        else:
            running.change_replica(1, port=1)
        for _ in range(4):
            reply = await ask(running, call("POST", "/echo", body))
            assert seen(reply)["size"] == len(body)
        assert running.served() == [0, 4]


async def stop_listening(running: RunningService) -> None:
    """Have the gateway find nothing at the first replica."""
    running.change_replica(1, label="serve--unknown")


@pytest.mark.parametrize("is_far", [False, True])
async def test_a_service_that_cannot_be_reached_says_503(*, is_far: bool) -> None:
    async with running_service(2, is_far=is_far) as running:
        for number in (1, 2):
            changes = {"label": f"serve--unknown{number}"} if is_far else {"port": 1}
            running.change_replica(number, **changes)
        assert problem(await ask(running, call("POST"))) == (503, "The replica could not be reached", True)


@pytest.mark.parametrize("is_far", [False, True])
@pytest.mark.parametrize(
    ("method", "body", "tries"), [("GET", b"", 2), ("HEAD", b"", 2), ("POST", b"", 1), ("GET", b"x", 1)]
)
async def test_only_what_does_no_harm_twice_is_sent_twice(
    method: str, body: bytes, tries: int, *, is_far: bool
) -> None:
    async with running_service(2, is_far=is_far) as running:
        async with connected(running.port) as client:
            reply = await client.ask(call(method, "/hangs-up", body), has_body=method != "HEAD")
        assert (reply.status, len(reply.all("retry-after"))) == (503, 1)
        assert sorted(running.served()) == ([1, 1] if tries == 2 else [0, 1])


async def test_an_idle_connection_that_ended_is_no_failure() -> None:
    async with running_service(1) as running, connected(running.port) as client:
        assert (await client.ask(call("GET", "/once"))).body == b"ok"
        assert (await client.ask(call("GET", "/echo"))).status == 200
        running.plane._sweep()
        assert [each.errors for each in running.control_plane.figures] == [0]


async def test_a_response_that_has_begun_is_not_repeated() -> None:
    async with running_service(2) as running, connected(running.port) as client:
        await client.send(call("GET", "/dies"))
        assert (await client.head()).status == 200
        assert await client.ended() == b"0123456789"
        assert sorted(running.served()) == [0, 1]


async def test_requests_wait_in_line_for_a_busy_replica() -> None:
    async with running_service(1, concurrency=1, queue=2) as running, AsyncExitStack() as stack:
        first = await thinking(stack, running)
        waiting = [await stack.enter_async_context(connected(running.port)) for _ in range(2)]
        for number, client in enumerate(waiting):
            await client.send(call("GET", f"/echo/{number}"))
            await running.until(lambda number=number: waiting_in(running) == number + 1)  # type: ignore[misc]
        assert problem(await ask(running, call())) == (429, "All replicas are busy", True)
        assert running.served() == [1]
        first.reset()
        for client in waiting:
            reply = await client.head()
            reply.body = await client.body(reply)
            assert reply.status == 200
        assert [line.split()[1] for line in running.apps[0].requests] == ["/think", "/echo/0", "/echo/1"]


def waiting_in(running: RunningService) -> int:
    """Return how many requests wait in line."""
    return sum(len(balancer._line) for balancer in running.plane._balancers._balancers.values())


@pytest.mark.parametrize("length", ["0", "5"])
async def test_a_client_that_leaves_frees_its_place(length: str) -> None:
    async with running_service(1, concurrency=1, queue=1) as running, AsyncExitStack() as stack:
        await thinking(stack, running)
        gone = await stack.enter_async_context(connected(running.port))
        await gone.send(call("POST", "/echo", Content_Length=length))
        await running.until(lambda: waiting_in(running) == 1)
        gone.reset()
        await running.until(lambda: waiting_in(running) == 0)


async def test_a_request_waits_no_longer_than_it_may() -> None:
    limits = ProxyLimits(queue_seconds=0.05)
    async with running_service(1, limits=limits, concurrency=1) as running, AsyncExitStack() as stack:
        await thinking(stack, running)
        assert problem(await ask(running, call())) == (503, "All replicas are busy", True)
        assert waiting_in(running) == 0


async def test_another_process_frees_a_place() -> None:
    memory = CounterMemory(2)
    async with running_service(1, counters=SharedCounters(memory), concurrency=1) as running:
        other = Counting(memory)
        other("add", "replica chat--d1 r1")
        async with connected(running.port) as client:
            await client.send(call())
            await running.until(lambda: waiting_in(running) == 1)
            other("remove", "replica chat--d1 r1")
            assert (await client.head()).status == 200
        other.kill()


async def test_a_large_body_goes_on_once_its_turn_has_come() -> None:
    memory, large = CounterMemory(2), b"b" * 2**20
    async with running_service(1, counters=SharedCounters(memory), concurrency=1) as running:
        assert (await ask(running, call())).status == 200  # leaves an idle connection
        other = Counting(memory)
        other("add", "replica chat--d1 r1")
        async with connected(running.port) as client:
            sending = asyncio.create_task(client.send(call("POST", "/echo", large)))
            await running.until(lambda: any(not each.is_reading for each in running.plane.connections))  # type: ignore[attr-defined]
            other("remove", "replica chat--d1 r1")
            assert (await client.head()).status == 200
            await sending
        other.kill()


async def test_a_new_replica_serves_those_that_wait() -> None:
    async with running_service(2, concurrency=1) as running, AsyncExitStack() as stack:
        running.change_replica(2, takes_requests=False)
        await thinking(stack, running)
        client = await stack.enter_async_context(connected(running.port))
        await client.send(call())
        await running.until(lambda: waiting_in(running) == 1)
        running.change_replica(2, takes_requests=True)
        assert (await client.head()).status == 200


async def test_a_draining_replica_finishes_what_it_has() -> None:
    async with running_service(2) as running, AsyncExitStack() as stack:
        stream, socket, kept = [await stack.enter_async_context(connected(running.port)) for _ in range(3)]
        await stream.send(call("GET", "/events"))
        assert (await stream.head()).status == 200
        await socket.send(handshake("/ws", HOST, **{"Authorization": f"Bearer {SECRET}"}))
        assert (await socket.head()).status == 101
        for number in (1, 2):
            running.change_replica(number, takes_requests=False)
        assert (await kept.ask(call())).status == 503
        running.change_replica(1, takes_requests=True)
        assert (await kept.ask(call())).status == 200
        await socket.send(masked(TEXT, b"on"))
        assert await socket.frame() == (LAST | TEXT, b"on")
        events = []
        async for chunk in stream.chunks():
            events.append(chunk)
            for app in running.apps:
                await app.take_event()
        assert len(events) == 4


async def test_a_replica_that_is_gone_ends_its_streams() -> None:
    async with running_service(2) as running, connected(running.port) as client:
        await client.send(call("GET", "/events"))
        assert (await client.head()).status == 200
        running.remove(running.served().index(1) + 1)
        await client.ended()


async def test_a_cookie_leads_to_the_same_replica() -> None:
    async with running_service(3, sticky="cookie") as running:
        first = await ask(running, call("GET", "/cookies"))
        *others, named = first.all("set-cookie")
        value, attributes = named.split(";", 1)
        assert (value.split("=")[0], attributes) == ("gp_replica", " Path=/; HttpOnly; SameSite=Lax")
        assert "r1" not in value
        assert others == ["a=1; Expires=Wed, 21 Oct 2099 07:28:00 GMT", "b=2", "c=3"]
        number = running.served().index(1) + 1
        for _ in range(4):
            reply = await ask(running, call("GET", "/echo", Cookie=f"own=1; {value}"))
            assert ("cookie", "own=1") in seen_headers(reply)
            assert reply.all("set-cookie") == []
        assert running.served()[number - 1] == 5
        running.change_replica(number, takes_requests=False)
        moved = await ask(running, call("GET", "/echo", Cookie=value))
        assert moved.all("set-cookie") != [named]
        assert running.served()[number - 1] == 5


async def test_a_header_leads_to_the_same_replica() -> None:
    async with running_service(4, sticky="x-user") as running:
        keys = [f"user {number}" for number in range(16)]
        where = {key: await place(running, key) for key in keys}
        assert len(set(where.values())) == 4
        assert {key: await place(running, key) for key in keys} == where
        running.change_replica(1, takes_requests=False)
        after = {key: await place(running, key) for key in keys}
        assert {key for key in keys if where[key] != after[key]} == {key for key in keys if where[key] == 0}


async def place(running: RunningService, key: str) -> int:
    """Return the index of the replica that a key leads to."""
    before = running.served()
    assert (await ask(running, call("GET", "/echo", X_User=key))).status == 200
    return next(index for index, number in enumerate(running.served()) if number > before[index])


async def test_a_full_replica_is_waited_for_by_its_own() -> None:
    async with running_service(2, sticky="x-user", concurrency=1) as running, AsyncExitStack() as stack:
        there = await place(running, "a")
        places = {key: await place(running, key) for key in "bcdefgh"}
        elsewhere = next(key for key, index in places.items() if index != there)
        busy, waiting = [await stack.enter_async_context(connected(running.port)) for _ in range(2)]
        await busy.send(call("GET", "/think", X_User="a"))
        await running.until(lambda: "GET /think HTTP/1.1" in running.apps[there].requests)
        await waiting.send(call("GET", "/echo", X_User="a"))
        await running.until(lambda: waiting_in(running) == 1)
        assert (await ask(running, call("GET", "/echo", X_User=elsewhere))).status == 200
        busy.reset()
        assert (await waiting.head()).status == 200


async def test_without_replica_browsers_wait_and_programs_are_told() -> None:
    async with running_service(1) as running:
        running.change_replica(1, takes_requests=False)
        program = await ask(running, call())
        assert (program.status, json.loads(program.body)["state"], program.all("retry-after")) == (
            503,
            "starting",
            ["3"],
        )
        who = {"Cookie": cookie(label="chat--d1")}
        browser = await ask(running, request("GET", "/", b"", HOST, **BROWSER, **who))
        assert (browser.status, b"/.gp/status?look" in browser.body) == (202, True)
        status = await ask(running, request("GET", "/.gp/status", b"", HOST, **who))
        assert json.loads(status.body)["state"] == "starting"
        running.change_replica(1, takes_requests=True)
        status = await ask(running, request("GET", "/.gp/status", b"", HOST, **who))
        assert json.loads(status.body)["state"] == "ready"


@pytest.mark.parametrize("how", ["revoked", "expired", "service gone"])
async def test_a_token_that_ends_aborts_its_requests(how: str) -> None:
    async with running_service(1) as running, AsyncExitStack() as stack:
        running.change(tokens=(token(expires_at=4e9),), concurrency=1)
        client = await thinking(stack, running)
        waiting = await stack.enter_async_context(connected(running.port))
        await waiting.send(call())
        await running.until(lambda: waiting_in(running) == 1)
        if how == "revoked":
            running.change(tokens=())
        elif how == "expired":
            running.change(tokens=(token(expires_at=1.0),))
        else:
            running.table.replace_services([])
        assert (await client.ended(), await waiting.ended()) == (b"", b"")
        await running.apps[0].until(lambda: running.apps[0].connections == 0)
        assert (await ask(running, call())).status == (410 if how == "service gone" else 401)


async def test_a_token_has_a_rate() -> None:
    async with running_service(1, tokens=(token(rate=2),)) as running:
        replies = [await ask(running, call()) for _ in range(3)]
        assert [reply.status for reply in replies] == [200, 200, 429]
        assert 1 <= int(replies[2].all("retry-after")[0]) <= 60


async def test_what_was_served_is_told_by_replica() -> None:
    async with running_service(1, queue=0, concurrency=1) as running, AsyncExitStack() as stack:
        for _ in range(2):
            await ask(running, call())
        await ask(running, call("POST", "/hangs-up"))
        client = await thinking(stack, running)
        assert (await ask(running, call())).status == 429
        running.plane._sweep()
        (replica, refused) = running.control_plane.figures
        assert (replica.deployment, replica.session, replica.outstanding) == ("d1", "r1", 1)
        assert (replica.requests, replica.errors, replica.rejected, sum(replica.durations)) == (3, 1, 0, 3)
        assert replica.sent_bytes > 100
        assert (refused.session, refused.requests, refused.rejected) == ("", 0, 2)
        assert running.control_plane.uses == {1: TokenUse(requests=3)}  # the one under way, and two that were answered
        running.control_plane.figures.clear()
        client.reset()
        await running.apps[0].until(lambda: running.apps[0].connections == 0)
        running.plane._sweep()
        assert [(each.session, each.outstanding) for each in running.control_plane.figures] == [("r1", 0)]
        running.plane._sweep()
        assert len(running.control_plane.figures) == 1


async def test_a_websocket_counts_until_its_end() -> None:
    async with running_service(2) as running, connected(running.port) as socket:
        await socket.send(handshake("/ws", HOST, **{"Authorization": f"Bearer {SECRET}"}))
        assert (await socket.head()).status == 101
        busy = running.served().index(1)
        for _ in range(3):
            assert (await ask(running, call())).status == 200
        assert running.served()[busy] == 1
        socket.reset()
        await running.apps[busy].until(lambda: running.apps[busy].connections == 0)
        await running.until(lambda: not running.plane.connections)
        for _ in range(4):
            assert (await ask(running, call())).status == 200
        assert running.served()[busy] == 3


async def test_an_address_outside_the_subnets_is_not_reached() -> None:
    async with running_service(1) as running:
        running.change_replica(1, address="10.9.8.7")
        assert (await ask(running, call())).status == 503


async def test_many_requests_at_once_keep_to_the_limit() -> None:
    async with running_service(2, concurrency=2, queue=100) as running:
        replies = await asyncio.gather(*(ask(running, call("POST", "/echo", b"x")) for _ in range(40)))
        assert {reply.status for reply in replies} == {200}
        assert max(app.accepted for app in running.apps) <= 2


async def test_a_body_that_stops_coming_frees_the_replica() -> None:
    limits = ProxyLimits(body_seconds=0.05)
    async with running_service(1, limits=limits, concurrency=1, queue=0) as running, connected(running.port) as client:
        await client.send(call("POST", "/echo", Content_Length="5") + b"x")
        assert (await client.head()).status == 408
        assert (await ask(running, call())).status == 200


@pytest.mark.parametrize("is_far", [False, True])
async def test_a_replica_that_speaks_no_http_is_502(*, is_far: bool) -> None:
    async with running_service(2, is_far=is_far) as running, connected(running.port) as client:
        reply = await client.ask(call("GET", "/nonsense"))
        assert problem(reply) == (502, "The replica did not answer properly", False)
        assert sum(running.served()) == 1
        assert (await client.ask(call())).status == 200
        running.plane._sweep()
        assert sum(each.errors for each in running.control_plane.figures) == 1


@pytest.mark.parametrize("is_far", [False, True])
async def test_a_replica_that_hangs_is_504(*, is_far: bool) -> None:
    short = ProxyLimits(response_seconds=0.05)
    near, far = (ProxyLimits(), short) if is_far else (short, GATEWAY_LIMITS)
    service = running_service(1, is_far=is_far, limits=near, gateway_limits=far)
    async with service as running, connected(running.port) as client:
        assert problem(await client.ask(call("GET", "/think"))) == (504, "The replica does not answer", False)
        assert (await client.ask(call())).status == 200
        running.plane._sweep()
        served = [each for each in running.control_plane.figures if each.requests]
        assert (sum(each.requests for each in served), sum(each.errors for each in served)) == (2, 1)
