"""A service at host names of its own, beside that of its label; the black-box table runs against one too."""

from urllib.parse import parse_qs, urlsplit

import pytest

from proxy.authorization.decisions import ForwardDecision
from proxy.authorization.signing import digest
from proxy.http.headers import RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Service
from proxy.tests.services import BEARER, running_service
from proxy.tests.site import BY_PORT, SECRET, FakeControlPlane, authorizer, cookie, grant, service
from proxy.tests.test_service_access import ask, header, serving, status
from proxy.tests.wire import connected, request

NAME = "models.example.org"
NAMED = service(hosts=(NAME, "second.example.org"))
BROWSER = {"Sec_Fetch_Mode": "navigate", "Accept": "text/html"}
TOKEN = {"Authorization": f"Bearer {SECRET}"}


def served(made: Service = NAMED, /, **headers: str) -> int:
    """Return the status of a request with a token, 200 if it is forwarded."""
    return status(ask(serving(made), **(TOKEN | headers)))


@pytest.mark.parametrize("host", [NAME, f"{NAME}:8000", f"{NAME}:443", "Models.EXAMPLE.org", "second.example.org"])
def test_a_name_is_matched_without_port_and_case(host: str) -> None:
    assert served(Host=host) == 200


@pytest.mark.parametrize(
    "host", [f"a.{NAME}", "example.org", f"{NAME}.", f"x{NAME}", "models.example", f"{NAME}:8000:1", f"{NAME}@x"]
)
def test_other_names_are_no_address_of_it(host: str) -> None:
    assert served(Host=host) in (400, 421)


def test_a_name_leads_to_nothing_once_removed() -> None:
    made = serving(NAMED)
    assert status(ask(made, Host=NAME, **TOKEN)) == 200
    made.table.replace_services([service(hosts=("second.example.org",))], deployment="d1")
    assert status(ask(made, Host=NAME, **TOKEN)) == 421
    assert status(ask(made, Host="second.example.org", **TOKEN)) == 200


def test_a_service_sees_the_name_that_was_asked_for() -> None:
    decision = ask(serving(NAMED), Host=f"{NAME}:8000", **TOKEN)
    assert isinstance(decision, ForwardDecision)
    headers = dict(decision.headers)
    assert (headers[b"Host"], headers[b"X-Forwarded-Host"]) == (b"models.example.org:8000",) * 2


def test_a_login_leads_back_to_the_name() -> None:
    decision = ask(serving(NAMED), Host=f"{NAME}:8000", **BROWSER)
    asked = parse_qs(urlsplit(header(decision, "Location")[0]).query)
    assert (status(decision), asked["h"], asked["at"]) == (303, ["chat--d1"], [NAME])
    (told,) = header(ask(serving(NAMED), Host=f"{NAME}:8000"), "X-GP-Login")
    assert told == f"http://{NAME}:8000/"


async def test_a_ticket_is_exchanged_at_the_name() -> None:
    control_plane, nonce = FakeControlPlane(), "n" * 43
    made = authorizer(control_plane=control_plane)
    made.table.replace_services([NAMED])
    control_plane.tickets["t1", "chat--d1", digest(nonce)] = grant(label="chat--d1"), "/page"
    head = [(b"Host", NAME.encode()), (b"Cookie", f"gp_app_state={nonce}".encode())]
    deferred = made.authorize(RequestHead(b"GET", b"/.gp/callback?t=t1", head), "10.0.0.1")
    assert not isinstance(deferred, ForwardDecision | LocalResponse)
    reply = await made.serve(deferred)
    cookies = header(reply, "Set-Cookie")
    assert header(reply, "Location") == ["/page"]
    assert not any("Domain" in each for each in cookies)
    assert status(ask(made, Host=NAME, Cookie=cookies[0].partition(";")[0])) == 200


def test_a_page_at_the_name_is_no_foreign_one() -> None:
    own, foreign = f"http://{NAME}:8000", "http://chat--d1.apps.localhost:8000"
    cookies = {"Host": f"{NAME}:8000", "Cookie": cookie(label="chat--d1")}
    assert status(ask(serving(NAMED), "POST", Origin=own, **cookies)) == 200
    assert status(ask(serving(NAMED), "POST", Origin=foreign, **cookies)) in (401, 403)


def test_names_work_where_apps_have_ports() -> None:
    made = authorizer(site=BY_PORT)
    made.table.replace_services([NAMED])
    assert status(ask(made, Host=NAME, **TOKEN)) == 200
    assert status(ask(made, Host=NAME, Cookie=cookie(label="chat--d1"))) == 200


@pytest.mark.loopback
async def test_a_removed_name_ends_what_came_by_it() -> None:
    async with (
        running_service(1, hosts=(NAME,)) as running,
        connected(running.port) as by_name,
        connected(running.port) as by_label,
        connected(running.port) as idle,
    ):
        assert (await idle.ask(request("GET", "/echo", b"", NAME, **BEARER))).status == 200
        for client, host in ((by_name, NAME), (by_label, "chat--d1.apps.localhost:8000")):
            await client.send(request("GET", "/events", b"", host, **BEARER))
            assert (await client.head()).status == 200
        running.change(hosts=())
        await by_name.until_closed()
        assert (await idle.ask(request("GET", "/echo", b"", NAME, **BEARER))).status == 421
        assert (await by_label.reader.readline()).strip() == b"9"
