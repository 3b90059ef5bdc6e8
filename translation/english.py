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
from translation.text_pattern import PLACEHOLDER, TextPattern

MAX_LENGTH: Final = 4000  # characters; what is composed here is shorter, but users' own words may be in it
_MAX_DEPTH: Final = 6  # of sentences in values of sentences
_SENTENCE_END: Final = re.compile(r"(?<=[.!?]) (?=[A-Z])")
_LISTING: Final = re.compile(r", | and ")


def from_english(text: str) -> str:
    """Return a text composed in English in the current language; what is not recognized stays English.

    Several sentences are translated one by one, and so are the values in a sentence, such as "2 CPU cores and 1 fGPU".
    """
    language = get_language() or "en"
    return text if language == "en" or not text or len(text) > MAX_LENGTH else _translated(text, language)


def is_recognized(text: str) -> bool:
    """Return whether a text, or each of its sentences, is one of the known texts."""
    return all(_match(sentence) for sentence in _SENTENCE_END.split(text)) or _match(text) is not None


@lru_cache(maxsize=10_000)
def _translated(text: str, language: str, depth: int = 0) -> str:
    """Return a text in `language`, the current one; it is an argument as a part of the cache's key."""
    if depth > _MAX_DEPTH:
        return text
    if (found := _match(text)) is not None:
        known, values = found
        return gettext(known) % {name: _value(value, language, depth + 1) for name, value in values.items()}
    sentences = _SENTENCE_END.split(text)
    return " ".join(_translated(each, language, depth + 1) for each in sentences) if len(sentences) > 1 else text


def _value(text: str, language: str, depth: int) -> str:
    """Return the value of a placeholder, part by part where it is a listing of known texts."""
    parts = _LISTING.split(text)
    if all(map(_match, parts)):
        return ", ".join(_translated(part, language, depth) for part in parts)
    return _translated(text, language, depth)


def _match(text: str) -> tuple[str, dict[str, str]] | None:
    """Return the known text that matches, and the values of its placeholders."""
    for pattern in _patterns():
        if (values := pattern.values_in(text)) is not None:
            return pattern.text, values
    return None


@cache
def _patterns() -> list[TextPattern]:
    """Return a pattern for each known text; first those that say most in words of their own."""
    texts = sorted(ENGLISH_TEXTS, key=lambda text: len(PLACEHOLDER.sub("", text)), reverse=True)
    return [TextPattern(text) for text in texts]
