"""Routes of the pages about apps: those of one session, and those of the hand-over to an app's own origin."""

from typing import Final

from django.urls import re_path

from endpoints.handoff import views as handoff_views
from endpoints.launcher import views as launcher_views
from resources.models import APP_NAME
from sessions.models import SESSION_ID

app_name = "endpoints"
_APPS: Final = rf"^sessions/(?P<session_id>{SESSION_ID})/apps/"
_APP: Final = rf"{_APPS}(?P<name>{APP_NAME})/"

urlpatterns = [
    re_path(rf"{_APPS}$", launcher_views.launcher, name="apps"),
    re_path(rf"{_APPS}found-ports/$", launcher_views.found, name="found-ports"),
    re_path(rf"{_APPS}imported/$", launcher_views.imported, name="imported"),
    re_path(rf"{_APP}$", launcher_views.app, name="app"),
    re_path(rf"{_APP}close/$", launcher_views.close, name="app-close"),
    re_path(rf"{_APP}share/$", launcher_views.share, name="app-share"),
    re_path(rf"{_APP}unpublish/$", launcher_views.unpublish, name="app-unpublish"),
    re_path(rf"{_APPS}links/(?P<link_id>[0-9]{{1,18}})/revoke/$", launcher_views.revoke_link, name="app-revoke-link"),
    re_path(r"^apps/authorize$", handoff_views.authorize, name="authorize"),
    re_path(r"^apps/shared/(?P<secret>[A-Za-z0-9_-]{43})$", handoff_views.shared, name="shared"),
    re_path(r"^apps/shared/", handoff_views.shared, {"secret": ""}),
]
