"""Passes: what is in them, how long they hold, and who can make them."""

import pytest

from proxy import gateway_tokens
from proxy.signing import COOKIE, InvalidSignatureError, Keys

KEYS = Keys(["new:" + "n" * 32, "old:" + "o" * 32])
NOW = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which a test may change."""
    now = [NOW]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: now[0])
    return now


def test_a_pass_says_what_it_is_for(clock: list[float]) -> None:
    assert gateway_tokens.verify(KEYS, gateway_tokens.issue(KEYS, ["a", "b"])) == ["a", "b"]


def test_a_pass_of_the_older_key_holds_too(clock: list[float]) -> None:
    assert gateway_tokens.verify(KEYS, gateway_tokens.issue(Keys(["old:" + "o" * 32]), ["a"])) == ["a"]


@pytest.mark.parametrize("seconds", [-29, 0, 59])
def test_a_pass_holds_while_it_is_fresh_and_when_clocks_are_half_a_minute_apart(
    clock: list[float], seconds: int
) -> None:
    value = gateway_tokens.issue(KEYS, ["a"])
    clock[0] += seconds
    assert gateway_tokens.verify(KEYS, value) == ["a"]


@pytest.mark.parametrize("seconds", [-32, 62, 86_400])
def test_a_pass_does_not_hold_a_minute_later_nor_before_its_time(clock: list[float], seconds: int) -> None:
    value = gateway_tokens.issue(KEYS, ["a"])
    clock[0] += seconds
    with pytest.raises(InvalidSignatureError, match="do the clocks agree"):
        gateway_tokens.verify(KEYS, value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "v1",
        "v1.new.YQ.x",
        "v1.none.YQ.x",
        "ä.ö.ü.ß",
        gateway_tokens.issue(Keys(["new:" + "x" * 32]), ["a"]),
        gateway_tokens.issue(KEYS, ["a"])[:-1],
        KEYS.sign(COOKIE, ["a", str(int(NOW))]),
        KEYS.sign("gateway", ["a", "soon"]),
    ],
    ids=range(9),
)
def test_what_is_no_pass_of_ours_is_refused(clock: list[float], value: str) -> None:
    with pytest.raises(InvalidSignatureError):
        gateway_tokens.verify(KEYS, value)
