"""Authorization of web processes' requests in a gateway."""

import pytest

from proxy import gateway_tokens
from proxy.authorization import Decision, ForwardDecision, Network
from proxy.gateway import GatewayAuthorizer
from proxy.gateway_tokens import GatewayTokens
from proxy.headers import RequestHead
from proxy.responses import LocalResponse
from proxy.routes import Route, RouteTable
from proxy.signing import COOKIE, Keys
from proxy.tests.site import HOST, KEYS, SUBNETS, cookie, route


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
    return GatewayAuthorizer(table=table, keys=KEYS, subnets=subnets).authorize(
        RequestHead(b"GET", b"/", headers), "10.0.0.1"
    )


def test_valid_token_is_forwarded_without_it() -> None:
    decision = authorize(GatewayTokens(KEYS).issue("echo--s1"))
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
        KEYS.sign(COOKIE, ("echo--s1", "9e9")).encode(),
        KEYS.sign("gateway", ("echo--s1",)).encode(),
        KEYS.sign("gateway", ("echo--s1", "soon")).encode(),
        GatewayTokens(Keys(["first:another-key-of-16"])).issue("echo--s1"),
        KEYS.sign("gateway", ("echo--s1", "1")).encode(),
        gateway_tokens.issue(KEYS, ("echo--s1", "another")).encode(),
    ],
    ids=["none", "nonsense", "cookie", "purpose", "no end", "no moment", "key", "expired", "endpoint"],
)
def test_invalid_token_is_refused(signed: bytes) -> None:
    decision = authorize(signed)
    assert isinstance(decision, LocalResponse)
    assert decision.status == 403


def test_gateway_reaches_containers_of_its_own_host_only() -> None:
    signed = GatewayTokens(KEYS).issue("echo--s1")
    for away in (route(label="other--s1"), route(gateway="http://10.0.0.2:9000"), route(address="169.254.169.254")):
        decision = authorize(signed, away)
        assert isinstance(decision, LocalResponse)
        assert decision.status == 410


def test_token_is_renewed_at_half_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: clock[0])
    ours = GatewayTokens(KEYS)
    first = ours.issue("echo--s1")
    clock[0] += gateway_tokens.RENEWAL_SECONDS - 1
    assert ours.issue("echo--s1") == first
    clock[0] += 2
    assert ours.issue("echo--s1") != first
    assert ours.verify(first) == "echo--s1"
    clock[0] += gateway_tokens.LIFETIME_SECONDS + gateway_tokens.MAX_CLOCK_SKEW_SECONDS
    assert ours.verify(first) is None
