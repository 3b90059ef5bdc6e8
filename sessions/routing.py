"""WebSocket routes of the platform."""

from django.urls import URLPattern, path, re_path

from sessions.following.consumers import NotFoundConsumer
from sessions.terminal.command_socket import CommandConsumer
from sessions.terminal.consumer import TerminalConsumer

websocket_urlpatterns: list[URLPattern] = [
    path("ws/sessions/<str:session_id>/terminal/", TerminalConsumer.as_asgi()),
    path("ws/sessions/<str:session_id>/exec/", CommandConsumer.as_asgi()),
    re_path("", NotFoundConsumer.as_asgi()),  # otherwise Channels logs an error with a traceback for each
]
