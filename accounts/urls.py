"""Routes of accounts, but those of django-allauth, which are in `sign_in_urls`."""

from django.urls import path, re_path

from accounts import account_views
from accounts.invitations.views import accept
from accounts.models.invitations import TOKEN_LENGTH
from accounts.signing_in.views import SignOutView, choose_language

app_name = "accounts"

urlpatterns = [
    path("", account_views.profile, name="profile"),
    path("sign-out/", SignOutView.as_view(), name="logout"),
    re_path(rf"^invitations/(?P<token>[A-Za-z0-9_-]{{{TOKEN_LENGTH}}})/$", accept, name="invitation"),
    path("language/", choose_language, name="language"),
    path("tokens/", account_views.token_list, name="tokens"),
    path("tokens/<uuid:uid>/delete/", account_views.delete_token, name="delete-token"),
    path("ssh-keys/", account_views.ssh_keys, name="ssh-keys"),
    path("ssh-keys/<int:key_id>/delete/", account_views.delete_ssh_key, name="delete-ssh-key"),
    path("logins/", account_views.login_list, name="logins"),
    path("logins/<int:login_id>/end/", account_views.end_login, name="end-login"),
    path("logins/others/end/", account_views.end_other_logins, name="end-other-logins"),
]
