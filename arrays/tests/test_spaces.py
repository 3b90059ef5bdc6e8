"""Indices and parameters of arrays: what is made of them, and what is refused before it costs anything."""

import time
from typing import Any

import pytest

from arrays.spaces import SpaceError, read


@pytest.mark.parametrize(
    ("text", "indices", "parallel"),
    [
        ("1-4", [1, 2, 3, 4], None),
        ("0-15:4%2", [0, 4, 8, 12], 2),
        ("1,3,7", [1, 3, 7], None),
        ("[5,1-3,2%10]", [1, 2, 3, 5], 10),
        ("0", [0], None),
        (7, [7], None),
    ],
)
def test_indices_are_read_as_slurm_writes_them(text: Any, indices: list[int], parallel: int | None) -> None:
    space = read(text, 100)
    assert (list(space.tasks), space.max_parallel) == (indices, parallel)


def test_a_grid_combines_each_value_with_each_other() -> None:
    space = read({"grid": {"lr": [0.1, 0.01], "seed": {"from": 0, "to": 2}, "amp": [True]}}, 100)
    assert len(space.tasks) == 6
    assert space.tasks[0] == {"lr": 0.1, "seed": 0, "amp": True}
    assert space.tasks[5] == {"lr": 0.01, "seed": 2, "amp": True}


def test_fractional_steps_are_exact_and_reach_their_end() -> None:
    space = read({"grid": {"p": {"from": 0, "to": 0.3, "step": 0.1}}}, 100)
    assert [each["p"] for each in space.tasks.values()] == [0, 0.1, 0.2, 0.3]
    whole = read({"grid": {"p": {"from": 2**53 + 1, "to": 2**53 + 2}}}, 100)
    assert [each["p"] for each in whole.tasks.values()] == [2**53 + 1, 2**53 + 2]


def test_random_sets_are_within_bounds_and_repeatable() -> None:
    parameters = {"lr": {"loguniform": [1e-4, 1]}, "n": {"int": [1, 3]}, "opt": {"choice": ["sgd", "adam"]}}
    first = read({"random": {"count": 50, "parameters": {**parameters, "x": {"uniform": [-1, 1]}}}}, 100)
    for each in first.tasks.values():
        assert 1e-4 <= float(each["lr"]) <= 1
        assert each["n"] in (1, 2, 3)
        assert -1 <= float(each["x"]) <= 1
    assert read(first.stored, 100).tasks == first.tasks


def test_a_list_has_the_parameters_of_each_task() -> None:
    assert read({"list": [{"a": 1}, {"a": "x"}]}, 100).tasks == {0: {"a": 1}, 1: {"a": "x"}}


WRONG: list[Any] = [
    *(
        "",
        "a",
        "5-1",
        "1-",
        "1-4:0,x",
        "1-3%0",
        "-3",
        "1" * 20,
        "1-200",
        "1," * 20_000,
        "1-4:0",
        None,
        True,
        [],
        {},
        1.5,
    ),
    {"grid": {}},
    {"grid": {"a": []}},
    {"grid": {"a": "xyz"}},
    {"grid": {"1a": [1]}},
    {"grid": {"SLURM_X": [1]}},
    {"grid": {"GPUPLATFORM_X": [1]}},
    {"list": [{"a": "the longest of all"}, {"LD_PRELOAD": "x"}]},
    {"random": {"count": 1, "parameters": {"NVIDIA_VISIBLE_DEVICES": {"choice": ["all"]}}}},
    {"grid": {"a": [{"b": 1}]}},
    {"grid": {"a": ["\0"]}},
    {"grid": {"a": ["\ud800"]}},
    {"grid": {"a": ["x" * 1025]}},
    {"grid": {"a": [float("nan")]}},
    {"grid": {"a": {"from": 0, "to": 1, "step": 0}}},
    {"grid": {"a": {"from": 0, "to": 1e300}}},
    {"grid": {"a": {"from": 0, "to": 1, "step": 1e-300}}},
    {"grid": {"a": {"from": 0, "to": 9, "by": 1}}},
    {"grid": {f"a{number}": [1] for number in range(21)}},
    {"grid": {f"a{number}": list(range(10)) for number in range(12)}},
    {"random": {"count": 0, "parameters": {"a": {"int": [1, 2]}}}},
    {"random": {"count": 101, "parameters": {"a": {"int": [1, 2]}}}},
    {"random": {"count": 1, "parameters": {"a": {"int": [1.5, 2]}}}},
    {"random": {"count": 1, "parameters": {"a": {"loguniform": [0, 1]}}}},
    {"random": {"count": 1, "parameters": {"a": {"uniform": [2, 1]}}}},
    {"random": {"count": 1, "parameters": {"a": {"normal": [0, 1]}}}},
    {"random": {"count": 1, "parameters": {"a": {"choice": []}}}},
    {"random": {"count": 1, "seed": "x", "parameters": {"a": {"int": [1, 2]}}}},
    {"list": []},
    {"list": [{}]},
    {"list": [1]},
    {"grid": {"a": [1]}, "list": [{"a": 1}]},
]


@pytest.mark.parametrize("asked", WRONG, ids=range(len(WRONG)))
def test_what_is_no_space_is_refused(asked: Any) -> None:
    with pytest.raises(SpaceError):
        read(asked, 100)


def test_a_huge_grid_is_refused_before_it_is_built() -> None:
    with pytest.raises(SpaceError, match="at most 10000 tasks; this makes 1000000000000"):
        read({"grid": {f"a{number}": list(range(1000)) for number in range(4)}}, 10_000)


def test_indices_named_again_and_again_cost_little() -> None:
    begun = time.process_time()
    with pytest.raises(SpaceError, match="Name each index once"):
        read(",".join(["0-9999"] * 10_000), 10_000)
    assert time.process_time() - begun < 1


def test_many_tasks_with_long_texts_are_refused() -> None:
    texts = {f"a{number}": ["x" * 1024] for number in range(19)}
    with pytest.raises(SpaceError, match="may take 16 MiB"):
        read({"grid": {"seed": {"from": 1, "to": 10_000}, **texts}}, 10_000)
    assert len(read({"grid": {"seed": {"from": 1, "to": 10_000}, "a": ["x" * 1024]}}, 10_000).tasks) == 10_000


@pytest.mark.parametrize("asked", ["1-2," + ",".join(map(str, range(10, 9000, 2))), {"grid": {"x": ["a" * 999] * 20}}])
def test_what_is_long_is_not_stored_beside_its_tasks(asked: Any) -> None:
    found = read(asked, 10_000)
    assert found.tasks
    assert [*found.stored.values()] == [None]
