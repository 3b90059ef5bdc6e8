"""Who gets to a service: tokens, cookies and everybody, without a server."""

import time

import pytest

from proxy.authorization.authorizer import BrowserAuthorizer
from proxy.authorization.decisions import Decision, ForwardDecision, ServicePrincipal
from proxy.authorization.login_flow import ReservedRequest
from proxy.http.headers import Header, RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Service
from proxy.tests.site import BY_PORT, LOGIN, SECRET, SITE, authorizer, cookie, replica, route, service, token

HOST = "chat--d1.apps.localhost:8000"
PEER = "192.0.2.1"
BEARER = f"Bearer {SECRET}"
OTHER_SECRET = f"gpd_{'o' * 43}"


def serving(*services: Service, **options: object) -> BrowserAuthorizer:
    """Return an authorizer with these services, or `chat--d1` alone."""
    made = authorizer(route(), replica(1).route, replica(2).route, **options)
    made.table.replace_services(services or [service()])
    return made


def ask(made: BrowserAuthorizer, method: str = "GET", target: str = "/v1/models", /, **headers: str) -> Decision:
    """Authorize a request for the service; underscores in names of headers stand for dashes."""
    return ask_with(made, [(name.replace("_", "-"), value) for name, value in headers.items()], method, target)


def ask_with(
    made: BrowserAuthorizer,
    headers: list[tuple[str, str]],
    method: str = "GET",
    target: str = "/v1/models",
    port: int | None = None,
) -> Decision:
    """Authorize a request with these headers."""
    named = headers if any(name == "Host" for name, _ in headers) else [("Host", HOST), *headers]
    pairs: list[Header] = [(name.encode(), value.encode()) for name, value in named]
    return made.authorize(RequestHead(method.encode(), target.encode(), pairs), PEER, port)


def status(decision: Decision) -> int:
    """Return the status of a response, 200 for a request that is forwarded."""
    return decision.status if isinstance(decision, LocalResponse) else 200


def principal(decision: Decision) -> ServicePrincipal:
    """Return who sends a request that is forwarded."""
    assert isinstance(decision, ForwardDecision), decision
    assert isinstance(decision.principal, ServicePrincipal)
    return decision.principal


def sent(decision: Decision) -> list[tuple[str, str]]:
    """Return the headers that reach the replica."""
    assert isinstance(decision, ForwardDecision), decision
    return [(name.decode().lower(), value.decode()) for name, value in decision.headers]


def header(decision: Decision, name: str) -> list[str]:
    """Return the values of a header of a response."""
    assert isinstance(decision, LocalResponse)
    return [value.decode() for key, value in decision.headers if key.decode() == name]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": BEARER},
        {"Authorization": f"bearer   {SECRET}"},
        {"X_Api_Key": SECRET},
        {"Authorization": BEARER, "x_api_key": SECRET},
    ],
)
def test_a_token_opens_its_service_and_is_removed(headers: dict[str, str]) -> None:
    decision = ask(serving(), "POST", "/v1/chat", Accept="*/*", **headers)
    who = principal(decision)
    assert (who.login, who.user, who.token, who.is_owner) == ("token 1", 0, token(), False)
    assert sent(decision) == [
        ("host", HOST),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", HOST),
        ("accept", "*/*"),
        ("x-forwarded-for", PEER),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {OTHER_SECRET}"},
        {"X_Api_Key": OTHER_SECRET},
        {"Authorization": f"Bearer {SECRET}x"},
        {"Authorization": f"Bearer {OTHER_SECRET}", "Cookie": cookie(label="chat--d1")},
    ],
)
@pytest.mark.parametrize("is_public", [False, True])
def test_an_unknown_token_is_refused(headers: dict[str, str], *, is_public: bool) -> None:
    other = service(label="other--d2", deployment="d2", tokens=(token(2, OTHER_SECRET),))
    decision = ask(serving(service(is_public=is_public), other), **headers)
    assert (status(decision), header(decision, "WWW-Authenticate")) == (401, ['Bearer error="invalid_token"'])


