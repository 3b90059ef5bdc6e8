"""The launcher's forms: which app to open and how, and share links. The rules are in `services`."""

from datetime import timedelta
from typing import Any, Final

from django import forms

from resources.models import APP_NAME

PORT: Final = "port"  # in place of an app's name: open the port of the field `port`
SHARE_LIFETIMES: Final = [(1, "an hour"), (24, "a day"), (168, "a week"), (720, "30 days")]  # in hours
PORT_MESSAGE: Final = "Write a port between 1024 and 65535."


class PortField(forms.IntegerField):
    """A port of a container or of the port pool, 1024 to 65535; may be empty."""

    def __init__(self) -> None:
        messages = {"invalid": PORT_MESSAGE, "min_value": PORT_MESSAGE, "max_value": PORT_MESSAGE}
        super().__init__(required=False, min_value=1024, max_value=65535, error_messages=messages)


class OpenForm(forms.Form):
    """The app or port to open; `app_name` and `preferred_port` are the arguments of the service."""

    app = forms.RegexField(f"^{APP_NAME}$", error_messages={"required": "Choose an app.", "invalid": "Choose an app."})
    port = PortField()
    public = forms.BooleanField(required=False)
    use_preferred = forms.BooleanField(required=False)
    preferred = PortField()

    def clean(self) -> dict[str, Any]:
        """Require the port that belongs to the choice; ignore a port beside the choice of an app.

        A preferred port counts if it is filled in, ticked or not: only scripts keep the two in step.
        """
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        self._require("port", cleaned.get("app") == PORT)
        self._require("preferred", bool(cleaned.get("use_preferred") or self.data.get("preferred", "").strip()))
        return cleaned

    @property
    def app_name(self) -> str:
        """The name of the app to open."""
        name: str = self.cleaned_data["app"]
        return f"p{self.cleaned_data['port']}" if name == PORT else name

    @property
    def preferred_port(self) -> int | None:
        """The preferred port of the app's own; None if not requested."""
        port: int | None = self.cleaned_data["preferred"]
        return port

    def _require(self, name: str, is_required: bool) -> None:
        if not is_required:
            self.errors.pop(name, None)
            self.cleaned_data[name] = None
        elif name not in self.errors and self.cleaned_data.get(name) is None:
            self.add_error(name, PORT_MESSAGE)


class ShareForm(forms.Form):
    """The lifetime of a share link, and a note of whom it is for."""

    hours = forms.TypedChoiceField(choices=SHARE_LIFETIMES, coerce=int)
    note = forms.CharField(required=False, max_length=64)

    @property
    def lifetime(self) -> timedelta:
        """The lifetime of the link."""
        return timedelta(hours=self.cleaned_data["hours"])
