"""What the platform does its own way in django-allauth: who may come in, what counts as a failure, what is mailed."""

import base64
import logging
import secrets
from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from allauth.core import context
from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.models import SocialLogin
from django.conf import settings
from django.contrib.auth import authenticate
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.utils.translation import gettext_lazy as _

from accounts.invitations import services as invitations
from accounts.models import ResourcePolicy, User
from accounts.second_factors import factor_secrets
from accounts.signing_in import mail
from accounts.signing_in.language import language_of, set_language_cookie

logger = logging.getLogger(__name__)


class AccountAdapter(DefaultAccountAdapter):
    """Sign-in by password: failures are counted by django-axes, mails go out in the reader's language."""

    error_messages = DefaultAccountAdapter.error_messages | {
        "email_password_mismatch": _(
            "This e-mail address and password do not match. Check both; the password is case-sensitive."
        ),
        "enter_current_password": _("The password is wrong."),
        "incorrect_password": _("The password is wrong."),
        "incorrect_code": _("This code is wrong, has expired or was used already."),
        "invalid_password_reset": _("This link was used already, or it has expired."),
        "rate_limited": _("Too many attempts. Wait some minutes, then try again."),
        "too_many_login_attempts": _("Too many attempts. Wait some minutes, then try again."),
    }

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        """Return False: accounts come from administrators, invitations and the identity provider."""
        return False

    def is_safe_url(self, url: str) -> bool:
        """Return whether a sign-in may lead to `url`: only this site, at this very host and port."""
        request = context.request
        return url_has_allowed_host_and_scheme(
            url, allowed_hosts={request.get_host()}, require_https=request.is_secure()
        )

    def authenticate(self, request: HttpRequest, **credentials: Any) -> User | None:
        """Return the user of e-mail address and password, None if they do not match; django-axes counts failures."""
        email = str(credentials.get("email") or "")
        found = authenticate(request, username=email, password=str(credentials.get("password") or ""))
        return found if isinstance(found, User) else None

    def reauthenticate(self, user: User, password: str) -> bool:
        """Return whether this is the password of the user, who is signed in already."""
        return self.authenticate(context.request, email=user.email, password=password) == user

    def post_login(self, request: HttpRequest, user: User, **kwargs: Any) -> HttpResponse:
        """Return the response to a finished sign-in, in the language that the user has chosen before."""
        response: HttpResponse = super().post_login(request, user, **kwargs)
        set_language_cookie(response, user)
        return response

    def format_email_subject(self, subject: str) -> str:
        """Return the subject with the name of the product."""
        return f"GPU Platform: {subject}"

    def get_reset_password_from_key_url(self, key: str) -> str:
        """Return the address that the mail names for choosing a new password."""
        path = reverse("account_reset_password_from_key", kwargs={"uidb36": "UID", "key": "KEY"})
        return mail.public_address(path.replace("UID-KEY", key))

    def send_mail(self, template_prefix: str, email: str, context: dict[str, Any]) -> None:
        """Send a mail in the background, in the language of the account that has the address."""
        user = context.get("user") or User.objects.filter(email__iexact=email).first()
        if user is None:
            return
        with language_of(user):
            address = mail.public_address(reverse("home"))
            message = self.render_mail(template_prefix, email, context | {"address": address, "email": email})
        mail.send_soon(message)


class SecondFactorAdapter(DefaultMFAAdapter):
    """Second factors: their secrets are encrypted with a key that is derived from SECRET_KEY."""

    error_messages = DefaultMFAAdapter.error_messages | {
        "incorrect_code": AccountAdapter.error_messages["incorrect_code"],
        "passkey_needs_password": _(
            "The password was changed. Sign in once with e-mail address, password and this passkey; then the passkey "
            "alone is enough again."
        ),
    }

    def encrypt(self, text: str) -> str:
        """Return the secret as it is stored."""
        return factor_secrets.encrypted(text)

    def decrypt(self, encrypted_text: str) -> str:
        """Return a stored secret; a random one, which no code fits, where the key that it was stored with is gone."""
        try:
            return factor_secrets.decrypted(encrypted_text)
        except factor_secrets.UnreadableFactorError:
            logger.warning("a second factor was stored under another SECRET_KEY; add that to SECRET_KEY_FALLBACKS")
            return base64.b32encode(secrets.token_bytes(20)).decode()

    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return what passkeys are made for: the name of the host at which the platform is opened."""
        return {**super().get_public_key_credential_rp_entity(), "name": "GPU Platform"}

    def generate_authenticator_name(self, user: User, type: Any) -> str:
        """Return "": who adds a passkey names it."""
        return ""


class IdentityAdapter(DefaultSocialAccountAdapter):
    """Sign-in by the OpenID Connect provider that the operator has chosen, and trusts to verify addresses."""

    def authenticate_by_email(self, sociallogin: SocialLogin) -> tuple[User, str] | None:
        """Return (account, address) with the address that the provider has verified, None without one."""
        email = _verified_email(sociallogin)
        user = User.objects.filter(email=email).first() if email else None
        return (user, user.email) if user else None

    def is_open_for_signup(self, request: HttpRequest, sociallogin: SocialLogin) -> bool:
        """Return whether somebody without an account gets one: by the domain of the address, or an invitation."""
        email = _verified_email(sociallogin)
        domains = {domain.lower() for domain in settings.COMPUTE_OIDC_NEW_ACCOUNTS}
        is_known = "*" in domains or email.partition("@")[2] in domains
        return bool(email) and (is_known or invitations.pending_for(email) is not None)

    def new_user(self, request: HttpRequest, sociallogin: SocialLogin) -> User:
        """Return a new account, not saved yet, under the default policy."""
        return User(policy=ResourcePolicy.default())

    @transaction.atomic
    def save_user(self, request: HttpRequest, sociallogin: SocialLogin, form: Any = None) -> User:
        """Store the new account with the verified address, without a password, and connected with the provider."""
        user: User = sociallogin.user
        user.email = _verified_email(sociallogin)
        user.set_unusable_password()
        if (invitation := invitations.pending_for(user.email)) is not None:
            invitations.accept(invitation, user)
        else:
            user.save()
        sociallogin.account.user = user
        sociallogin.account.save()
        return user


def _verified_email(sociallogin: SocialLogin) -> str:
    """Return the address that the provider says to have verified, else "". Some providers send "true" as text."""
    found = (each for each in sociallogin.email_addresses if str(each.verified).lower() == "true")
    return next((User.objects.normalize_email(each.email) for each in found), "")
