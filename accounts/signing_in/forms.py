"""Forms of sign-in and passwords: those of django-allauth, in the look and the words of the platform."""

from typing import Any

from allauth.account import forms as allauth_forms
from django import forms
from django.utils.translation import gettext_lazy as _

from accounts.forms import PlatformLook
from accounts.models import User


class SignInForm(PlatformLook, allauth_forms.LoginForm):
    """E-mail address and password. Failures are counted per account, whatever the spelling of the address."""

    labels = {"login": _("E-mail address"), "password": _("Password")}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].widget.attrs |= {"autofocus": True, "autocomplete": "username"}

    def clean_login(self) -> str:
        """Return the address in lower case, as accounts have it."""
        return str(super().clean_login()).lower()


class PasswordChangeForm(PlatformLook, allauth_forms.ChangePasswordForm):
    """The password of now, and the new one twice. A wrong one counts as a failed sign-in."""

    labels = {
        "oldpassword": _("Old password"),
        "password1": _("New password"),
        "password2": _("New password, once more"),
    }

    def clean_oldpassword(self) -> str:
        """Return the password of now; raise ValidationError if it is wrong."""
        adapter = allauth_forms.get_adapter()
        given = str(self.cleaned_data["oldpassword"])
        if not adapter.reauthenticate(self.user, given):
            raise adapter.validation_error("enter_current_password")
        return given


class PasswordResetForm(PlatformLook, allauth_forms.ResetPasswordForm):
    """The address to which a link for choosing a new password is sent, if an account has it."""

    labels = {"email": _("E-mail address")}


class NewPasswordForm(PlatformLook, allauth_forms.ResetPasswordKeyForm):
    """A new password, twice."""

    labels = {"password1": _("New password"), "password2": _("New password, once more")}


class ConfirmPasswordForm(PlatformLook, allauth_forms.ReauthenticateForm):
    """The password, before something that only the owner of the account may change."""

    labels = {"password": _("Password")}


class NewAccountForm(PlatformLook, allauth_forms.SetPasswordForm):
    """Name and password of somebody who was invited."""

    first_name = forms.CharField(max_length=150, required=False)
    last_name = forms.CharField(max_length=150, required=False)
    labels = {
        "first_name": _("First name"),
        "last_name": _("Last name"),
        "password1": _("Password"),
        "password2": _("Password, once more"),
    }
    field_order = ("first_name", "last_name", "password1", "password2")

    def fill(self, user: User) -> None:
        """Give the user what was entered, without saving."""
        user.first_name, user.last_name = self.cleaned_data["first_name"], self.cleaned_data["last_name"]
        user.set_password(self.cleaned_data["password1"])
