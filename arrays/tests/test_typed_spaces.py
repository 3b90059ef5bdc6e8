"""Spaces as people type them: what a text stands for, what is refused in which words, and the way back."""

from typing import Any

import pytest

from arrays import spaces, typed_spaces
from arrays.spaces import SpaceError

READ: list[tuple[str, str, Any]] = [
    ("indices", "1-10:2%4", "1-10:2%4"),
    ("grid", "lr = 0.1, 0.01\n\nseed=0..9", {"lr": [0.1, 0.01], "seed": {"from": 0, "to": 9}}),
    ("grid", "p = 0..1:0.25", {"p": {"from": 0, "to": 1, "step": 0.25}}),
    ("grid", 'text = "a, b", true, 1e-3, 007', {"text": ["a, b", True, 0.001, "007"]}),
    ("grid", '{"lr": [1]}', {"lr": [1]}),
    ("list", "lr,seed\n0.1,1\n0.2,2", [{"lr": 0.1, "seed": 1}, {"lr": 0.2, "seed": 2}]),
    ("list", "lr\tname\r\n0.1\ta b\r\n", [{"lr": 0.1, "name": "a b"}]),
    ("list", '[{"a": 1}, {"b": 2}]', [{"a": 1}, {"b": 2}]),
]


@pytest.mark.parametrize(("kind", "text", "given"), READ)
def test_a_text_stands_for_a_space(kind: str, text: str, given: Any) -> None:
    asked = typed_spaces.space_of(kind, text)
    assert asked == {kind: given}
    assert spaces.read(asked, 100).tasks


def test_random_values_are_drawn_as_often_as_asked() -> None:
    text = "lr = loguniform 0.001, 1\nlayers = int 2 8\nopt = choice adam, sgd"
    asked = typed_spaces.space_of("random", text, 5, 7)
    drawn = {"lr": {"loguniform": [0.001, 1]}, "layers": {"int": [2, 8]}, "opt": {"choice": ["adam", "sgd"]}}
    assert asked == {"random": {"count": 5, "seed": 7, "parameters": drawn}}
    assert spaces.read(asked, 100).tasks == spaces.read(asked, 100).tasks


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("indices", "9-1", "write the lower one first"),
        ("grid", "lr", "Line 1: write name = values"),
        ("grid", "lr =" + " " * 100_000, "Line 1: write name = values"),
        ("grid", "lr = 1\nlr = 2", "Line 2: lr is there twice"),
        ("grid", "lr = 0..3, 7", "stand alone"),
        ("grid", "lr = 0..1000", "at most 100 tasks"),
        ("grid", 'lr = "a', "quotation mark"),
        ("grid", "", "Write an object of parameters"),
        ("grid", '{"lr": ', "read as JSON"),
        ("grid", "{" * 100_000, "read as JSON"),
        ("random", "lr = normal 0, 1", "uniform, loguniform, int and choice"),
        ("random", "lr = uniform", "behind uniform stands a list"),
        ("list", "a,b\n1", "Row 1 has 1 values"),
        ("list", "a,a\n1,2", "each of them once"),
        ("list", "a,b", "a list of objects"),
        ("list", "", "a list of objects"),
        ("list", "a b\n1", "no name of a parameter"),
        ("list", "x\n" + "a" * 200_000, "quotation mark"),
    ],
)
def test_a_mistake_is_told_in_words(kind: str, text: str, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        spaces.read(typed_spaces.space_of(kind, text, 3), 100)


@pytest.mark.parametrize(
    "space",
    [
        {"indices": "0-9%2"},
        {"grid": {"lr": [0.1, True, "a, b", 'q"'], "seed": {"from": 0, "to": 9, "step": 3}}},
        {"grid": {"text": ["1", "two\nlines", "0..9"]}},
        {"random": {"count": 3, "seed": 1, "parameters": {"lr": {"uniform": [0, 1]}, "o": {"choice": ["a", "b c"]}}}},
        {"list": [{"a": 1, "b": "x"}, {"a": 2, "b": ""}]},
        {"list": [{"a": 1}, {"b": 2}]},
    ],
)
def test_a_space_is_typed_as_it_was_asked_for(space: dict[str, Any]) -> None:
    kind, text = typed_spaces.typed(space)
    drawn = space["random"] if kind == "random" else {}
    assert typed_spaces.space_of(kind, text, drawn.get("count"), drawn.get("seed")) == space


def test_a_long_space_is_named_by_its_kind() -> None:
    assert typed_spaces.typed({"grid": None}) == ("grid", "")
