"""Routes of the session pages."""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from sessions import terminal_views, views
from sessions.models import SESSION_ID


class SessionIdConverter(StringConverter):
    """Matches well-formed session ids, so that others never reach the database."""

    regex = SESSION_ID


register_converter(SessionIdConverter, "session")
app_name = "sessions"

urlpatterns = [
    path("", views.session_list, name="list"),
    path("launch/", views.launch, name="launch"),
    path("launch/images/", views.image_builds, name="image-builds"),
    path("terminate/", views.terminate_many, name="terminate-many"),
    path("<session:session_id>/", views.detail, name="detail"),
    path("<session:session_id>/logs/", views.session_logs, name="logs"),
    path("<session:session_id>/logs/download/", views.download_logs, name="logs-download"),
    path("<session:session_id>/terminate/", views.terminate, name="terminate"),
    path("<session:session_id>/terminal/", terminal_views.terminal, name="terminal"),
]
