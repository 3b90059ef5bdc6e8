"""What the pages do with several entries of a folder at once: each is tried, and the outcome is one sentence."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from folders.errors import FolderError
from folders.files.errors import FilesError
from folders.files.paths import display

SHOWN_PROBLEMS: Final = 3


@dataclass(slots=True)
class BulkOutcome:
    """What became of several entries: how many succeeded, and why others did not."""

    done: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def level(self) -> str:
        """How the page shows the message."""
        return "danger" if self.problems else "success"

    def message(self, done: str) -> str:
        """Return the sentence for the user; `done` is what was done, such as "moved to the trash"."""
        parts = [f"{self.done} {'entry' if self.done == 1 else 'entries'} {done}."] if self.done else []
        parts += self.problems[:SHOWN_PROBLEMS]
        if len(self.problems) > SHOWN_PROBLEMS:
            parts.append(f"{len(self.problems) - SHOWN_PROBLEMS} more have failed.")
        return " ".join(parts) or "Nothing was chosen."


def each(names: Iterable[str], action: Callable[[str], object]) -> BulkOutcome:
    """Run the action for every path or id; what one of them raises does not keep the others."""
    outcome = BulkOutcome()
    for name in names:
        try:
            action(name)
            outcome.done += 1
        except (FilesError, FolderError) as error:
            outcome.problems.append(f"{display(name)}: {error}")
    return outcome
