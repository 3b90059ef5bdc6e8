"""Forms of tokens of deployments: of a new one, and of limits. The rules are in `deployments.access.tokens`."""

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy

from deployments.access.tokens import LIMITS
from deployments.models import Deployment, DeploymentToken
from deployments.validation import MAX_TOKEN_LIFE, MAX_TOKEN_NAME_LENGTH
from pages.deployments.forms import number_field, text_field
from sessions.forms.service_form import ServiceForm


class TokenLimitsForm(ServiceForm):
    """Limits of a token; what is left empty is not said."""

    rate_per_minute = number_field(
        gettext_lazy("Requests a minute"), gettext_lazy("At most; 0: no limit"), required=False
    )
    monthly_requests = number_field(
        gettext_lazy("Requests a month"), gettext_lazy("Of the calendar, in UTC; 0: no limit"), required=False
    )
    monthly_tokens = number_field(
        gettext_lazy("Tokens a month"), gettext_lazy("That models read and write for it; 0: no limit"), required=False
    )

    def limits(self) -> dict[str, int]:
        """Return those that the valid form says."""
        return {name: self.cleaned_data[name] for name in LIMITS if self.cleaned_data[name] is not None}


class ChangedLimitsForm(TokenLimitsForm):
    """Limits of a token that there is."""

    token = forms.ModelChoiceField(DeploymentToken.objects.none(), label=gettext_lazy("Token"), empty_label=None)
    field_order = ("token",)

    @classmethod
    def of(cls, deployment: Deployment, data: Any = None) -> "ChangedLimitsForm":
        """Return the form for the tokens of the deployment that are not revoked."""
        form = cls(data, prefix="limits")
        field: Any = form.fields["token"]
        field.queryset = deployment.tokens.listed().filter(revoked_at=None).select_related("deployment__owner")
        return form


class DeploymentTokenForm(TokenLimitsForm):
    """A token to make."""

    name = text_field(
        gettext_lazy("Name"), gettext_lazy("Of what will use it"), required=True, max_length=MAX_TOKEN_NAME_LENGTH
    )
    days = forms.IntegerField(
        label=gettext_lazy("Valid for days"),
        help_text=gettext_lazy("Empty: until it is revoked"),
        required=False,
        min_value=1,
        max_value=MAX_TOKEN_LIFE.days - 1,
    )
    field_order = ("name", "days")
