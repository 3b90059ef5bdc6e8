"""Gateway tokens: their fields, lifetime and signature."""

import pytest

from proxy.authorization import gateway_tokens
from proxy.authorization.signing import COOKIE, InvalidSignatureError, Keys

KEYS = Keys(["new:" + "n" * 32, "old:" + "o" * 32])
NOW = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time in a list, so that a test can change it."""
    now = [NOW]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: now[0])
    return now


def test_token_carries_its_fields(clock: list[float]) -> None:
    assert gateway_tokens.verify(KEYS, gateway_tokens.issue(KEYS, ["a", "b"])) == ["a", "b"]


def test_token_of_an_older_key_is_valid(clock: list[float]) -> None:
    assert gateway_tokens.verify(KEYS, gateway_tokens.issue(Keys(["old:" + "o" * 32]), ["a"])) == ["a"]


@pytest.mark.parametrize("seconds", [-29, 0, 59])
def test_token_is_valid_despite_clock_skew(clock: list[float], seconds: int) -> None:
    value = gateway_tokens.issue(KEYS, ["a"])
    clock[0] += seconds
    assert gateway_tokens.verify(KEYS, value) == ["a"]


@pytest.mark.parametrize("seconds", [-32, 62, 86_400])
def test_token_is_invalid_after_and_before_its_time(clock: list[float], seconds: int) -> None:
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
def test_invalid_tokens_are_refused(clock: list[float], value: str) -> None:
    with pytest.raises(InvalidSignatureError):
        gateway_tokens.verify(KEYS, value)
