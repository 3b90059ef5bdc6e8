"""Predicted run times, and the ranges of starts that come of them."""

from dataclasses import replace
from datetime import datetime, timedelta
from random import Random
from typing import Any

from scheduler.core.incremental_state import IncrementalState
from scheduler.core.placement import LOOK_AHEAD
from scheduler.core.tests.timelines import HOUR, at
from scheduler.core.tests.worlds import NOW, make_host, make_request, make_snapshot, placed, plan
from scheduler.core.types import OVERDUE_GRACE, Rules, RunningSession, SessionRequest
from scheduler.core.waiting.calibration import OUTCOMES, Calibration
from scheduler.core.waiting.run_times import MANY, MAX_LIKES, RUNS, RunTimes, stem_of

MINUTE = timedelta(minutes=1)


def ended(owner: int = 1, *, project: int | None = None, image: int = 1, stem: str = "") -> RunningSession:
    return RunningSession("past", owner, 1, 1, 1, (), NOW, None, project, image_id=image, stem=stem)


def past_of(*runs: tuple[RunningSession, int]) -> RunTimes:
    """Return the past in which these sessions ran for so many minutes."""
    past = RunTimes()
    for session, minutes in runs:
        past.note(session, NOW + minutes * MINUTE)
    return past


def until(calibration: Calibration, now: datetime, latest: datetime | None = None) -> datetime | None:
    """Return until when a start that is expected in an hour is told."""
    estimate = calibration.range_of(now, now + HOUR, latest)
    return None if estimate is None else estimate.starts_until


def request(owner: int = 1, *, project: int | None = None, image: int = 1, stem: str = "") -> SessionRequest:
    return make_request("new", owner=owner, image=image)._replace(project_id=project, stem=stem)


def test_the_closest_past_predicts_a_run() -> None:
    train, notebook = ended(stem="train"), ended(image=2)
    past = past_of((train, 60), (train, 60), (notebook, 10), (notebook, 10), *[(ended(2, image=3, project=7), 360)] * 2)
    assert past.predict(request(stem="train")) == HOUR
    assert past.predict(request(image=2)) == 10 * MINUTE
    assert past.predict(request(9, project=7)) == 6 * HOUR, "nobody knows the user, but the project"
    assert past.predict(request(9, image=2)) == 10 * MINUTE, "nor this, but the image"
    assert past.predict(request(9, image=9)) is not None, "nor that, but what sessions are like here"
    assert RunTimes().predict(request()) is None


def test_one_failed_run_does_not_turn_the_prediction() -> None:
    past = past_of((ended(), 60), (ended(), 60), (ended(), 60), (ended(), 0))
    assert past.predict(request()) == HOUR


def test_a_prediction_that_was_too_short_is_corrected_upwards() -> None:
    past = past_of((ended(), 10), (ended(), 10), (ended(), 60))
    assert past.predict(ended()) == 10 * MINUTE
    assert past.predict(ended(), 10 * MINUTE) == HOUR, "by the runs that were longer"
    by_now = [10 * MINUTE * number for number in range(1, 3000)]
    corrected = [past.predict(ended(), each) for each in by_now]
    assert all(each is not None and each > ran for each, ran in zip(corrected, by_now, strict=True))
    assert corrected == sorted(corrected, key=lambda each: each or timedelta())
    assert len(set(corrected)) < 30, "by steps"


def test_the_past_is_bounded() -> None:
    past = past_of(*((ended(owner, stem=f"s{owner}"), owner % 60) for owner in range(MAX_LIKES)), *[(ended(), 5)] * 100)
    assert len(past._runs) == MAX_LIKES
    assert max(map(len, past._runs.values())) == RUNS


def test_a_session_may_end_while_another_thread_predicts() -> None:
    class Emptied(dict[Any, Any]):
        """Which a session that ends empties once it was looked into."""

        def __contains__(self, key: object) -> bool:
            found = super().__contains__(key)
            self.clear()
            return found

    past = past_of((ended(), 60))
    past.predicted(request())
    past._known = Emptied(past._known)
    assert past.predicted(request()).predicted == HOUR


def test_predictions_of_many_names_are_bounded() -> None:
    past = past_of((ended(), 60))
    for number in range(MAX_LIKES + 2):
        past.predicted(request(stem=f"name-{number}-x"))
    assert len(past._known) <= MAX_LIKES


