"""Forms of webhooks."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from accounts.models import User
from notifications.delivery.texts import KIND_NAMES
from sessions.forms.service_form import ServiceForm
from webhooks import services
from webhooks.destinations import MAX_URL_LENGTH
from webhooks.event_types import DEFAULT_TYPES, NOTIFICATION_TYPES, SESSION_TYPES, types_for
from webhooks.models import NAME_LENGTH, Webhook


class WebhookForm(ServiceForm):
    """Address and events of a new webhook, or of one that is changed."""

    url = forms.CharField(
        label=_("URL"),
        max_length=MAX_URL_LENGTH,
        help_text=_("Where messages are sent, such as https://ci.example.org/hooks/gpu"),
        widget=forms.URLInput(attrs={"spellcheck": "false"}),
    )
    name = forms.CharField(label=_("Name"), max_length=NAME_LENGTH, required=False)
    event_types = forms.MultipleChoiceField(
        label=_("Events"), initial=DEFAULT_TYPES, widget=forms.CheckboxSelectMultiple
    )
    covers_all = forms.BooleanField(
        label=_("Of everybody's sessions"), required=False, help_text=_("Otherwise of your own alone. For superadmins.")
    )
    is_enabled = forms.BooleanField(
        label=_("Enabled"), required=False, help_text=_("Disabling gives up the messages that wait.")
    )

    def __init__(self, user: User, data: Mapping[str, Any] | None = None, webhook: Webhook | None = None) -> None:
        fields = ("url", "name", "event_types", "covers_all", "is_enabled")
        super().__init__(data, initial={each: getattr(webhook, each) for each in fields} if webhook else None)
        self._user, self._webhook = user, webhook
        events = self.fields["event_types"]
        if isinstance(events, forms.MultipleChoiceField):
            events.choices = [(each, _type_text(each)) for each in types_for(user.is_superuser)]
        if not (user.is_superuser or (webhook and webhook.covers_all)):
            del self.fields["covers_all"]
        if webhook is None:
            del self.fields["is_enabled"]

    def save(self) -> tuple[Webhook, str] | None:
        """Store and return (webhook, the secret of a new one); None if refused, with the message at its field."""
        return self.ask(lambda: self._save(**self.cleaned_data))

    def _save(self, **data: Any) -> tuple[Webhook, str]:
        if self._webhook is None:
            return services.create(self._user, types=data.pop("event_types"), **data)
        services.change(self._webhook, data)
        return self._webhook, ""


def _type_text(name: str) -> str | Promise:
    if name in SESSION_TYPES:
        return format_lazy("{text} ({name})", text=_SESSION_TEXTS[name], name=name)
    return format_lazy("{text} ({name})", text=KIND_NAMES[NOTIFICATION_TYPES[name]], name=name)


_SESSION_TEXTS = {
    "session.pending": _("A session waits"),
    "session.scheduled": _("A session has a host"),
    "session.preparing": _("A session is being prepared"),
    "session.running": _("A session is running"),
    "session.terminating": _("A session is being ended"),
    "session.parked": _("A session is parked"),
    "session.terminated": _("A session has ended"),
    "session.cancelled": _("A session ended before it started"),
    "session.error": _("A session has failed"),
}
