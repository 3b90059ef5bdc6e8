"""The text frames of a terminal's websocket; its binary frames are terminal input and output. Pure."""

import json
from dataclasses import dataclass
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


PONG: Final = json.dumps({"pong": 1})


def message_from_text(text: str) -> Resize | Ack | Ping:
    """Read `{"resize": [columns, rows]}`, `{"ack": count}` or `{"ping": 1}`. Raises ValueError for anything else."""
    if len(text) > MAX_MESSAGE_LENGTH:
        raise ValueError(f"{len(text)} characters")
    match json.loads(text):
        case {"resize": [int(columns), int(rows)]} if _is_side(columns) and _is_side(rows):
            return Resize(columns, rows)
        case {"ack": int(count)} if count > 0:
            return Ack(count)
        case {"ping": _}:
            return Ping()
    raise ValueError(text[:80])


def text_from_ack(count: int) -> str:
    """Return the frame that confirms `count` bytes of input."""
    return json.dumps({"ack": count})


def close_reason(words: str) -> str:
    """Return `words` cut to what fits into a close frame."""
    return words.encode()[:REASON_BYTES].decode(errors="ignore")


def _is_side(count: int) -> bool:
    return 1 <= count <= MAX_SIDE
