"""Routes of accounts."""

from django.urls import path

from accounts.views import SignInView, SignOutView, choose_language, delete_ssh_key, ssh_keys

app_name = "accounts"

urlpatterns = [
    path("sign-in/", SignInView.as_view(), name="login"),
    path("sign-out/", SignOutView.as_view(), name="logout"),
    path("language/", choose_language, name="language"),
    path("ssh-keys/", ssh_keys, name="ssh-keys"),
    path("ssh-keys/<int:key_id>/delete/", delete_ssh_key, name="delete-ssh-key"),
]
