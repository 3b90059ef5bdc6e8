"""The launcher's form: which app to open, and how. The rules themselves are in services."""

from datetime import timedelta
from typing import Any, Final

from django import forms

from resources.models import APP_NAME

PORT: Final = "port"  # in place of an app's name: the port in the field beside it
LIVES: Final = [(1, "an hour"), (24, "a day"), (168, "a week"), (720, "30 days")]  # of a share link, in hours
PORT_WORDS: Final = "Write a port between 1024 and 65535."


class PortField(forms.IntegerField):
    """A port of a container, or of the pool."""

    def __init__(self) -> None:
        words = {"invalid": PORT_WORDS, "min_value": PORT_WORDS, "max_value": PORT_WORDS}
        super().__init__(required=False, min_value=1024, max_value=65535, error_messages=words)


class OpenForm(forms.Form):
    """What to open; `app` and `preferred_port` are what the service takes."""

    app = forms.RegexField(f"^{APP_NAME}$", error_messages={"required": "Choose an app.", "invalid": "Choose an app."})
    port = PortField()
    public = forms.BooleanField(required=False)
    use_preferred = forms.BooleanField(required=False)
    preferred = PortField()

    def clean(self) -> dict[str, Any]:
        """Require the number that belongs to what was chosen; overlook a port beside the choice of another app.

        A preferred port that is written is meant, ticked or not: scripts keep the two in step, where there are any.
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
        """The port that the app shall have to itself; None: that was not asked for."""
        port: int | None = self.cleaned_data["preferred"]
        return port

    def _require(self, name: str, is_meant: bool) -> None:
        if not is_meant:
            self.errors.pop(name, None)
            self.cleaned_data[name] = None
        elif name not in self.errors and self.cleaned_data.get(name) is None:
            self.add_error(name, PORT_WORDS)


class ShareForm(forms.Form):
    """How long a share link is good for, and whom it is for."""

    hours = forms.TypedChoiceField(choices=LIVES, coerce=int)
    note = forms.CharField(required=False, max_length=64)

    @property
    def life(self) -> timedelta:
        """How long the link is good for."""
        return timedelta(hours=self.cleaned_data["hours"])
