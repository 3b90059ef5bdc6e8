"""The Range header of a request for a file: RFC 9110, section 14."""

import re
from dataclasses import dataclass
from typing import Final

_ONE_RANGE: Final = re.compile(r"(?i:bytes)=[ \t]*([0-9]{0,19})-([0-9]{0,19})[ \t]*")  # 19 digits: below 2**64


class RangeNotSatisfiableError(Exception):
    """The range begins behind the end of the file, or is of no length."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from `start` to before `end`."""

    start: int
    end: int

    @property
    def length(self) -> int:
        """Number of bytes."""
        return self.end - self.start


def parse_range(header: str | None, size_bytes: int) -> ByteRange | None:
    """Return the range of a file of this size that the header asks for; None if the whole file is to be sent.

    The whole file is the answer to no header, to a malformed one, to other units and to several ranges, as RFC 9110,
    section 14.2 allows. Raises RangeNotSatisfiableError.
    """
    match = _ONE_RANGE.fullmatch(header or "")
    if not match or match.group(1) == match.group(2) == "":
        return None
    first, last = match.groups()
    if not first:
        start, end = max(0, size_bytes - int(last)), size_bytes
    else:
        start, end = int(first), min(int(last) + 1, size_bytes) if last else size_bytes
        if last and int(last) < int(first):
            return None  # invalid, section 14.1.1
    if start >= end:
        raise RangeNotSatisfiableError
    return ByteRange(start, end)
