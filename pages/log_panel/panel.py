"""What the panel of a log shows: the end of some output, or why it cannot be had."""

import hashlib
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from django.http import HttpResponse

from pages.log_panel.ansi import coloured
from sessions.following import logs

PAGE_LINES: Final = 2000  # of a page of its own
SHOWN_CHARACTERS: Final = 256 * 1024  # whose colours take a moment at most; a line may have any length

ReadLines = Callable[[int], str]  # reads the last so many lines; raises LogsUnavailableError


class ShownOutput(NamedTuple):
    """The end of some output, or why it cannot be had; the digest is that of both."""

    problem: str
    text: str
    digest: str

    def context(self, *, is_final: bool) -> dict[str, Any]:
        """Return what the panel's templates need of it."""
        return {
            "log_problem": self.problem,
            "log_html": coloured(self.text),
            "log_digest": self.digest,
            "log_is_final": is_final,
        }


def read_shown(read: ReadLines, lines: int, *, is_final: bool) -> ShownOutput:
    """Return what is shown of the last lines."""
    problem = text = ""
    try:
        text = read(lines)[-SHOWN_CHARACTERS:]
    except logs.LogsUnavailableError as error:
        problem = str(error)
    digest = hashlib.sha256(f"{is_final}{problem}{text}".encode(errors="replace")).hexdigest()[:16]
    return ShownOutput(problem, text, digest)


def download(read: ReadLines, name: str) -> HttpResponse:
    """Return the output as a text file, as it was written."""
    try:
        text, status = read(logs.DOWNLOAD_LINES), 200
    except logs.LogsUnavailableError as error:
        text, status = str(error), 503
    response = HttpResponse(text, content_type="text/plain; charset=utf-8", status=status)
    response["Content-Disposition"] = f'attachment; filename="{name}.log"'
    return response
