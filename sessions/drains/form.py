"""The form by which a superadmin takes a host out of service."""

from datetime import datetime, timedelta

from django import forms
from django.utils.translation import gettext_lazy as _

from accounts.forms import StyledForm
from resources import clock


class DrainForm(StyledForm):
    """What becomes of the sessions that are left, and why."""

    minutes = forms.TypedChoiceField(
        label=_("Sessions that are left"),
        coerce=int,
        empty_value=None,
        required=False,
        choices=[
            ("", _("may finish, however long that takes")),
            (10, _("end in 10 minutes")),
            (60, _("end in 1 hour")),
            (240, _("end in 4 hours")),
            (1440, _("end in 24 hours")),
            (4320, _("end in 3 days")),
        ],
    )
    reason = forms.CharField(
        label=_("Why"),
        max_length=200,
        required=False,
        help_text=_("Such as “new GPUs on Friday”. Everybody who sees the host reads it."),
    )

    def end_at(self) -> datetime | None:
        """Return when the sessions that are left end; None lets them finish."""
        minutes: int | None = self.cleaned_data["minutes"]
        return None if minutes is None else clock.now() + timedelta(minutes=minutes)
