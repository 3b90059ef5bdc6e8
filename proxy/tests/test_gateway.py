"""Authorization of web processes' requests in a gateway."""

import pytest

from proxy.authorization import gateway_tokens
from proxy.authorization.authorizer import Decision, ForwardDecision, Network
from proxy.authorization.gateway import GatewayAuthorizer
from proxy.authorization.gateway_tokens import IssuedTokens, VerifiedTokens
from proxy.authorization.signing import COOKIE
from proxy.http.headers import RequestHead
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
    assert decision.status == 403


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
