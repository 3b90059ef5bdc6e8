"""Reads how many tokens a model has read and written from the response that passes, which stays as it is.

OpenAI-compatible servers say so in a field `usage`: of a JSON body, or of one of the last events of a stream if the
client asked for it. The end of a body is kept, and searched once it has passed; nothing is parsed on the way.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from proxy.budgets import NOTHING_USED, TokenUse
from proxy.http.response_parser import CHUNKED_BODY, NO_BODY, ResponseHead

END_BYTES: Final = 16 * 1024  # of the end of a body, at least; twice as many at most
MAX_CANDIDATES: Final = 8  # fields of this name that are looked at, the last first
MAX_COUNT: Final = 10**9  # tokens of one response
OK: Final = 200
MEDIA_TYPES: Final = frozenset({b"application/json", b"text/event-stream"})
NAMES: Final = (("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"))
_CHUNK_LINE: Final = re.compile(rb"\r\n[0-9A-Fa-f]{1,16}(?:;[^\r\n]{0,256})?\r\n")  # between two chunks
_DECODER: Final = json.JSONDecoder()  # takes longer to make than to use
_FIELD: Final = re.compile(rb'"usage"\s*:\s*(?=\{)')


class UsageReader:
    """Keeps the end of one response's body."""

    __slots__ = ("_end", "_is_chunked")

    def __init__(self, *, is_chunked: bool) -> None:
        self._end = bytearray()
        self._is_chunked = is_chunked

    def feed(self, data: bytes) -> None:
        """Take note of a part of the body, of a chunked one with its framing."""
        self._end += data if len(data) <= END_BYTES else data[-END_BYTES:]
        if len(self._end) > 2 * END_BYTES:
            del self._end[:-END_BYTES]

    def used(self) -> TokenUse:
        """Return what the body's end says; nothing if it does not."""
        end = bytes(self._end)
        if self._is_chunked:
            end = _CHUNK_LINE.sub(b"", end)
        fields = [match.end() for match in _FIELD.finditer(end)]
        for start in reversed(fields[-MAX_CANDIDATES:]):
            if found := _use(end[start:]):
                return found
        return NOTHING_USED


def usage_reader(head: ResponseHead) -> UsageReader | None:
    """Return what reads the body of this response; None where it has none that could say it."""
    if head.status != OK or head.framing is NO_BODY:
        return None
    media_type = coding = b""
    for name, value in head.headers:
        size = len(name)
        if size == 12 and name.lower() == b"content-type":
            media_type = value.partition(b";")[0].strip().lower()
        elif size == 16 and name.lower() == b"content-encoding":
            coding = value.strip().lower()
    if media_type not in MEDIA_TYPES or coding not in (b"", b"identity"):
        return None
    return UsageReader(is_chunked=head.framing is CHUNKED_BODY)


def _use(text: bytes) -> TokenUse | None:
    """Return what the object at the beginning of the text says, None if it is no such object."""
    try:
        found, _ = _DECODER.raw_decode(text.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    prompt, completion = (_count(found, names) for names in NAMES)
    if prompt is None and completion is None:
        return None
    return TokenUse(prompt_tokens=prompt or 0, completion_tokens=completion or 0)


def _count(found: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = found.get(name)
        if type(value) is int and 0 <= value <= MAX_COUNT:
            return value
    return None
