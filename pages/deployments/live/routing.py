"""WebSocket route of the page of a deployment."""

from django.urls import URLPattern, path

from pages.deployments.live.consumers import DeploymentConsumer

websocket_urlpatterns: list[URLPattern] = [path("ws/deployments/<slug:deployment_id>/", DeploymentConsumer.as_asgi())]
