"""Output of programs as HTML: colours of terminals become classes, all other control codes are left out. Pure."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from html import escape
from itertools import islice
from typing import Final, NamedTuple

from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe

# A CSI sequence, an OSC sequence (a title or a link), a charset or a two-character code; the group is that of colours.
CODE: Final = re.compile(
    r"\x1b(?:\[([0-9;:]{0,200})m|\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\-_=>78])"
)
MAX_CODES: Final = 20_000  # in a text whose colours are shown; one with more is shown without
UNSEEN: Final = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")
_CUBE_FIRST: Final = 16  # of the 256 colours: six levels each of red, green and blue, then greys
_GREY_FIRST: Final = 232
_LEVELS: Final = (0, 95, 135, 175, 215, 255)
_MAX_NUMBERS: Final = 32  # of one sequence
_FLAGS: Final = {1: "ansi-bold", 2: "ansi-dim", 3: "ansi-italic", 4: "ansi-underlined", 7: "ansi-inverse"}
_RESETS: Final = {22: 1 << 1 | 1 << 2, 23: 1 << 3, 24: 1 << 4, 27: 1 << 7}  # which flags a number takes back
_BASIC: Final = {  # whether a number is of the ground, and the colour
    **{first + each: (first % 20 == 0, each) for first in (30, 40) for each in range(8)},
    **{first + each: (first % 20 == 0, each + 8) for first in (90, 100) for each in range(8)},
}


class Look(NamedTuple):
    """How text looks; a colour is one of the sixteen of terminals, None the default."""

    colour: int | None = None
    ground: int | None = None
    flags: int = 0  # a bit for each number of _FLAGS


PLAIN: Final = Look()


def coloured(text: str) -> SafeString:
    """Return the text as HTML, with spans for what is not plain."""
    text = overwritten(text)
    if text.count("\x1b") > MAX_CODES:
        return mark_safe(escape(UNSEEN.sub("", CODE.sub("", text))))  # noqa: S308  # escaped text
    parts = ((_tag(look), escape(UNSEEN.sub("", piece))) for look, piece in _pieces(text))
    html = "".join(f"{tag}{piece}</span>" if tag else piece for tag, piece in parts)
    return mark_safe(html)  # noqa: S308  # tags of our own and escaped text


def overwritten(text: str) -> str:
    """Return the text with what each line was last, where programs write it again after a carriage return.

    So a progress bar of a thousand updates is one line, that of the last one.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


@cache
def _tag(look: Look) -> str:
    """Return the beginning of the span, "" for plain text; there are as many as there are looks."""
    colours = [f"ansi-{look.colour}"] if look.colour is not None else []
    grounds = [f"ansi-on-{look.ground}"] if look.ground is not None else []
    classes = [*colours, *grounds, *(name for number, name in _FLAGS.items() if look.flags >> number & 1)]
    return format_html('<span class="{}">', " ".join(classes)) if classes else ""


def _pieces(text: str) -> Iterator[tuple[Look, str]]:
    look, begin = PLAIN, 0
    for code in CODE.finditer(text):
        if piece := text[begin : code.start()]:
            yield look, piece
        begin = code.end()
        if code[1] is not None:
            look = _changed(look, code[1])
    if piece := text[begin:]:
        yield look, piece


@lru_cache(maxsize=1024)
def _changed(look: Look, parameters: str) -> Look:
    """Return the look after a Select Graphic Rendition sequence (ECMA-48, 8.3.117)."""
    colour, ground, flags = look
    written = re.split(r"[;:]", parameters, maxsplit=_MAX_NUMBERS)[:_MAX_NUMBERS]
    numbers = iter([int(number) if number else 0 for number in written])
    for number in numbers:
        if number == 0:
            colour, ground, flags = PLAIN
        elif number in _BASIC:
            is_ground, basic = _BASIC[number]
            colour, ground = (colour, basic) if is_ground else (basic, ground)
        elif number in (38, 39):
            colour = _extended(numbers) if number == 38 else None
        elif number in (48, 49):
            ground = _extended(numbers) if number == 48 else None
        elif number in _FLAGS:
            flags |= 1 << number
        else:
            flags &= ~_RESETS.get(number, 0)
    return Look(colour, ground, flags)


def _extended(numbers: Iterator[int]) -> int | None:
    """Take one of 256 colours, or a red, green and blue, from the numbers; return the nearest of the sixteen."""
    kind = next(numbers, 0)
    wanted = list(islice(numbers, {5: 1, 2: 3}.get(kind, 0)))
    if kind == 5 and wanted:
        return _of_256(wanted[0])
    return _nearest(*wanted) if kind == 2 and len(wanted) == 3 else None


def _of_256(number: int) -> int:
    if number < _CUBE_FIRST:
        return number
    if number >= _GREY_FIRST:
        grey = min(255, 8 + (number - _GREY_FIRST) * 10)
        return _nearest(grey, grey, grey)
    red, rest = divmod(number - _CUBE_FIRST, 36)
    return _nearest(_LEVELS[red], _LEVELS[rest // 6], _LEVELS[rest % 6])


def _nearest(red: int, green: int, blue: int) -> int:
    """Return the terminal colour: a bit for each part that is strong, and eight for bright ones."""
    strongest = max(red, green, blue)
    if strongest < 64:
        return 0
    bits = sum(bit for bit, part in ((1, red), (2, green), (4, blue)) if part > strongest * 0.6)
    return 8 if bits == 7 and strongest < 128 else bits + 8 * (strongest > 191)
