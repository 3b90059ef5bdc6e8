"""Translation of sentences that were composed in English where no reader is known, and are translated when shown.

The scheduler and the host workers store reasons and problems in the database; modules without Django raise errors. Such
a sentence is recognized by the texts of `translation.english_texts`, whose placeholders match anything. ADR 0032 says
why.
"""

import re
from functools import cache, lru_cache
from typing import Final

from django.utils.translation import get_language, gettext

from translation.english_texts import ENGLISH_TEXTS

_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_NUMBERS: Final = {"all", "count", "done"}  # placeholders that stand for numbers alone
_NUMBER: Final = r"[\d.,]+"
_ANYTHING: Final = r"(?:(?![.!?] [A-Z]).)+?"  # but the end of one sentence and the beginning of the next
_LISTING: Final = re.compile(r", | and ")


def from_english(text: str) -> str:
    """Return a text composed in English in the current language; what is not recognized stays English.

    Several sentences are translated one by one, and so are the values in a sentence, such as "2 CPU cores and 1 fGPU".
    """
    language = get_language() or "en"
    return text if language == "en" or not text else _translated(text, language)


def is_recognized(text: str) -> bool:
    """Return whether a text, or each of its sentences, is one of the known texts."""
    return all(_match(sentence) for sentence in _SENTENCE_END.split(text)) or _match(text) is not None


@lru_cache(maxsize=10_000)
def _translated(text: str, language: str) -> str:
    """Return a text in `language`, the current one; it is an argument as a part of the cache's key."""
    if (found := _match(text)) is not None:
        known, values = found
        return gettext(known) % {name: _value(value, language) for name, value in values.items()}
    sentences = _SENTENCE_END.split(text)
    return " ".join(_translated(each, language) for each in sentences) if len(sentences) > 1 else text


def _value(text: str, language: str) -> str:
    """Return the value of a placeholder, part by part where it is a listing of known texts."""
    parts = _LISTING.split(text)
    if all(map(_match, parts)):
        return ", ".join(_translated(part, language) for part in parts)
    return _translated(text, language)


def _match(text: str) -> tuple[str, dict[str, str]] | None:
    """Return the known text that matches, and the values of its placeholders."""
    for pattern, known in _patterns():
        if found := pattern.fullmatch(text):
            return known, found.groupdict()
    return None


@cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    """Return a pattern for each known text; first those that say most in words of their own."""
    texts = sorted(ENGLISH_TEXTS, key=lambda text: len(_PLACEHOLDER.sub("", text)), reverse=True)
    return [(_pattern(text), text) for text in texts]


def _pattern(text: str) -> re.Pattern[str]:
    literals_and_names = _PLACEHOLDER.split(text)
    parts = [
        f"(?P<{part}>{_NUMBER if part in _NUMBERS else _ANYTHING})"
        if number % 2
        else re.escape(part.replace("%%", "%"))
        for number, part in enumerate(literals_and_names)
    ]
    return re.compile("".join(parts), re.DOTALL)
