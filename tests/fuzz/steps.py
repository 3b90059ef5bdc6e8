"""Bounds the work that an input causes by counting lines of the product, which no slow machine changes."""

import sys
from types import FrameType
from typing import Any, Final

from tests.fuzz.catalogue import ROOT, Check

STEPS: Final = 50_000  # lines that any input may take
STEPS_PER_BYTE: Final = 200
OTHERS: Final = (str(ROOT / ".venv"), str(ROOT / "tests"))


class TooManyStepsError(BaseException):
    """More lines were run than the input's length allows; nothing of the product may catch it."""


def run_counted(check: Check, data: bytes) -> None:
    """Run a target on an input. Raises TooManyStepsError."""
    left = STEPS + STEPS_PER_BYTE * len(data)

    def follow(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if event == "line":
            left -= 1
            if left < 0:
                raise TooManyStepsError(f"{frame.f_code.co_filename}:{frame.f_lineno}, for {len(data)} bytes")
        return follow

    def begin(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        return follow if file.startswith(str(ROOT)) and not file.startswith(OTHERS) else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        check(data)
    finally:
        sys.settrace(before)
