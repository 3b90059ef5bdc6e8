"""WebSocket routes of the platform."""

from django.urls import URLPattern, path, re_path

from sessions.consumers import NowhereConsumer, SessionsConsumer
from sessions.terminal import TerminalConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/sessions/", SessionsConsumer.as_asgi()),
    path("ws/sessions/<str:session_id>/terminal/", TerminalConsumer.as_asgi()),
    re_path("", NowhereConsumer.as_asgi()),  # without it, an address that does not exist is an error in the log
]
