"""Forms for signing in and for SSH keys."""

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.utils.translation import gettext_lazy as _

from accounts import services
from accounts.models import SshKey, User
from accounts.public_keys import MAX_KEY_LENGTH, InvalidPublicKeyError


class SignInForm(AuthenticationForm):
    """E-mail address and password."""

    username = forms.EmailField(
        label=_("E-mail address"),
        widget=forms.EmailInput(attrs={"autofocus": True, "autocomplete": "username", "class": "form-control"}),
    )
    error_messages = {
        "invalid_login": _(
            "This e-mail address and password do not match. Check both; the password is case-sensitive."
        ),
        "inactive": _("This account is disabled."),
    }

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]  # passed through as given
        self.fields["password"].widget.attrs["class"] = "form-control"

    def clean_username(self) -> str:
        """Return the address in lower case, so that failed attempts are counted per account."""
        return str(self.cleaned_data["username"]).lower()


class SshKeyForm(forms.Form):
    """A public key to add, and its title."""

    key = forms.CharField(
        label=_("Public key"),
        max_length=MAX_KEY_LENGTH,
        help_text=_("The line in the file that ends in .pub, such as ssh-ed25519 AAAA... you@laptop"),
        widget=forms.Textarea(attrs={"class": "form-control", "rows": 4, "spellcheck": "false", "autocomplete": "off"}),
    )
    title = forms.CharField(
        max_length=services.TITLE_LENGTH,
        required=False,
        label=_("Title"),
        help_text=_("Such as the computer that has the private key; empty: the comment of the key"),
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )

    def save(self, owner: User) -> SshKey | None:
        """Add and return the key; None if it is refused, with the message at its field."""
        try:
            return services.add_ssh_key(owner, self.cleaned_data["key"], self.cleaned_data["title"])
        except InvalidPublicKeyError as error:
            self.add_error("key", str(error))
            return None
