"""Any length of a session's life in a bounded number of points."""

from sessions.usage.points import MAX_POINTS, UsagePoints

Record = tuple[float, list[int | None]]


def record(seconds: float, cpu: int | None, memory: int | None = 0) -> Record:
    return seconds, [cpu, memory, 0, 0, None, None]


def test_the_first_hour_keeps_every_record() -> None:
    points = UsagePoints([]).fold(record(10 * number, number) for number in range(MAX_POINTS))
    assert (len(points.points), points.step_seconds) == (360, 10)
    assert points.points[7] == [7, 1, 7, 0, 0, 0, None, None]


def test_a_longer_life_has_fewer_points_with_means_and_peaks() -> None:
    points = UsagePoints([]).fold(record(10 * number, number % 2 * 100, number) for number in range(MAX_POINTS * 3))
    assert (len(points.points), points.step_seconds) == (270, 40)
    assert points.points[-1] == [269, 4, 50, 1079, 0, 0, None, None]


def test_adding_in_parts_is_the_same_as_at_once() -> None:
    records = [record(9.7 * number, number, number) for number in range(1000)]
    parts = UsagePoints([])
    for start in range(0, 1000, 7):
        parts = UsagePoints(parts.points, parts.step_seconds).fold(records[start : start + 7])
    whole = UsagePoints([]).fold(records)
    assert [point[0] for point in parts.points] == [point[0] for point in whole.points]
    assert [point[3] for point in parts.points] == [point[3] for point in whole.points]
    assert parts.step_seconds == whole.step_seconds


def test_what_is_unknown_counts_in_no_mean() -> None:
    points = UsagePoints([]).fold([record(0, None, None), record(1, 40, 5)])
    assert points.points == [[0, 2, 40, 5, 0, 0, None, None]]


def test_a_gap_leaves_no_points() -> None:
    points = UsagePoints([]).fold([record(0, 1), record(100_000, 2)])
    assert [point[0] for point in points.points] == [0, 312]
    assert points.step_seconds == 320
