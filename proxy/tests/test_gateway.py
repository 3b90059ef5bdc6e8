"""What a gateway takes, and from whom."""

import pytest

from proxy import passes
from proxy.admission import Forward, Judgement, Network
from proxy.answers import Answer
from proxy.gateway import GatewayAdmission
from proxy.heads import Request
from proxy.passes import Passes
from proxy.routes import Route, RouteTable
from proxy.signing import COOKIE, Keys
from proxy.tests.site import HOST, KEYS, SUBNETS, cookie, route


def judge(signed: bytes, *routes: Route, subnets: tuple[Network, ...] = SUBNETS) -> Judgement:
    """Have a gateway with these routes judge a request with this pass."""
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
    return GatewayAdmission(table=table, keys=KEYS, subnets=subnets).judge(Request(b"GET", b"/", headers), "10.0.0.1")


def test_a_pass_opens_its_endpoint_and_does_not_reach_the_app() -> None:
    judgement = judge(Passes(KEYS).of("echo--s1"))
    assert isinstance(judgement, Forward)
    assert dict(judgement.headers) == {
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
        Passes(Keys(["first:another-key-of-16"])).of("echo--s1"),
        KEYS.sign("gateway", ("echo--s1", "1")).encode(),
        passes.issue(KEYS, ("echo--s1", "another")).encode(),
    ],
    ids=["none", "nonsense", "cookie", "purpose", "no end", "no moment", "key", "expired", "endpoint"],
)
def test_without_a_good_pass_nothing_is_reached(signed: bytes) -> None:
    judgement = judge(signed)
    assert isinstance(judgement, Answer)
    assert judgement.status == 403


def test_a_gateway_dials_containers_of_its_own_host_only() -> None:
    signed = Passes(KEYS).of("echo--s1")
    for away in (route(label="other--s1"), route(gateway="http://10.0.0.2:9000"), route(address="169.254.169.254")):
        judgement = judge(signed, away)
        assert isinstance(judgement, Answer)
        assert judgement.status == 410


def test_a_pass_is_used_for_half_its_life_and_taken_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1000.0]
    monkeypatch.setattr(passes, "unix_time", lambda: clock[0])
    ours = Passes(KEYS)
    first = ours.of("echo--s1")
    clock[0] += passes.RENEWED_AFTER - 1
    assert ours.of("echo--s1") == first
    clock[0] += 2
    assert ours.of("echo--s1") != first
    assert ours.label(first) == "echo--s1"
    clock[0] += passes.LIFE_SECONDS + passes.SKEW_SECONDS
    assert ours.label(first) is None