def test_a_program_without_token_is_told_how() -> None:
    decision = ask(serving(), Authorization="Basic eA==")
    assert (status(decision), header(decision, "WWW-Authenticate")) == (401, ["Bearer"])


def test_two_tokens_are_refused() -> None:
    assert status(ask(serving(), Authorization=BEARER, X_Api_Key=OTHER_SECRET)) == 400
    assert status(ask_with(serving(), [("X-Api-Key", SECRET), ("X-Api-Key", OTHER_SECRET)])) == 400
    assert status(ask_with(serving(), [("X-Api-Key", "of the app"), ("x-api-key", SECRET)])) == 400
    assert status(ask_with(serving(), [("Authorization", BEARER), ("Authorization", BEARER)])) == 400


def test_a_token_expires_and_is_revoked() -> None:
    clock = [1000.0]
    made = serving(service(tokens=(token(expires_at=1010.0),)), now=lambda: clock[0])
    assert status(ask(made, Authorization=BEARER)) == 200
    clock[0] = 1010.0
    assert status(ask(made, Authorization=BEARER)) == 401
    made.table.replace_services([service(tokens=(token(),))])
    assert status(ask(made, Authorization=BEARER)) == 200
    made.table.replace_services([service(tokens=())])
    assert status(ask(made, Authorization=BEARER)) == 401


@pytest.mark.parametrize("authorization", ["Bearer of-the-app", "Basic eA==", "gpd_without-scheme"])
def test_credentials_of_the_app_itself_are_forwarded(authorization: str) -> None:
    decision = ask(serving(service(is_public=True)), Authorization=authorization, X_Api_Key="of-the-app")
    assert ("authorization", authorization) in sent(decision)
    assert ("x-api-key", "of-the-app") in sent(decision)


def test_a_token_of_the_platforms_api_is_not_forwarded() -> None:
    assert "authorization" not in dict(sent(ask(serving(service(is_public=True)), Authorization="Token abc")))


def test_everybody_gets_to_a_public_service() -> None:
    who = principal(ask(serving(service(is_public=True))))
    assert (who.login, who.user, who.token) == ("", 0, None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [({}, 200), ({"epoch": 2}, 401), ({"label": "echo--s1"}, 401), ({"expires_at": time.time() - 1}, 401)],
)
def test_a_browser_comes_by_cookie(changes: dict[str, object], expected: int) -> None:
    presented = f"own=1; {cookie(**({'label': 'chat--d1'} | changes))}"
    decision = ask(serving(), Cookie=presented)
    assert status(decision) == expected
    if expected == 200:
        assert principal(decision).is_owner
        assert ("cookie", "own=1") in sent(decision)


def test_a_services_cookie_opens_no_app() -> None:
    decision = ask_with(serving(), [("Host", "echo--s1.apps.localhost:8000"), ("Cookie", cookie(label="chat--d1"))])
    assert status(decision) == 401


def test_a_login_that_ends_voids_the_cookie() -> None:
    made, presented = serving(), cookie(label="chat--d1")
    assert status(ask(made, Cookie=presented)) == 200
    made.table.revocations.revoke_login(LOGIN, time.time())
    assert status(ask(made, Cookie=presented)) == 401


def test_a_navigation_is_sent_to_the_login() -> None:
    decision = ask(serving(), "GET", "/chat?x=1", Sec_Fetch_Mode="navigate")
    assert status(decision) == 303
    (location,) = header(decision, "Location")
    assert location.startswith(f"{SITE.platform_url}/apps/authorize?h=chat--d1&")


def test_pages_of_other_origins_may_only_use_tokens() -> None:
    evil = {"Origin": "http://evil.example"}
    made = serving(service(is_public=True))
    assert status(ask(made, "POST", **evil)) == 403
    assert status(ask(made, "POST", **evil, Cookie=cookie(label="chat--d1"))) == 403
    assert status(ask(made, "POST", **evil, Authorization=BEARER)) == 200


