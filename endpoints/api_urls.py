"""Addresses of the API of apps, below that of the sessions."""

from typing import Final

from django.urls import re_path

from endpoints.api import AppViewSet
from resources.models import APP_NAME
from sessions.models import SESSION_ID

APPS: Final = rf"^sessions/(?P<session_id>{SESSION_ID})/apps/"
APP: Final = rf"{APPS}(?P<app>{APP_NAME})/"

urlpatterns = [
    re_path(rf"{APPS}$", AppViewSet.as_view({"get": "list"}), name="app-list"),
    re_path(
        rf"{APP}$",
        AppViewSet.as_view({"get": "retrieve", "post": "create", "delete": "destroy"}),
        name="app-detail",
    ),
    re_path(rf"{APP}share/$", AppViewSet.as_view({"get": "links", "post": "share"}), name="app-links"),
    re_path(rf"{APP}share/(?P<link_id>[0-9]{{1,18}})/$", AppViewSet.as_view({"delete": "revoke"}), name="app-link"),
]
