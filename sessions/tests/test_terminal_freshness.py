"""Input that a network has held back is recognized by the age of the last answer that its browser saw."""

from sessions.terminal.freshness import MAX_AGE_SECONDS, REMEMBERED, Freshness


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_input_ages_with_the_last_answer_seen() -> None:
    clock = Clock()
    freshness = Freshness(clock)
    clock.now += 3600
    assert not freshness.is_stale  # this client asks nothing
    freshness.answer(1)
    clock.now += MAX_AGE_SECONDS
    assert not freshness.is_stale
    freshness.answer(2)
    clock.now += 1
    assert freshness.is_stale  # the second answer may never have arrived
    freshness.seen(2)
    assert not freshness.is_stale
    clock.now += MAX_AGE_SECONDS
    assert freshness.is_stale


def test_unknown_and_forgotten_answers_say_nothing() -> None:
    clock = Clock()
    freshness = Freshness(clock)
    for number in range(1, REMEMBERED + 3):
        freshness.answer(number)
    clock.now += MAX_AGE_SECONDS + 1
    freshness.answer(REMEMBERED + 3)
    for number in (1, 2, 10**9, -1):
        freshness.seen(number)
    assert freshness.is_stale
    freshness.seen(REMEMBERED + 3)
    assert not freshness.is_stale
