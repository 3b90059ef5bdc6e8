"""Forms whose service may refuse what they ask for. What it refuses appears at the fields."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from accounts.forms import StyledForm
from sessions.errors import RejectedError

_Made = TypeVar("_Made")


class ServiceForm(StyledForm):
    """A form for a service; `service_fields` are the names of the service's fields that are others here."""

    service_fields: Mapping[str, str] = {}

    def ask(self, service: Callable[[], _Made]) -> _Made | None:
        """Return what the service returns; None with its refusal in the form's errors."""
        try:
            return service()
        except RejectedError as refusal:
            self.refuse(refusal)
        return None

    def refuse(self, refusal: RejectedError) -> None:
        """Show the messages of a refusal at their fields, and those that concern none above."""
        for name, message in refusal.errors.items():
            shown = self.service_fields.get(name, name)
            self.add_error(shown if shown in self.fields else None, message)
