"""Apps that have a route and cannot be used: what browsers and programs get, and what the host is asked."""

import json
from base64 import b64encode
from hashlib import sha256

import pytest

from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.login_flow import LOOK_SECONDS, ReservedRequest
from proxy.authorization.unready_apps import explanation, unreachable
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import AppCondition, ConnectionFilter, Route, RouteTable
from proxy.tests.black_box import log_in
from proxy.tests.servers import WAYS, running
from proxy.tests.site import HOST, FakeControlPlane, authorizer, cookie, route
from proxy.tests.wire import connected, request

DETAIL = "It listens on 127.0.0.1: take --host 0.0.0.0."
OUTPUT = "no module <named> x"
STATES = ["loopback", "exited", "failed"]


def unready(state: str, **changes: object) -> Route:
    return route(is_ready=False, condition=AppCondition(state, "Web", DETAIL, OUTPUT), **changes)


async def ask(
    authorizer_: BrowserAuthorizer, path: bytes = b"/", presented: str = "", *, is_page: bool = False
) -> LocalResponse:
    mode = b"navigate" if is_page else b"cors"
    headers = [(b"Host", HOST.encode()), (b"Cookie", presented.encode()), (b"Sec-Fetch-Mode", mode)]
    decision = authorizer_.authorize(RequestHead(b"GET", path, headers), "10.0.0.9")
    if isinstance(decision, ReservedRequest):
        return await authorizer_.serve(decision)
    assert isinstance(decision, LocalResponse)
    return decision


async def test_while_it_starts_pages_wait_and_programs_retry() -> None:
    authorizer_ = authorizer(unready("starting"))
    page, told = await ask(authorizer_, b"/lab", cookie(), is_page=True), await ask(authorizer_, b"/lab", cookie())
    assert (page.status, dict(page.headers)[b"Retry-After"]) == (202, b"3")
    assert b"Waiting for Web" in page.body
    assert (told.status, dict(told.headers)[b"Retry-After"]) == (503, b"3")
    assert dict(told.headers)[b"Content-Type"] == b"application/problem+json"
    assert json.loads(told.body) == {
        "status": 503,
        "state": "starting",
        "title": "Waiting for Web",
        "detail": DETAIL,
        "output": OUTPUT,
    }


@pytest.mark.loopback
async def test_requests_under_way_outlive_that_an_app_is_unready() -> None:
    async with running("direct") as proxy, connected(proxy.port) as busy, connected(proxy.port) as other:
        await busy.send(request("GET", "/events", **log_in()))
        streamed = await busy.head()
        proxy.change(is_ready=False)
        assert (await other.ask(request("GET", "/", **log_in()))).status == 502
        for _ in range(4):
            await proxy.app.take_event()
        assert (await busy.body(streamed)).startswith(b"data: 0")


@pytest.mark.parametrize("state", STATES)
async def test_what_waiting_does_not_mend_is_a_bad_gateway(state: str) -> None:
    authorizer_ = authorizer(unready(state))
    page, told = await ask(authorizer_, b"/", cookie(), is_page=True), await ask(authorizer_, b"/", cookie())
    assert (page.status, told.status, json.loads(told.body)["state"]) == (502, 502, state)
    assert b"Retry-After" not in dict(page.headers)
    assert b"no module &lt;named&gt; x" in page.body


async def test_the_page_may_run_its_own_script_alone() -> None:
    page = await ask(authorizer(unready("starting")), b"/", cookie(), is_page=True)
    script = page.body.partition(b'<script type="module">')[2].partition(b"</script>")[0]
    policies = [value for name, value in page.headers if name == b"Content-Security-Policy"]
    assert len(policies) == 1
    assert b"script-src 'sha256-%b'" % b64encode(sha256(script).digest()) in policies[0]


@pytest.mark.parametrize(("presented", "is_public"), [(cookie(user=8), False), ("", True)], ids=["guest", "public"])
async def test_output_and_detail_are_for_the_owner_alone(presented: str, is_public: bool) -> None:
    authorizer_ = authorizer(unready("exited", is_public=is_public))
    for path in (b"/", b"/.gp/status"):
        told = await ask(authorizer_, path, presented)
        assert b"exited" in told.body
        assert DETAIL.encode() not in told.body
        assert b"output" not in told.body


