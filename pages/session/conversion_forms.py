"""The form that saves a session as an image. The rules are in `conversions`."""

from typing import Any

from django import forms

from accounts.models import User
from sessions.conversion import services as conversions
from sessions.forms.service_form import ServiceForm
from sessions.models import Conversion, Session


class ConvertForm(ServiceForm):
    """Name, tag and description of the image; `save` asks for it and shows the messages of a refusal at the fields."""

    name = forms.CharField(required=False, strip=True)
    tag = forms.CharField(required=False, strip=True)
    description = forms.CharField(required=False, strip=True)

    def __init__(self, session: Session, data: Any = None) -> None:
        self.session = session
        super().__init__(data, initial={"name": conversions.suggested_name(session), "tag": "1"})

    def save(self, actor: User) -> Conversion | None:
        """Have the session saved, and return the conversion; None where it was refused, for reasons at the fields."""
        return self.ask(lambda: conversions.request(self.session, actor=actor, **self.cleaned_data))
