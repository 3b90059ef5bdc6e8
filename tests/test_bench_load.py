"""What `make load` counts of its clients, by which it says how many users a platform holds."""

from http import HTTPStatus

import pytest

from bench import load
from bench.load_clients import LoadClients, Measurements
from tests.ports import free_port

HELD = {
    "submit_ms": {"count": 20, "p95": 900},
    "terminal_echo_ms": {"count": 20, "p95": 20},
    "opened": {"browsers": 5, "terminals": 5},
    "refused_ms": {"count": 1},
    "statuses": {HTTPStatus.OK: 100},
}


def test_a_platform_holds_users_whom_it_serves() -> None:
    assert load._holds(HELD, 5)


@pytest.mark.parametrize(
    "figure",
    [
        {"submit_ms": {"count": 20, "p95": 1100}},
        {"refused_ms": {"count": 2}},
        {"opened": {"browsers": 5, "terminals": 4}},
    ],
    ids=["slow", "refused", "closed"],
)
def test_slow_refused_or_closed_are_too_many(figure: dict[str, object]) -> None:
    assert not load._holds(HELD | figure, 5)


@pytest.mark.loopback
async def test_a_request_without_a_response_counts_as_refused() -> None:
    measured = Measurements()
    clients = LoadClients(f"127.0.0.1:{free_port()}", measured)
    await clients._ask("sessions", "GET", "/", {"Authorization": "Token one"})
    await clients.end()
    assert [len(times) for times in measured.refusals.values()] == [1]
    assert list(measured.failures) == ["sessions: ConnectError"]