@pytest.mark.parametrize("state", ["starting", *STATES])
async def test_strangers_learn_nothing_of_it(state: str) -> None:
    authorizer_ = authorizer(unready(state))
    assert ((await ask(authorizer_, b"/", is_page=True)).status, (await ask(authorizer_)).status) == (303, 401)


async def test_a_thousand_looks_are_one_in_five_seconds() -> None:
    control_plane, clock = FakeControlPlane(), [1000.0]
    issued = cookie(issued_at=1.0, expires_at=10_000.0)
    authorizer_ = authorizer(route(), route(label="b--s1"), control_plane=control_plane, now=lambda: clock[0])
    for _ in range(1000):
        assert (await ask(authorizer_, b"/.gp/status?look", issued)).status == 200
    assert control_plane.looks == ["echo--s1"]
    clock[0] += LOOK_SECONDS
    await ask(authorizer_, b"/.gp/status?look", issued)
    await ask(authorizer_, b"/.gp/status", issued)
    assert control_plane.looks == ["echo--s1", "echo--s1"]


@pytest.mark.parametrize("state", ["starting", "failed"])
async def test_the_host_looks_at_ready_apps_alone(state: str) -> None:
    control_plane = FakeControlPlane()
    authorizer_ = authorizer(unready(state), control_plane=control_plane)
    await ask(authorizer_, b"/.gp/status?look", cookie())
    assert control_plane.looks == []


@pytest.mark.loopback
@pytest.mark.parametrize("way", WAYS)
async def test_a_refused_connection_has_a_page_that_asks_why(way: str) -> None:
    async with running(way, port=1) as proxy, connected(proxy.port) as client:
        page = await client.ask(request("GET", "/lab", Sec_Fetch_Mode="navigate", **log_in()))
        assert (page.status, b'data-state="unreachable"' in page.body) == (502, True)
    async with running(way, port=1) as proxy, connected(proxy.port) as client:
        told = await client.ask(request("GET", "/lab", **log_in()))
        assert (told.status, json.loads(told.body)["state"]) == (502, "unreachable")


@pytest.mark.loopback
async def test_a_refused_connection_says_what_the_host_found() -> None:
    found = AppCondition("exited", "Web", "Web has ended with exit code 3.", OUTPUT)
    async with running("direct", port=1, condition=found) as proxy, connected(proxy.port) as client:
        told = await client.ask(request("GET", "/lab", **log_in()))
    assert json.loads(told.body)["detail"] == "Web has ended with exit code 3."


def test_what_the_host_finds_cuts_no_connection() -> None:
    table = RouteTable()
    cut: list[ConnectionFilter] = []
    table.replace([route()])
    table.on_revocation(cut.append)
    table.replace([route(condition=AppCondition("exited"))])
    table.replace([unready("starting")])
    assert (cut, [each.is_ready for each in table]) == ([], [False])


@pytest.mark.parametrize(
    ("state", "title", "detail"),
    [
        ("starting", "Waiting for {}", "It does not answer yet."),
        ("loopback", "{} listens on 127.0.0.1 only", "Nothing outside of its session reaches it there."),
        ("exited", "{} has ended", "Its program in the session has come to an end."),
        ("failed", "{} did not start", "Its owner can open it again."),
        ("unreachable", "{} is not running", "Nothing listens on its port in the session."),
        ("new", "{}", ""),
    ],
)
def test_each_state_has_its_words(state: str, title: str, detail: str) -> None:
    for name in ("Web", ""):
        shown = explanation(AppCondition(state, name), is_owner=True)
        assert shown == {"state": state, "title": title.format(name or "The app"), "detail": detail, "output": ""}


@pytest.mark.parametrize(
    ("found", "state"), [(None, "unreachable"), (route(), "unreachable"), (unready("exited"), "exited")]
)
def test_what_refuses_connections_says_what_is_known(found: Route | None, state: str) -> None:
    told = unreachable(found, is_owner=False, is_page=False)
    assert (json.loads(told.body)["state"], told.closes) == (state, True)
