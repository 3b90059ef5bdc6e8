"""Forms of second factors: those of django-allauth, in the look of the platform, with its lock-out and origin check."""

from json import loads
from typing import Any, Final
from urllib.parse import urlsplit

from allauth.core import context
from allauth.mfa.adapter import get_adapter
from allauth.mfa.base import forms as code_forms
from allauth.mfa.models import Authenticator
from allauth.mfa.totp import forms as totp_forms
from allauth.mfa.webauthn import forms as passkey_forms
from django import forms
from django.forms.utils import ErrorDict
from django.utils.translation import gettext_lazy as _
from fido2.utils import websafe_decode

from accounts.forms import PlatformLook
from accounts.second_factors import services as second_factors

NAME_LENGTH: Final = 64


class _LockedOut(code_forms.BaseAuthenticateForm):
    """Wrong codes are failures of the account, as wrong passwords are."""

    def clean_code(self) -> str:
        """Return the code; raise ValidationError if it is wrong, or the account locked."""
        if not second_factors.may_try(context.request, self.user):
            raise get_adapter().validation_error("incorrect_code")
        code = self.cleaned_data["code"]
        if second_factors.was_used(self.user, code):
            second_factors.count_failure(context.request, self.user)
            raise get_adapter().validation_error("incorrect_code")
        super().clean_code()
        second_factors.note_use(self.user, code)
        return str(code)

    def _emit_authentication_failed(self, authenticator: Authenticator) -> None:
        second_factors.count_failure(context.request, self.user)
        super()._emit_authentication_failed(authenticator)


class CodeForm(PlatformLook, _LockedOut, code_forms.AuthenticateForm):
    """The code of an authenticator app, or a recovery code, after the password."""

    labels = {"code": _("Code")}
    help_texts = {"code": _("Of your authenticator app, or one of your recovery codes")}


class ConfirmCodeForm(PlatformLook, _LockedOut, code_forms.ReauthenticateForm):
    """A code, before something that only the owner of the account may change."""

    labels = CodeForm.labels
    help_texts = CodeForm.help_texts


class ActivateAppForm(PlatformLook, totp_forms.ActivateTOTPForm):
    """The first code of an authenticator app, which shows that it has the secret."""

    labels = {"code": _("Code that the app shows")}


class _OwnOrigin(forms.Form):
    """Takes credentials that a page of this very origin has asked for.

    WebAuthn itself lets every subdomain use a credential of the platform's name, and apps of sessions, which are
    anybody's programs, live on subdomains. https://www.w3.org/TR/webauthn-3/#sctn-validating-origin
    """

    def full_clean(self) -> None:
        """Validate; a credential that a page elsewhere has asked for is looked at no further."""
        if self.is_bound and not _is_of_own_origin(self.data.get("credential")):
            self._errors, self.cleaned_data = ErrorDict(), {}
            self.add_error("credential", get_adapter().validation_error("incorrect_code"))
        else:
            super().full_clean()


class AddPasskeyForm(PlatformLook, _OwnOrigin, passkey_forms.AddWebAuthnForm):
    """A passkey or security key to add, with its name."""

    labels = {"name": _("Name"), "passwordless": _("Sign in with it alone, without the password")}
    help_texts = {
        "name": _("Such as “laptop” or “blue key”"),
        "passwordless": _("It then asks for a PIN, a finger or a face."),
    }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].widget.attrs |= {"maxlength": NAME_LENGTH, "autocomplete": "off"}
        if "passwordless" in self.fields:
            self.fields["passwordless"].initial = True

    def clean(self) -> dict[str, Any]:
        """Return the data; raise ValidationError if the credential is none that a browser has made."""
        try:
            return super().clean() or self.cleaned_data
        except (ValueError, KeyError, AttributeError):
            raise get_adapter().validation_error("incorrect_code") from None

    def clean_name(self) -> str:
        """Return the name, one if none was given: the browser has made the passkey already."""
        return str(super().clean_name())[:NAME_LENGTH] or str(_("Passkey"))


class RenamePasskeyForm(PlatformLook, passkey_forms.EditWebAuthnForm):
    """The name of a passkey."""

    labels = {"name": _("Name")}

    def clean_name(self) -> str:
        """Return the name, cut to what fits."""
        return str(self.cleaned_data["name"])[:NAME_LENGTH]


class PasskeyForm(_OwnOrigin, passkey_forms.AuthenticateWebAuthnForm):
    """A passkey as the second factor, after the password."""


class PasskeySignInForm(_OwnOrigin, passkey_forms.LoginWebAuthnForm):
    """A passkey in place of e-mail address, password and second factor."""

    def clean_credential(self) -> Authenticator:
        """Return the passkey; raise ValidationError where a new password has come since it was used with one."""
        found: Authenticator = super().clean_credential()
        if second_factors.needs_password(found):
            raise get_adapter().validation_error("passkey_needs_password")
        return found


class ConfirmPasskeyForm(_OwnOrigin, passkey_forms.ReauthenticateWebAuthnForm):
    """A passkey, before something that only the owner of the account may change."""


def _is_of_own_origin(credential: Any) -> bool:
    try:
        sent = loads(websafe_decode(loads(credential)["response"]["clientDataJSON"]))["origin"]
    except (ValueError, TypeError, KeyError):
        return False
    own = urlsplit(context.request.build_absolute_uri("/"))
    return bool(sent == f"{own.scheme}://{own.netloc}")
