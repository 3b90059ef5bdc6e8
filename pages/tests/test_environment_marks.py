"""The marks that stand for environments."""

import re

from django.conf import settings

from pages.templatetags.environments import MARKS, environment_mark, monogram


def test_every_mark_is_drawn() -> None:
    drawn = set(re.findall(r'<symbol id="([^"]+)"', (settings.BASE_DIR / "static/img/environments.svg").read_text()))
    assert drawn == MARKS | {"mine"}


def test_an_environment_has_its_mark_or_two_letters() -> None:
    assert "environments.svg#pytorch" in environment_mark("PyTorch")
    assert "environments.svg#jax" in environment_mark("registry.example.com/team/jax")
    assert ">OS</span>" in environment_mark("OtherSolver")


def test_letters_are_capitals_where_there_are_two() -> None:
    assert [monogram(name) for name in ("RStudio", "julia", "x")] == ["RS", "Ju", "X"]
