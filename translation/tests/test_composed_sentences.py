"""Sentences that modules compose are found in their sources."""

from pathlib import Path

import pytest

from translation import catalogs
from translation.composed_sentences import composed_sentences
from translation.english_texts import SENTENCES

PAGE = Path("sessions/services.py")


def test_the_platform_reads_the_sentences_of_the_sources() -> None:
    assert SENTENCES.read_text() == catalogs.sentences_json(), "run `make messages`"


def test_sentences_that_nobody_marked_are_found() -> None:
    lines = (
        '"""A docstring of three words."""',
        '@admin.action(description="End those which run")',
        "def end(): pass",
        'logger.info("It was not found.")',
        'add(_("It was marked here."))',
        'add("Not one of those.")',
        'add("too short")',
    )
    assert composed_sentences(PAGE, "\n".join(lines)) == ["Not one of those."]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ('f"It is on {host}."', "It is on %(host)s."),
        ('f"At most {size(self._limits.most)} can be {used:.1f} % full"', "At most %(most)s can be %(used)s %% full"),
        ('f"There are {len(found)} of {names[0]} here"', "There are %(count)s of %(names)s here"),
        ('f"It moved from {old.name} to {new.name}."', "It moved from %(name)s to %(name2)s."),
        ('("It is 100 % full.",)', "It is 100 %% full."),
    ],
)
def test_values_are_named_after_what_is_formatted(code: str, text: str) -> None:
    assert composed_sentences(PAGE, code) == [text]


def test_sentences_for_operators_are_left_out() -> None:
    assert composed_sentences(Path("proxy/errors.py"), 'raise Error("It is not there.")') == []
