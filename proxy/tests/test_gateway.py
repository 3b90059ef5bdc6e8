"""Authorization of web processes' requests in a gateway."""

import pytest

from proxy.authorization import gateway_tokens
from proxy.authorization.decisions import Decision, ForwardDecision, Principal, UpstreamFailure
from proxy.authorization.gateway import GatewayAuthorizer, failure_of
from proxy.authorization.gateway_tokens import IssuedTokens, VerifiedTokens
from proxy.authorization.networks import Network
from proxy.authorization.signing import COOKIE
from proxy.http.headers import Header, RequestHead
from proxy.http.responses import LocalResponse
from proxy.routes import Route, RouteTable
from proxy.tests.site import GATEWAY_KEY, GATEWAY_KEYS, HOST, SUBNETS, cookie, route


def authorize(signed: bytes, *routes: Route, subnets: tuple[Network, ...] = SUBNETS) -> Decision:
    """Authorize a request with this token in a gateway with these routes."""
    table = RouteTable()
    table.replace(routes or [route()])
    headers = [
        (b"Host", HOST.encode()),
        (b"X-GP-Gateway", signed),
        (b"X-GP-Other", b"x"),
        (b"Cookie", b"keep=me"),
        (b"Authorization", b"token t0"),
        (b"X-Forwarded-For", b"203.0.113.5"),
        (b"X-Forwarded-Proto", b"https"),
        (b"Keep-Alive", b"x"),
    ]
    return GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=subnets).authorize(
        RequestHead(b"GET", b"/", headers), "10.0.0.1"
    )


def test_valid_token_is_forwarded_without_it() -> None:
    decision = authorize(IssuedTokens().issue("echo--s1", GATEWAY_KEY))
    assert isinstance(decision, ForwardDecision)
    assert dict(decision.headers) == {
        b"Host": HOST.encode(),
        b"Cookie": b"keep=me",
        b"Authorization": b"token t0",
        b"X-Forwarded-For": b"203.0.113.5",
        b"X-Forwarded-Proto": b"https",
    }


@pytest.mark.parametrize(("is_silent", "status"), [(False, 502), (True, 504)])
def test_a_web_process_learns_that_nothing_was_sent(status: int, *, is_silent: bool) -> None:
    table = RouteTable()
    table.replace([route()])
    gateway = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)
    signed = [(b"Host", HOST.encode()), (b"X-GP-Gateway", IssuedTokens().issue("echo--s1", GATEWAY_KEY))]
    head = RequestHead(b"GET", b"/", signed)
    decision = gateway.authorize(head, "10.0.0.1")
    assert isinstance(decision, ForwardDecision)
    response = gateway.unreachable(head, decision.principal, is_silent=is_silent)
    assert (response.status, failure_of(response.headers)) == (status, UpstreamFailure.UNSENT)


@pytest.mark.parametrize(
    "signed",
    [
        b"",
        b"nonsense",
        cookie().encode(),
        GATEWAY_KEYS.sign(COOKIE, ("echo--s1", "9e9")).encode(),
        GATEWAY_KEYS.sign("gateway", ("echo--s1",)).encode(),
        GATEWAY_KEYS.sign("gateway", ("echo--s1", "soon")).encode(),
        IssuedTokens().issue("echo--s1", "another-key-of-16"),
        GATEWAY_KEYS.sign("gateway", ("echo--s1", "1")).encode(),
        gateway_tokens.issue(GATEWAY_KEYS, ("echo--s1", "another")).encode(),
    ],
    ids=["none", "nonsense", "cookie", "purpose", "no end", "no moment", "key", "expired", "endpoint"],
)
def test_invalid_token_is_refused(signed: bytes) -> None:
    decision = authorize(signed)
    assert isinstance(decision, LocalResponse)
    assert (decision.status, failure_of(decision.headers)) == (403, UpstreamFailure.UNSENT)


def test_gateway_reaches_containers_of_its_own_host_only() -> None:
    signed = IssuedTokens().issue("echo--s1", GATEWAY_KEY)
    for away in (route(label="other--s1"), route(gateway="http://10.0.0.2:9000"), route(address="169.254.169.254")):
        decision = authorize(signed, away)
        assert isinstance(decision, LocalResponse)
        assert decision.status == 410


def test_token_is_renewed_at_half_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: clock[0])
    ours, theirs = IssuedTokens(), VerifiedTokens(GATEWAY_KEYS)
    first = ours.issue("echo--s1", GATEWAY_KEY)
    clock[0] += gateway_tokens.RENEWAL_SECONDS - 1
    assert ours.issue("echo--s1", GATEWAY_KEY) == first
    clock[0] += 2
    assert ours.issue("echo--s1", GATEWAY_KEY) != first
    assert theirs.verify(first) == "echo--s1"
    clock[0] += gateway_tokens.LIFETIME_SECONDS + gateway_tokens.MAX_CLOCK_SKEW_SECONDS
    assert theirs.verify(first) is None


def test_principals_are_kept_while_their_routes_are() -> None:
    table = RouteTable()
    table.replace([route(), route(label="other--s2", session="s2")])
    gateway = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)

    def principal(label: str) -> Principal:
        signed = IssuedTokens().issue(label, GATEWAY_KEY)
        decision = gateway.authorize(
            RequestHead(b"GET", b"/", [(b"Host", b"h"), (b"X-GP-Gateway", signed)]), "10.0.0.1"
        )
        assert isinstance(decision, ForwardDecision)
        assert isinstance(decision.principal, Principal)
        return decision.principal

    first = principal("echo--s1")
    assert principal("other--s2") is principal("other--s2")
    assert principal("echo--s1") is first
    table.replace([route(label="other--s2", session="s2", port=9)])
    assert principal("other--s2").route.port == 9
    assert list(gateway._principals) == ["other--s2"]


@pytest.mark.parametrize(
    ("target", "headers"), [(b"/", []), (b"/", [(b"Host", b"a b")]), (b"*", [(b"Host", b"h")])], ids=str
)
def test_ambiguous_requests_are_refused_by_a_gateway_too(target: bytes, headers: list[Header]) -> None:
    table = RouteTable()
    table.replace([route()])
    signed = (b"X-GP-Gateway", IssuedTokens().issue("echo--s1", GATEWAY_KEY))
    gateway = GatewayAuthorizer(table=table, keys=GATEWAY_KEYS, subnets=SUBNETS)
    decision = gateway.authorize(RequestHead(b"GET", target, [signed, *headers]), "10.0.0.1")
    assert isinstance(decision, LocalResponse)
    assert (decision.status, decision.closes) == (400, True)


def test_expired_tokens_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: clock[0])
    ours, theirs = IssuedTokens(), VerifiedTokens(GATEWAY_KEYS)
    for number in range(5):
        token = ours.issue(f"echo--s{number}", GATEWAY_KEY)
        assert theirs.verify(token) == f"echo--s{number}"
    assert (len(ours._issued), len(theirs._verified)) == (5, 5)
    clock[0] += gateway_tokens.RENEWAL_SECONDS + 1
    assert theirs.verify(ours.issue("echo--s9", GATEWAY_KEY)) == "echo--s9"
    assert (len(ours._issued), len(theirs._verified)) == (1, 1)
