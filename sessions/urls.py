"""Routes of the session pages."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from endpoints import app_views
from resources.models import APP_NAME
from sessions import terminal_views, views
from sessions.models import SESSION_ID


class SessionIdConverter(StringConverter):
    """Matches well-formed session ids, so that others never reach the database."""

    regex = SESSION_ID


class AppNameConverter(StringConverter):
    """What may be the name of an app."""

    regex = APP_NAME


register_converter(AppNameConverter, "app")
register_converter(SessionIdConverter, "session")
app_name = "sessions"

urlpatterns = [
    path("", views.session_list, name="list"),
    path("launch/", views.launch, name="launch"),
    path("terminate/", views.terminate_many, name="terminate-many"),
    path("<session:session_id>/", views.detail, name="detail"),
    path("<session:session_id>/logs/", views.session_logs, name="logs"),
    path("<session:session_id>/logs/download/", views.download_logs, name="logs-download"),
    path("<session:session_id>/terminate/", views.terminate, name="terminate"),
    path("<session:session_id>/terminal/", terminal_views.terminal, name="terminal"),
    path("<session:session_id>/apps/", app_views.launcher, name="apps"),
    path("<session:session_id>/apps/<app:name>/", app_views.app, name="app"),
    path("<session:session_id>/apps/<app:name>/close/", app_views.close, name="app-close"),
    path("<session:session_id>/apps/<app:name>/share/", app_views.share, name="app-share"),
    path("<session:session_id>/apps/<app:name>/unpublish/", app_views.unpublish, name="app-unpublish"),
    path("<session:session_id>/apps/links/<int:link_id>/revoke/", app_views.revoke_link, name="app-revoke-link"),
]
