"""Output of programs as HTML: colours of terminals become classes, all other control codes are left out. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

# A CSI sequence, an OSC sequence (a title or a link), a charset or a two-character code; the group is that of colours.
CODE: Final = re.compile(
    r"\x1b(?:\[([0-9;:]{0,200})m|\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][0-9A-Za-z]|[@-Z\\-_=>78])"
)
UNSEEN: Final = re.compile(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f]")
_CUBE_FIRST: Final = 16  # of the 256 colours: six levels each of red, green and blue, then greys
_GREY_FIRST: Final = 232
_LEVELS: Final = (0, 95, 135, 175, 215, 255)


@dataclass(frozen=True, slots=True)
class Look:
    """How text looks; a colour is one of the sixteen of terminals, None the default."""

    colour: int | None = None
    ground: int | None = None
    is_bold: bool = False
    is_dim: bool = False
    is_italic: bool = False
    is_underlined: bool = False
    is_inverse: bool = False

    def classes(self) -> str:
        """Return the CSS classes; "" for plain text."""
        flags = {
            "ansi-bold": self.is_bold,
            "ansi-dim": self.is_dim,
            "ansi-italic": self.is_italic,
            "ansi-underlined": self.is_underlined,
            "ansi-inverse": self.is_inverse,
        }
        colours = [f"ansi-{self.colour}"] if self.colour is not None else []
        grounds = [f"ansi-on-{self.ground}"] if self.ground is not None else []
        return " ".join([*colours, *grounds, *(name for name, is_set in flags.items() if is_set)])


PLAIN: Final = Look()
_FLAGS: Final = {1: "is_bold", 2: "is_dim", 3: "is_italic", 4: "is_underlined", 7: "is_inverse"}
_RESETS: Final[dict[int, dict[str, Any]]] = {
    22: {"is_bold": False, "is_dim": False},
    23: {"is_italic": False},
    24: {"is_underlined": False},
    27: {"is_inverse": False},
    39: {"colour": None},
    49: {"ground": None},
}


def coloured(text: str) -> SafeString:
    """Return the text as HTML, with spans for what is not plain."""
    parts = (_part(look, UNSEEN.sub("", piece)) for look, piece in _pieces(overwritten(text)))
    return format_html_join("", "{}", ((part,) for part in parts))


def overwritten(text: str) -> str:
    """Return the text with what each line was last, where programs write it again after a carriage return.

    So a progress bar of a thousand updates is one line, that of the last one.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)


def _part(look: Look, piece: str) -> SafeString:
    classes = look.classes()
    return format_html('<span class="{}">{}</span>', classes, piece) if classes else format_html("{}", piece)


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


def _changed(look: Look, parameters: str) -> Look:
    """Return the look after a Select Graphic Rendition sequence (ECMA-48, 8.3.117)."""
    numbers = [int(number) if number else 0 for number in re.split(r"[;:]", parameters)][:32]
    while numbers:
        number = numbers.pop(0)
        if number == 0:
            look = PLAIN
            continue
        changes: dict[str, Any] = _RESETS.get(number) or _basic_colour(number)
        if number in (38, 48):
            changes = {"colour" if number == 38 else "ground": _extended(numbers)}
        elif number in _FLAGS:
            changes = {_FLAGS[number]: True}
        look = replace(look, **changes)
    return look


def _basic_colour(number: int) -> dict[str, int]:
    """Return the field that one of the sixteen colours changes, and to what; {} for any other number."""
    for first, name, offset in ((30, "colour", 0), (90, "colour", 8), (40, "ground", 0), (100, "ground", 8)):
        if first <= number < first + 8:
            return {name: number - first + offset}
    return {}


def _extended(numbers: list[int]) -> int | None:
    """Take one of 256 colours, or a red, green and blue, from the numbers; return the nearest of the sixteen."""
    kind = numbers.pop(0) if numbers else 0
    if kind == 5 and numbers:
        return _of_256(numbers.pop(0))
    if kind == 2 and len(numbers) >= 3:
        rgb = (numbers.pop(0), numbers.pop(0), numbers.pop(0))
        return _nearest(*rgb)
    return None


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
