"""Which CPUs containers are pinned to."""

import pytest

from hostworker.enforcement.cpu_sets import choose, format_cpus, parse_cpus, resized

TWO_NODES = [range(4), range(4, 8)]


@pytest.mark.parametrize(
    ("text", "cpus"), [("0", {0}), ("0-2,8", {0, 1, 2, 8}), ("1,3", {1, 3}), ("", set()), ("4-5\n", {4, 5})]
)
def test_lists_of_cpus_are_read_and_written(text: str, cpus: set[int]) -> None:
    assert parse_cpus(text) == cpus
    assert format_cpus(cpus) == text.strip()


def test_sessions_share_no_cpu_while_some_are_idle() -> None:
    taken: list[frozenset[int]] = []
    for _ in range(4):
        taken.append(choose(TWO_NODES, taken, 2))
    assert sorted(cpu for cpus in taken for cpu in cpus) == list(range(8))
    assert all(cpus <= {*range(4)} or cpus <= {*range(4, 8)} for cpus in taken)


def test_the_node_that_fits_best_is_taken() -> None:
    assert choose(TWO_NODES, [{4}], 2) == {5, 6}
    assert choose(TWO_NODES, [{4}], 4) == {0, 1, 2, 3}
    assert choose(TWO_NODES, [{4}, {0}], 6) == {1, 2, 3, 5, 6, 7}


def test_more_than_there_are_is_all_of_them() -> None:
    assert choose(TWO_NODES, [{0}], 9) == set(range(8))


def test_overcommitted_cpus_are_shared_evenly() -> None:
    assert choose([range(2)], [{0}, {0}, {1}], 1) == {1}


def test_a_resized_container_keeps_the_cpus_that_it_can() -> None:
    assert resized({4}, TWO_NODES, [{0}, {5}], 3) == {4, 6, 7}
    assert resized({4, 5}, TWO_NODES, [{6}, {7}, {0}], 4) >= {4, 5}
    assert resized({0, 1, 2}, TWO_NODES, [{0}], 2) == {1, 2}
    assert resized({0}, TWO_NODES, [], 20) == set(range(8))