def test_a_range_is_read_without_changing_what_is_told() -> None:
    calibration = Calibration()
    calibration.tell("late", NOW, NOW + HOUR)
    before = list(calibration._due)
    calibration.range_of(NOW + 9 * HOUR, NOW + 10 * HOUR)
    assert calibration._due == before, "other threads read it too"


def test_tasks_and_numbered_runs_have_one_stem() -> None:
    assert {stem_of(name) for name in ("sweep-1", "sweep-17", "sweep", "sweep_3")} == {"sweep"}
    assert stem_of("17") == ""


def test_an_end_is_never_predicted_after_the_limit() -> None:
    past, session = past_of((ended(), 60), (ended(), 60)), ended()
    assert past.end_of(session, NOW) == NOW + HOUR
    assert past.end_of(session._replace(ends_at=NOW + 10 * MINUTE), NOW) == NOW + 10 * MINUTE
    late = session._replace(ends_at=NOW + 10 * MINUTE)
    assert past.end_of(late, NOW + 10 * MINUTE + 2 * OVERDUE_GRACE) is None, "nobody knows when it ends"


def test_starts_are_likely_without_any_time_limit() -> None:
    running = RunningSession("r", 1, 1, 1, 1, ((100, 1000),), at(-0.5))
    world = make_snapshot([make_host(1, [0])], [make_request("a", 1000), make_request("b", 1000)])
    state = IncrementalState(replace(world, running=(running,)))
    state.serve(at(0))
    past = past_of((ended(image=0), 60), (ended(image=0), 60))
    assert state.starts(at(0), LOOK_AHEAD) == {}
    assert state.likely_starts(at(0), LOOK_AHEAD, past) == {"a": at(0.5), "b": at(1.5)}
    assert state.starts(at(0), LOOK_AHEAD) == {}, "and nothing else has changed"


def test_behind_the_head_the_shortest_predicted_run_starts() -> None:
    running = RunningSession("r", 1, 1, 1, 1, ((100, 1000),), at(-1), at(2))
    narrow = [make_request(name, 1000)._replace(queued_at=at(n / 60)) for n, name in enumerate(("long", "short"), 1)]
    queue = [make_request("head", 2000), *(each._replace(duration=HOUR) for each in narrow)]
    queue[1], queue[2] = queue[1]._replace(predicted=HOUR), queue[2]._replace(predicted=MINUTE)
    world = replace(make_snapshot([make_host(1, [0, 1000])], queue), running=(running,))
    assert [*placed(plan(world, at(0.1)))] == ["short"]
    wrong = [queue[0], queue[1], queue[2]._replace(duration=9 * HOUR)]
    assert [*placed(plan(replace(world, queue=tuple(wrong)), at(0.1)))] == ["long"], (
        "limits say what may delay the head"
    )


def test_behind_the_head_priority_counts_before_run_times() -> None:
    """Without a prediction the time limit counts as the run time; without one, all others of the priority go first."""
    running = RunningSession("r", 1, 1, 1, 1, ((100, 1000),), at(-1), at(9))
    unknown, limited, known, urgent = (
        make_request(name, 1000)._replace(queued_at=at(n / 60), duration=2 * HOUR)
        for n, name in enumerate(("unknown", "limited", "known", "urgent"), 1)
    )
    urgent, known = urgent._replace(priority=1, predicted=9 * HOUR), known._replace(predicted=HOUR)
    head = make_request("head", 2000)._replace(priority=9)
    queue = [head, unknown._replace(duration=None), limited, known, urgent]
    for free in range(1, 5):
        hosts = [make_host(1, [0, 0]), *(make_host(number, [1000]) for number in range(2, 2 + free))]
        world = replace(make_snapshot(hosts, queue), rules={1: Rules(ageing=timedelta())}, running=(running,))
        assert [*placed(plan(world, at(1)))] == ["urgent", "known", "limited", "unknown"][:free]


