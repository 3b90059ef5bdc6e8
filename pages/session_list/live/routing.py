"""WebSocket routes of the list."""

from django.urls import URLPattern, path

from pages.session_list.live.consumers import SessionListConsumer

websocket_urlpatterns: list[URLPattern] = [path("ws/sessions/list/", SessionListConsumer.as_asgi())]
