"""What processes report of deployments: summed by minute, and what is under way now."""

from datetime import datetime, timedelta

import pytest

from deployments import figures
from proxy.authorization.control_plane import DURATION_BOUNDS, ServiceFigures, latency_bin
from resources import clock
from sessions.models import new_session_id


@pytest.fixture
def deployment() -> str:
    return new_session_id()


def durations(**counts: int) -> list[int]:
    """Return counts by the position of their bound, "d3"."""
    return [counts.get(f"d{number}", 0) for number in range(len(DURATION_BOUNDS) + 1)]


def test_reports_of_processes_add_up(deployment: str) -> None:
    for process in ("a", "b"):
        figures.store(
            process,
            [
                ServiceFigures(
                    deployment=deployment,
                    session="r1",
                    outstanding=2,
                    requests=10,
                    errors=1,
                    durations=durations(d0=9, d4=1),
                    seconds=0.5,
                    sent_bytes=1000,
                    prompt_tokens=5,
                    completion_tokens=7,
                ),
                ServiceFigures(deployment=deployment, session="", outstanding=5, rejected=4),
            ],
        )
    last = figures.minutes(deployment, 2)
    assert sum(each.requests for each in last) == 20
    [minute] = [each for each in last if each.requests == 20] or [last[-1]]
    assert (minute.errors, minute.rejected, minute.sent_bytes, minute.seconds) == (2, 8, 2000, 1.0)
    assert (minute.by_replica, minute.prompt_tokens, minute.completion_tokens) == ({"r1": (20, 2)}, 10, 14)
    assert (minute.quantile(0.5), minute.quantile(0.95), minute.quantile(1.0)) == (0.005, 0.1, 0.1)
    now = figures.load_now(deployment)
    assert (now.waiting, now.outstanding) == (10, {"r1": 4})


def test_the_last_report_of_a_process_counts(deployment: str) -> None:
    busy = ServiceFigures(deployment=deployment, session="r1", outstanding=1)
    idle = ServiceFigures(deployment=deployment, session="r1", outstanding=0, requests=1)
    figures.store("a", [busy, idle])
    assert figures.load_now(deployment).outstanding == {}
    assert figures.last_busy(deployment) == {}
    figures.store("a", [busy])
    figures.store("a", [idle])
    assert set(figures.last_busy(deployment)) == {"r1"}


def test_a_process_that_is_silent_serves_nothing(deployment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    figures.store("a", [ServiceFigures(deployment=deployment, session="r1", outstanding=1)])
    later: datetime = clock.now() + timedelta(seconds=6)
    monkeypatch.setattr(clock, "now", lambda: later)
    assert figures.load_now(deployment).outstanding == {}


def test_without_requests_there_is_no_quantile(deployment: str) -> None:
    [minute] = figures.minutes(deployment, 1)
    assert (minute.requests, minute.quantile(0.5)) == (0, None)


def test_revisions_are_told_apart(deployment: str) -> None:
    for revision, errors, seconds in ((1, 0, 0.1), (2, 5, 0.3)):
        figures.store(
            "a",
            [
                ServiceFigures(
                    deployment=deployment,
                    session="r",
                    revision=revision,
                    requests=100,
                    errors=errors,
                    latencies={latency_bin(seconds): 94, latency_bin(10 * seconds): 6},
                ),
                ServiceFigures(deployment=deployment, session="", rejected=3),
            ],
        )
    totals = figures.revision_totals(deployment)
    assert {number: (each.requests, each.errors) for number, each in totals.items()} == {1: (100, 0), 2: (100, 5)}
    assert totals[2].quantile(0.5) == pytest.approx(0.3, rel=0.1)
    assert totals[2].quantile(0.95) == pytest.approx(3.0, rel=0.1)
    assert totals[1].last_at > 0
    figures.store("a", [ServiceFigures(deployment=deployment, session="r", revision=2, requests=1)])
    assert figures.revision_totals(deployment)[2].since(totals[2]).requests == 1
