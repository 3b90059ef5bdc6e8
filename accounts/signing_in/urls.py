"""Routes of django-allauth that the platform offers, by the names that it looks up; nobody signs up by themselves."""

from allauth.account import views
from allauth.mfa.base import views as factors
from allauth.mfa.recovery_codes import views as recovery
from allauth.mfa.totp import views as totp
from allauth.mfa.webauthn import views as passkeys
from allauth.socialaccount import views as identities
from allauth.socialaccount.providers.openid_connect import views as openid
from django.urls import path, re_path
from django.views.generic import RedirectView

from accounts.signing_in.views import PasswordPage, to_provider

# Who has no password chooses the first one by mail, which shows whose account it is.
BY_MAIL = RedirectView.as_view(pattern_name="account_reset_password")

urlpatterns = [
    path("sign-in/", views.login, name="account_login"),
    path("inactive/", views.account_inactive, name="account_inactive"),
    path("confirm/", views.reauthenticate, name="account_reauthenticate"),
    path("password/", PasswordPage.as_view(), name="account_change_password"),
    path("password/set/", BY_MAIL, name="account_set_password"),
    path("password/reset/", views.password_reset, name="account_reset_password"),
    path("password/reset/sent/", views.password_reset_done, name="account_reset_password_done"),
    re_path(
        r"^password/reset/key/(?P<uidb36>[0-9A-Za-z]{1,13})-(?P<key>[0-9A-Za-z-]{1,100})/$",
        views.password_reset_from_key,
        name="account_reset_password_from_key",
    ),
    path("password/reset/done/", views.password_reset_from_key_done, name="account_reset_password_from_key_done"),
    path("second-factor/", factors.index, name="mfa_index"),
    path("second-factor/enter/", factors.authenticate, name="mfa_authenticate"),
    path("second-factor/confirm/", factors.reauthenticate, name="mfa_reauthenticate"),
    path("second-factor/app/", totp.activate_totp, name="mfa_activate_totp"),
    path("second-factor/app/remove/", totp.deactivate_totp, name="mfa_deactivate_totp"),
    path("second-factor/codes/", recovery.view_recovery_codes, name="mfa_view_recovery_codes"),
    path("second-factor/codes/new/", recovery.generate_recovery_codes, name="mfa_generate_recovery_codes"),
    path("second-factor/codes/file/", recovery.download_recovery_codes, name="mfa_download_recovery_codes"),
    path("second-factor/passkeys/", RedirectView.as_view(pattern_name="mfa_index"), name="mfa_list_webauthn"),
    path("second-factor/passkeys/add/", passkeys.add_webauthn, name="mfa_add_webauthn"),
    path("second-factor/passkeys/sign-in/", passkeys.login_webauthn, name="mfa_login_webauthn"),
    path("second-factor/passkeys/confirm/", passkeys.reauthenticate_webauthn, name="mfa_reauthenticate_webauthn"),
    path("second-factor/passkeys/<int:pk>/remove/", passkeys.remove_webauthn, name="mfa_remove_webauthn"),
    path("second-factor/passkeys/<int:pk>/edit/", passkeys.edit_webauthn, name="mfa_edit_webauthn"),
    path("identities/", identities.connections, name="socialaccount_connections"),
    path("identities/error/", identities.login_error, name="socialaccount_login_error"),
    path("identities/cancelled/", identities.login_cancelled, name="socialaccount_login_cancelled"),
    path("identities/<slug:provider_id>/sign-in/", to_provider, name="openid_connect_login"),
    path("identities/<slug:provider_id>/callback/", openid.callback, name="openid_connect_callback"),
]
