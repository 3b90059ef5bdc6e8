"""The text frames of a terminal's websocket; its binary frames are terminal input and output. Pure."""

import json
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import Final

MAX_SIDE: Final = 1000  # columns or rows; a program that draws more than this would only burn memory
MAX_MESSAGE_LENGTH: Final = 200  # characters
REASON_BYTES: Final = 123  # what a close frame holds (RFC 6455, 5.5)


class CloseCode(IntEnum):
    """Why the server closed a terminal; static/js/terminal.js reads them."""

    SHELL_EXITED = 1000
    PROTOCOL_BROKEN = 1008
    SIGNED_OUT = 4401
    NOT_FOUND = 4404  # no such session, not yours, or not running: a stranger learns nothing
    STALE = 4408  # input came that may have been typed long ago; the browser connects again
    SESSION_ENDED = 4410
    ENGINE_TROUBLE = 4502


@dataclass(frozen=True, slots=True)
class Resize:
    """The window has this size now."""

    columns: int
    rows: int


@dataclass(frozen=True, slots=True)
class Ack:
    """So many more bytes have been dealt with."""

    count: int


@dataclass(frozen=True, slots=True)
class Ping:
    """Is the connection still there?"""

    number: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to this ping had arrived when the input that follows was sent."""

    number: int


def message_from_text(text: str) -> Resize | Ack | Ping | Seen:
    """Read `{"resize": [columns, rows]}`, `{"ack": count}`, `{"ping": number}` or `{"seen": number}`.

    Raises ValueError for anything else.
    """
    if len(text) > MAX_MESSAGE_LENGTH:
        raise ValueError(f"{len(text)} characters")
    match json.loads(text):
        case {"resize": [int(columns), int(rows)]} if _is_side(columns) and _is_side(rows):
            return Resize(columns, rows)
        case {"ack": int(count)} if count > 0:
            return Ack(count)
        case {"ping": int(number)}:
            return Ping(number)
        case {"seen": int(number)}:
            return Seen(number)
    raise ValueError(text[:80])


def text_from_ack(count: int) -> str:
    """Return the frame that confirms `count` bytes of input."""
    return json.dumps({"ack": count})


def text_from_pong(number: int) -> str:
    """Return the frame that answers a ping."""
    return json.dumps({"pong": number})


def text_from_end(ends_at: datetime | None, *, is_idle: bool = False) -> str:
    """Return the frame that says when the session ends, and whether that is because it is idle."""
    return json.dumps({"ends_at": ends_at and ends_at.isoformat(), "idle": is_idle})


def text_from_state(state: str, words: str) -> str:
    """Return the frame that says why the session does not run, whole where a close frame has no room for it.

    `state` is "parking", "parked", "waiting" where it will run again by itself, or "ended".
    """
    return json.dumps({"ended": words, "state": state})


def close_reason(words: str) -> str:
    """Return `words` cut to what fits into a close frame."""
    return words.encode()[:REASON_BYTES].decode(errors="ignore")


def _is_side(count: int) -> bool:
    return 1 <= count <= MAX_SIDE