def test_short_predictions_do_not_starve_a_long_one() -> None:
    rules = Rules(reservation_delay=HOUR)
    state = IncrementalState(
        replace(make_snapshot([make_host(1, [1000, 1000])], [make_request("x")]), rules={1: rules})
    )
    state.add(make_request("wide", 2000)._replace(duration=HOUR, predicted=9 * HOUR, queued_at=at(0)))
    state.add(make_request("narrow", 1000)._replace(duration=HOUR, predicted=9 * HOUR, queued_at=at(0)))
    ends: list[tuple[int, RunningSession]] = []
    started: dict[str, int] = {}
    for minute in range(400):
        now = at(0) + minute * MINUTE
        (group,) = state.cluster.groups.values()
        state.update([group.running[run.session_id] for end, run in ends if end == minute], [])
        state.add(make_request(f"s{minute}", 1000)._replace(duration=HOUR, predicted=MINUTE, queued_at=now))
        for placement in state.serve(now):
            started[placement.session_id] = minute
            ends.append((minute + 60, group.running[placement.session_id]))
    assert {"wide", "narrow"} <= started.keys()
    assert started["wide"] <= 60
    assert started["narrow"] <= 180


def test_ranges_hold_eight_of_ten_starts_whatever_the_error() -> None:
    random, calibration, held = Random(1), Calibration(), []
    for number in range(2000):
        now = NOW + number * MINUTE * 5
        wait = HOUR * random.random() * 4
        told = calibration.tell(str(number), now, now + wait)
        assert told is not None
        started = now + wait * random.choice((0.2, 0.5, 1, 1.5, 3, 5))  # biased, and never as told to others
        calibration.start(str(number), started)
        held.append(told.starts_from <= started <= told.starts_until)
        assert told.starts_from <= told.likely <= told.starts_until
    assert 0.75 < sum(held[200:]) / len(held[200:]) < 0.92
    assert len(calibration._outcomes) == OUTCOMES


def test_who_waits_beyond_the_range_widens_the_next() -> None:
    calibration = Calibration()
    first = until(calibration, NOW)
    calibration.tell("0", NOW, NOW + HOUR)
    for number in range(1, 20):
        calibration.tell(str(number), NOW, NOW + HOUR)
    assert until(calibration, NOW) == first
    calibration.advance(NOW + 9 * HOUR)
    assert until(calibration, NOW + 9 * HOUR, NOW + 29 * HOUR) == NOW + 29 * HOUR, "limits alone say"
    calibration.forget("0")
    calibration.start("0", NOW)


def test_after_few_misses_the_range_is_wider() -> None:
    calibration = Calibration()
    first = until(calibration, NOW)
    for number in range(3):
        calibration.tell(str(number), NOW, NOW + HOUR)
    calibration.advance(NOW + 9 * HOUR)
    after = until(calibration, NOW + 9 * HOUR)
    assert first is not None
    assert after is not None
    assert after - 9 * HOUR > first


def test_where_ranges_are_missed_none_is_told_without_limits() -> None:
    calibration = Calibration()
    for number in range(20):
        calibration.tell(str(number), NOW, NOW + HOUR)
    later = NOW + 9 * HOUR
    assert calibration.tell("new", later, later + HOUR) is None
    assert calibration.tell("0", later, later + HOUR) is not None, "who was told one before is told when it has changed"
    assert not calibration.start("new", later + HOUR)
    for number in range(200):
        if calibration.tell(f"n{number}", later, later + HOUR) is not None:
            break
        calibration.start(f"n{number}", later + HOUR)
    assert 10 < number < 100, "as long as starts have not made up for it"


def test_what_limits_alone_said_narrows_no_later_range() -> None:
    calibration, random = Calibration(), Random(1)
    for number in range(200):
        calibration.tell(str(number), NOW, NOW + HOUR, (None, NOW + 9 * HOUR)[number % 2], is_known=False)
        calibration.start(str(number), NOW + HOUR * random.choice((0.5, 1, 2, 4)))
    told = until(calibration, NOW)
    assert told is not None
    assert told >= NOW + 4 * HOUR, "as late as a quarter of them started"


def test_while_most_run_on_limits_alone_end_a_range() -> None:
    past, calibration = past_of(*[(ended(), 5)] * 9), Calibration()
    assert past.is_known_beside(9)
    assert not past.is_known_beside(10), "those that ended are the short ones"
    assert past_of(*[(ended(), 5)] * MANY).is_known_beside(9 * MANY)
    limited = calibration.range_of(NOW, NOW + HOUR, NOW + 9 * HOUR, is_known=False)
    assert limited is not None
    assert limited.starts_until == NOW + 9 * HOUR
    assert calibration.tell("a", NOW, NOW + HOUR, is_known=False) is None
    assert calibration.tell("a", NOW, NOW + HOUR) is not None, "as soon as it is known"
    assert calibration.start("a", NOW + HOUR), "and judged by that"
