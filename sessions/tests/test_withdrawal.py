"""Routes are withdrawn from all proxies, for which the end of a session waits, but not for ever."""

import json
import threading
import time

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from sessions import notify
from sessions.lifecycle import Status
from sessions.models import Endpoint
from sessions.revocation import withdrawal
from tests.factories import make_endpoint, session_in
from tests.wait import SECONDS, until

pytestmark = pytest.mark.django_db
TIMEOUT_SECONDS = 0.2


@pytest.fixture
def endpoint(db: None) -> Endpoint:
    until(
        lambda: dict(notify.proxies_redis().pubsub_numsub(notify.ROUTES_CHANNEL)) == {notify.ROUTES_CHANNEL.encode(): 0}
    )
    return make_endpoint()


def answer(proxies: int) -> threading.Thread:
    """Have so many proxies acknowledge one withdrawal, and return their thread."""
    subscription = notify.proxies_redis().pubsub()
    subscription.subscribe(notify.ROUTES_CHANNEL)
    assert subscription.get_message(timeout=SECONDS)

    def proxy() -> None:
        message = subscription.get_message(timeout=SECONDS)
        assert message
        asked = json.loads(message["data"])
        for _ in range(proxies):
            notify.proxies_redis().rpush(asked["reply"], asked["withdraw"])
        subscription.close()

    thread = threading.Thread(target=proxy)
    thread.start()
    return thread


def test_a_withdrawal_waits_for_every_proxy(endpoint: Endpoint) -> None:
    thread = answer(1)
    assert withdrawal.withdraw(endpoint.session_id) is True
    thread.join()


def test_a_proxy_that_stays_silent_is_not_waited_for(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(withdrawal, "WITHDRAW_TIMEOUT_SECONDS", TIMEOUT_SECONDS)
    thread, begun = answer(0), time.monotonic()
    assert withdrawal.withdraw(endpoint.session_id) is False
    assert time.monotonic() - begun >= TIMEOUT_SECONDS
    assert "1 proxies did not acknowledge" in caplog.text
    thread.join()


def test_without_proxies_nobody_is_waited_for(endpoint: Endpoint) -> None:
    assert withdrawal.withdraw(endpoint.session_id) is True


def test_without_redis_a_withdrawal_fails_in_words(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(message: object) -> int:
        raise RedisConnectionError("away")

    monkeypatch.setattr(notify, "publish", fail)
    assert withdrawal.withdraw(endpoint.session_id) is False
    assert "could not withdraw its routes from the proxies: away" in caplog.text
    assert withdrawal.withdraw(session_in(Status.RUNNING).pk) is True  # without apps nothing is sent
