"""Forms for signing in, and for one's own account."""

from datetime import timedelta

from django import forms
from django.contrib.auth import authenticate
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.core.exceptions import ValidationError
from django.http import QueryDict
from django.utils.translation import gettext_lazy as _

from accounts import services, tokens
from accounts.models import ApiToken, SshKey, TokenScope, User
from accounts.public_keys import MAX_KEY_LENGTH, InvalidPublicKeyError
from accounts.requests import UserRequest
from accounts.tokens import TokenRejectedError


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


class ProfileForm(forms.ModelForm[User]):
    """The user's own name."""

    class Meta:
        model = User
        fields = ("first_name", "last_name")
        widgets = {
            "first_name": forms.TextInput(attrs={"class": "form-control", "autocomplete": "given-name"}),
            "last_name": forms.TextInput(attrs={"class": "form-control", "autocomplete": "family-name"}),
        }


class ChangePasswordForm(PasswordChangeForm):
    """The password of now, and the new one twice. A wrong one counts as a failed sign-in."""

    def __init__(self, request: UserRequest, data: QueryDict | None = None) -> None:
        super().__init__(request.user, data)
        self._request = request
        for field in self.fields.values():
            field.widget.attrs["class"] = "form-control"
            field.widget.attrs.pop("autofocus", None)

    def clean_old_password(self) -> str:
        """Return the password of now; raise ValidationError if it is wrong."""
        given = str(self.cleaned_data["old_password"])
        if authenticate(self._request, username=self.user.email, password=given) is None:
            raise ValidationError(self.error_messages["password_incorrect"], code="password_incorrect")
        return given


class TokenForm(forms.Form):
    """A new API token."""

    name = forms.CharField(
        label=_("Name"),
        max_length=64,
        help_text=_("What uses it, such as “backup script”"),
        widget=forms.TextInput(attrs={"class": "form-control", "autocomplete": "off"}),
    )
    scope = forms.ChoiceField(
        label=_("May be used for"),
        choices=TokenScope.choices,
        initial=TokenScope.FULL.value,
        widget=forms.Select(attrs={"class": "form-select"}),
    )
    days = forms.TypedChoiceField(
        label=_("Valid for"),
        coerce=int,
        initial=30,
        choices=[
            (7, _("7 days")),
            (30, _("30 days")),
            (90, _("90 days")),
            (365, _("1 year")),
        ],
        widget=forms.Select(attrs={"class": "form-select"}),
    )

    def save(self, owner: User) -> tuple[ApiToken, str] | None:
        """Make and return (token, its text); None if it is refused, with the message at the name."""
        lifetime = timedelta(days=self.cleaned_data["days"])
        try:
            return tokens.create_token(
                owner, self.cleaned_data["name"], scope=self.cleaned_data["scope"], lifetime=lifetime
            )
        except TokenRejectedError as error:
            self.add_error("name", str(error))
            return None
