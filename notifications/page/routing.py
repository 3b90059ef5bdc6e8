"""The websocket route of the pages."""

from django.urls import URLPattern, path

from notifications.page.consumers import LiveConsumer

websocket_urlpatterns: list[URLPattern] = [path("ws/sessions/", LiveConsumer.as_asgi())]
