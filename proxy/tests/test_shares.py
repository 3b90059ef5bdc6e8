"""Shares of revisions: the order of turns without connections, and exact counts with apps behind the proxy.

Broken were the sign of the payment in `_charge`, its bound, `sharing`, the growth of latencies, and `_starts` for each
revision; each was seen.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.authorization.control_plane import LAST_LATENCY_BIN, latency_bin, latency_bound
from proxy.balancing.replicas import BalancedReplica
from proxy.balancing.shares import RevisionShares
from proxy.counters import LocalCounters
from proxy.tests.services import call, running_service
from proxy.tests.site import replica
from proxy.tests.wire import connected


def replicas(*revisions: int) -> list[BalancedReplica]:
    """Return replicas of these revisions."""
    made = [BalancedReplica(replica(number).route, LocalCounters().counter("")) for number in range(len(revisions))]
    for each, revision in zip(made, revisions, strict=True):
        each.revision = revision
    return made


def shares(*weights: tuple[int, int]) -> RevisionShares:
    made = RevisionShares()
    made.update(weights)
    return made


def turns(of: RevisionShares, found: list[BalancedReplica], count: int) -> list[int]:
    """Return whose turn it is, so many times."""
    taken = []
    for _ in range(count):
        [(revision, _), *_] = of.by_turn(of.sharing(found))
        of.begun(revision, of.sharing(found))
        taken.append(revision)
    return taken


@given(st.integers(1, 99))
def test_every_hundred_requests_have_the_exact_share(percent: int) -> None:
    taken = turns(shares((1, 100 - percent), (2, percent)), replicas(1, 1, 2), 300)
    for begin in range(200):
        assert taken[begin : begin + 100].count(2) == percent


def test_five_percent_are_one_of_each_twenty() -> None:
    taken = turns(shares((1, 95), (2, 5)), replicas(1, 2, 2, 2), 200)
    assert {taken[begin : begin + 20].count(2) for begin in range(180)} == {1}


def test_three_revisions_share_exactly() -> None:
    taken = turns(shares((1, 30), (2, 20), (3, 50)), replicas(1, 2, 3), 100)
    assert Counter(taken) == {1: 30, 2: 20, 3: 50}


def test_a_revision_without_replicas_gives_its_weight_away() -> None:
    of = shares((1, 95), (2, 5))
    assert set(turns(of, replicas(1, 1), 50)) == {1}
    assert set(turns(of, replicas(2), 50)) == {2}
    assert turns(of, replicas(1, 2), 200).count(2) in {10, 11}


def test_no_share_means_no_request_while_others_serve() -> None:
    of = shares((1, 0), (2, 100))
    assert [each.revision for each in of.sharing(replicas(1, 2, 3))] == [2]
    assert [each.revision for each in of.sharing(replicas(1, 3))] == [1, 3]
    assert set(turns(of, replicas(1, 2), 20)) == {2}


def test_a_full_revision_is_owed_one_request_at_most() -> None:
    of, found = shares((1, 90), (2, 10)), replicas(1, 2)
    for _ in range(200):
        of.begun(1, found)
    assert turns(of, found, 30).count(2) <= 4


def test_keys_stay_with_the_newest_as_its_share_grows() -> None:
    found, keys = replicas(1, 1, 2), [b"%d" % number for number in range(1000)]
    before: set[bytes] = set()
    for percent in (0, 5, 50, 100):
        of = shares((1, 100 - percent), (2, percent))
        new = {key for key in keys if of.of_key(of.sharing(found), key)[0].revision == 2}
        assert before <= new
        assert abs(len(new) - 10 * percent) <= 50
        before = new


@given(st.floats(0, 1e7))
def test_latencies_are_known_within_ten_percent(seconds: float) -> None:
    number = latency_bin(seconds)
    if 0 < number < LAST_LATENCY_BIN:
        assert latency_bound(number) / 1.1001 < seconds <= latency_bound(number) * 1.0001
    assert 0 <= number <= LAST_LATENCY_BIN


@pytest.mark.loopback
async def test_weights_are_exact_through_the_proxy() -> None:
    async with running_service(3, weights=((1, 95), (2, 5))) as running, connected(running.port) as client:
        for number, revision in ((1, 1), (2, 1), (3, 2)):
            running.change_replica(number, revision=revision)

        async def ask(count: int) -> list[int]:
            before = running.served()
            for _ in range(count):
                assert (await client.ask(call())).status == 200
            return [after - had for after, had in zip(running.served(), before, strict=True)]

        one, two, new = await ask(200)
        assert (new, one + two) == (10, 190)
        assert abs(one - two) <= 1
        running.change(weights=((1, 50), (2, 50)))
        one, two, new = await ask(100)
        assert (new, abs(one - two) <= 1) == (50, True)
        running.change(weights=((1, 0), (2, 100)))
        assert await ask(20) == [0, 0, 20]
        running.change_replica(3, takes_requests=False)
        assert (await ask(20))[2] == 0
        running.change_replica(3, takes_requests=True)
        running.change(weights=())
        assert sorted(await ask(30)) == [10, 10, 10]
        figures = running.control_plane.figures
        await running.until(lambda: sum(each.requests for each in figures) == sum(running.served()))
        assert sum(each.requests for each in figures if each.revision == 2) == 90
        assert all(sum(each.latencies.values()) == each.requests for each in figures)


@pytest.mark.loopback
async def test_clients_with_a_cookie_leave_a_revision_without_share() -> None:
    async with (
        running_service(2, sticky="cookie", weights=((1, 100), (2, 0))) as running,
        connected(running.port) as client,
    ):
        for number in (1, 2):
            running.change_replica(number, revision=number)
        reply = await client.ask(call("GET", "/cookies"))
        pinned = reply.all("set-cookie")[-1].partition(";")[0]
        running.change(weights=((1, 95), (2, 5)))
        for _ in range(40):
            await client.ask(call(Cookie=pinned))
        assert running.served() == [41, 0]
        running.change(weights=((1, 0), (2, 100)))
        await client.ask(call(Cookie=pinned))
        assert running.served() == [41, 1]
