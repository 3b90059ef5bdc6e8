"""Sessions that lie to the arbiter take nothing from others, on the simulated timeline and clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fgpu.tests.host import Host
from fgpu.tests.sharing import LIAR_PERCENT, Lie, Load, run_beside, run_beside_liar, sessions_of

LEAST_RATIO = 0.95  # of an honest session's time beside a liar, by that without one
TOLERANCE = 1.5  # percentage points
FEW_TURNS_MS = 30  # what a launch waits for beside one honest session
WAIT_MS = 130  # for a launch: a kernel that outlasts its turn is waited for (100 ms), and two turns
WITHOUT_TURN = [Lie("toggle"), Lie("renew"), Lie("busy")]
WITH_TURNS = [Lie("hold"), Lie("overrun", 100), Lie("overrun", 1000), Lie("wake", 20)]
SHORT, LONG = Load("async", 1000), Load("async", 50_000)


def parts(figures: list[list[float]]) -> list[float]:
    return [part for _, part, _ in figures]


@pytest.fixture(params=[SHORT, LONG], ids=str)
def load(request: pytest.FixtureRequest) -> Load:
    found: Load = request.param
    return found


@pytest.mark.parametrize("lie", WITHOUT_TURN + WITH_TURNS, ids=str)
def test_a_liar_takes_no_time_from_others(host: Host, load: Load, lie: Lie) -> None:
    figures = run_beside_liar(host, [45, 45], load, lie)
    assert parts(figures) == pytest.approx([45, 45], abs=45 * (1 - LEAST_RATIO))


@pytest.mark.parametrize("lie", WITHOUT_TURN, ids=str)
def test_lies_delay_no_launch(host: Host, lie: Lie) -> None:
    assert max(longest for *_, longest in run_beside_liar(host, [45, 45], SHORT, lie)) < FEW_TURNS_MS


@pytest.mark.parametrize("lie", WITH_TURNS, ids=str)
def test_each_turn_of_a_liar_delays_launches_once(host: Host, lie: Lie) -> None:
    assert max(longest for *_, longest in run_beside_liar(host, [45, 45], SHORT, lie)) < WAIT_MS


@pytest.mark.parametrize("lie", WITHOUT_TURN, ids=str)
@pytest.mark.parametrize("share", [30, 50])
def test_lies_make_the_time_of_nobody_cheaper(host: Host, share: float, load: Load, lie: Lie) -> None:
    assert parts(run_beside_liar(host, [share], load, lie)) == pytest.approx([share], abs=TOLERANCE)


@pytest.mark.parametrize("long_us", [150_000, 400_000])
def test_long_kernels_take_little_from_a_neighbour(host: Host, long_us: int) -> None:
    neighbour, other = sessions_of(host, [50, 50])
    figures = run_beside([(neighbour, Load("async", 1000, 12_000)), (other, Load("async", long_us, 12_000))])
    assert parts(figures) == pytest.approx([50, 50], abs=3)


@pytest.mark.parametrize("lie", [Lie("hold", for_ms=9000), Lie("overrun", 1000, 9000)], ids=str)
@pytest.mark.parametrize("share", [30, 50])
def test_accomplices_have_their_shares_together(host: Host, share: float, load: Load, lie: Lie) -> None:
    """What an overrun of the one pays for the other is paid from its own share, but for a debt once."""
    [part] = parts(run_beside_liar(host, [share], replace(load, for_ms=8000), lie))
    assert part <= share + LIAR_PERCENT


@pytest.mark.parametrize("lie", [Lie("busy"), Lie("hold"), Lie("overrun", 1000)], ids=str)
def test_a_liar_stops_no_spare_time(host: Host, load: Load, lie: Lie) -> None:
    assert min(parts(run_beside_liar(host, [45, 45], load, lie, "burst"))) > 45


@pytest.mark.parametrize(("days", "waits"), [(10, 30), (40, 1e15 * 4 / 86400e9)])
def test_nobody_owes_more_than_eleven_days(host: Host, days: int, waits: float) -> None:
    """Who says for so long that it is busy, without a turn, has a turn when a share of 25 % has paid for that."""
    assert float(host.bare().run("test/debt", str(days))) == pytest.approx(waits, abs=0.01)
