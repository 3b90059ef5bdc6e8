"""Routes of accounts."""

from django.urls import path

from accounts.views import SignInView, SignOutView

app_name = "accounts"

urlpatterns = [
    path("sign-in/", SignInView.as_view(), name="login"),
    path("sign-out/", SignOutView.as_view(), name="logout"),
]
