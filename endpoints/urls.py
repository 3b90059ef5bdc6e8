"""Routes of the hand-over to apps."""

from django.urls import re_path

from endpoints import views

app_name = "endpoints"

urlpatterns = [
    re_path(r"^authorize$", views.authorize, name="authorize"),
    re_path(r"^shared/(?P<secret>[A-Za-z0-9_-]{43})$", views.shared, name="shared"),
    re_path(r"^shared/", views.shared, {"secret": ""}),
]
