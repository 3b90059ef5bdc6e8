"""What Django reports to the admission of a request, with which it schedules later ones."""

from dataclasses import dataclass
from typing import Final

from django.http import HttpRequest

KEY: Final = "admission"  # in the request's ASGI scope


@dataclass
class RequestReport:
    """A request as Django has found it: its user, where `is_known`, and the CPU time of its thread."""

    is_known: bool = False
    user_id: int | None = None
    thread_seconds: float | None = None


def report_of(request: HttpRequest) -> RequestReport:
    """Return where the facts of a request go; without an admission, where nobody reads them."""
    scope = getattr(request, "scope", {})
    found = scope.get(KEY)
    return found if isinstance(found, RequestReport) else RequestReport()
