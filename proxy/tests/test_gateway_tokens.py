"""Gateway tokens: their fields, lifetime and signature."""

import pytest

from proxy.authorization import gateway_tokens
from proxy.authorization.signing import COOKIE, Grant, InvalidSignatureError, Keys

KEYS = Keys(["new:" + "n" * 32, "old:" + "o" * 32])
NOW = 1_800_000_000.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The current time in a list, so that a test can change it."""
    now = [NOW]
    monkeypatch.setattr(gateway_tokens, "unix_time", lambda: now[0])
    return now


def test_token_is_renewed_long_before_it_expires() -> None:
    assert (gateway_tokens.LIFETIME_SECONDS, gateway_tokens.RENEWAL_SECONDS) == (30, 15)


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


@pytest.mark.parametrize(
    "named",
    [[], [""], ["a"], ["a:"], ["a:" + "x" * 15], [":" + "x" * 16], ["a b:" + "x" * 16], ["ok:" + "x" * 16, "b"]],
)
def test_keys_have_a_name_and_sixteen_characters(named: list[str]) -> None:
    with pytest.raises(ValueError, match="signing key"):
        Keys(named)


def test_a_value_names_the_key_that_signed_it() -> None:
    keys = Keys(["new:" + "n" * 16, "old:" + "o:" * 8])
    signed = keys.sign(COOKIE, ["a", "b"])
    assert signed.startswith("v1.new.")
    assert keys.fields(COOKIE, signed) == ["a", "b"]
    assert Keys(["old:" + "o:" * 8]).fields(COOKIE, Keys(["old:" + "o:" * 8]).sign(COOKIE, ["c"])) == ["c"]
    for wrong in (signed.replace("v1", "v2"), signed.replace("new", "old"), f"{signed}.x", signed + "A"):
        with pytest.raises(InvalidSignatureError):
            keys.fields(COOKIE, wrong)


@pytest.mark.parametrize(
    "fields", [["a", "1", "2", "l", "3"], ["a", "x", "2", "l", "3", "4"], ["a", "1", "2", "l", "3", "x"]]
)
def test_a_cookie_without_the_fields_of_a_grant_is_invalid(fields: list[str]) -> None:
    with pytest.raises(InvalidSignatureError):
        Grant.from_cookie(KEYS, KEYS.sign(COOKIE, fields))


def test_a_grant_comes_back_as_it_was() -> None:
    grant = Grant(label="a--b", epoch=3, user=7, login="l", issued_at=1.5, expires_at=2.25)
    assert Grant.from_cookie(KEYS, grant.to_cookie(KEYS)) == grant
