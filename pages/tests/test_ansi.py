"""Output of programs as HTML."""

import pytest

from pages.log_panel.ansi import coloured


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("plain <b>", "plain &lt;b&gt;"),
        ("\x1b[31mred\x1b[0m done", '<span class="ansi-1">red</span> done'),
        ("\x1b[1;92mok", '<span class="ansi-10 ansi-bold">ok</span>'),
        ("\x1b[32m<i>\x1b[39m", '<span class="ansi-2">&lt;i&gt;</span>'),
        ("\x1b[44;7mon\x1b[27;49m", '<span class="ansi-on-4 ansi-inverse">on</span>'),
        ("\x1b[38;5;196mcube", '<span class="ansi-9">cube</span>'),
        ("\x1b[38;5;244mgrey", '<span class="ansi-7">grey</span>'),
        ("\x1b[38;2;10;10;200mtrue", '<span class="ansi-12">true</span>'),
        ("\x1b[48;5;3;1mboth", '<span class="ansi-on-3 ansi-bold">both</span>'),
        ("\x1b[38;5mcut", "cut"),
        ("\x1b[2K\x1b[1Aup\x1b]0;title\x07 \x1b(Bend", "up end"),
        ("a\x00\x08b\x1b", "ab\x1b"),
        (f"\x1b[{'1' * 5000}mendless", "endless"),
        (f"\x1b[38;5;{'9' * 190}mfar", '<span class="ansi-15">far</span>'),
    ],
)
def test_colours_are_classes_and_other_codes_vanish(text: str, html: str) -> None:
    assert coloured(text) == html


def test_what_was_written_over_is_not_shown() -> None:
    assert coloured("1 %\r50 %\r100 %\r\nnext\nlast\r") == "100 %\nnext\nlast"
