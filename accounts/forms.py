"""Forms of signing in."""

from django import forms
from django.contrib.auth.forms import AuthenticationForm


class SignInForm(AuthenticationForm):
    """E-mail address and password."""

    username = forms.EmailField(
        label="E-mail address",
        widget=forms.EmailInput(attrs={"autofocus": True, "autocomplete": "username", "class": "form-control"}),
    )
    error_messages = {
        "invalid_login": "This e-mail address and password do not match. Check both; the password is case-sensitive.",
        "inactive": "This account is disabled.",
    }

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as given
        self.fields["password"].widget.attrs["class"] = "form-control"

    def clean_username(self) -> str:
        """Fold the case, so that one address is one account and one count of failures."""
        return str(self.cleaned_data["username"]).lower()
