"""Results of the checks of `manage.py doctor`."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How a check came out."""

    OK = "OK"
    WARN = "WARN"  # works, or will after `make up`, but needs attention
    FAIL = "FAIL"  # the platform cannot run like this


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with a hint on what to do."""

    verdict: Verdict
    text: str
    hint: str = ""

    def line(self, name: str) -> str:
        """Return the finding as one line of the report."""
        return f"{self.verdict:<5} {name:<14} {self.text}" + (f" -> {self.hint}" if self.hint else "")