def test_reserved_paths_are_not_forwarded() -> None:
    made = serving()
    decision = ask(made, "GET", "/.gp/status", Authorization=BEARER)
    assert isinstance(decision, ReservedRequest)
    assert (decision.label, decision.expires_at, decision.condition["state"]) == ("chat--d1", float("inf"), "ready")
    decision = ask(made, "GET", "/.gp/status")
    assert isinstance(decision, ReservedRequest)
    assert decision.expires_at is None


async def test_again_leads_to_the_deployment() -> None:
    made = serving()
    decision = ask(made, "GET", "/.gp/again")
    assert isinstance(decision, ReservedRequest)
    again = await made.serve(decision)
    assert header(again, "Location") == [f"{SITE.platform_url}/deployments/d1/"]


@pytest.mark.parametrize(
    ("host", "port", "expected"),
    [
        ("127.0.0.1:10200", 10200, 200),
        ("127.0.0.1:10201", 10200, 421),
        ("127.0.0.1:10200", 10201, 421),
        ("127.0.0.1:10201", 10201, 410),
        ("127.0.0.1:10200", None, 421),
        ("chat--d1.apps.localhost", 10200, 421),
    ],
)
def test_by_port_a_service_is_at_its_own_alone(host: str, port: int | None, expected: int) -> None:
    made = serving(service(listen_port=10200), site=BY_PORT)
    asked = [("Host", host), ("Authorization", BEARER)]
    assert status(ask_with(made, asked, "GET", "/", port)) == expected


def test_by_port_a_browser_has_a_cookie_of_the_port() -> None:
    made = serving(service(listen_port=10200, sticky="cookie"), site=BY_PORT)
    host, value = "127.0.0.1:10200", cookie(label="chat--d1").partition("=")[2]

    def at_port(*headers: tuple[str, str]) -> Decision:
        return ask_with(made, [("Host", host), *headers], "GET", "/", 10200)

    login = at_port(("Sec-Fetch-Mode", "navigate"), ("Accept", "text/html"))
    assert (status(login), header(login, "Set-Cookie")[0].partition("=")[0]) == (303, "gp_app_10200_state")
    opened = at_port(("Cookie", f"gp_app_10200={value}"))
    assert (status(opened), principal(opened).replica_cookie) == (
        200,
        (b"gp_replica_10200", b"; Path=/; HttpOnly; SameSite=Lax"),
    )
    assert status(at_port(("Cookie", f"gp_app={value}"))) == 401
    worker = at_port(("Cookie", f"gp_app_10200={value}"), ("Service-Worker", "script"))
    assert status(worker) == 403


def test_with_a_domain_no_service_is_at_a_port() -> None:
    decision = ask_with(serving(), [("Authorization", BEARER)], "GET", "/", 10200)
    assert status(decision) == 421


def test_the_sticky_header_is_read_and_forwarded() -> None:
    decision = ask(serving(service(sticky="x-user")), Authorization=BEARER, X_User="me")
    assert isinstance(decision, ForwardDecision)
    assert decision.sticky_key == b"me"
    assert ("x-user", "me") in sent(decision)


@pytest.mark.parametrize("headers", [{}, {"Authorization": BEARER}, {"Cookie": cookie(label="chat--d1")}])
def test_a_principal_is_found_once_for_many_requests(headers: dict[str, str]) -> None:
    made = serving(service(is_public=True))
    assert principal(ask(made, **headers)) is principal(ask(made, **headers))


def test_the_oldest_principals_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.authorization.services.MAX_CACHED_PRINCIPALS", 2)
    made = serving(service(is_public=True))
    found = [principal(ask(made, Cookie=f"n={number}")) for number in range(3)]
    assert principal(ask(made, Cookie="n=2")) is found[2]
    assert principal(ask(made, Cookie="n=0")) is not found[0]
    assert len(made._services._principals) == 2
