"""The platform as an ASGI application: Django and its websockets, which `manage.py web` runs beside the app proxy."""

import os
from typing import cast

import django
from channels.auth import AuthMiddlewareStack
from channels.routing import ProtocolTypeRouter, URLRouter

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpuplatform.settings")
django.setup(set_prefix=False)  # before the apps' modules are imported

from accounts.credentials.socket_tokens import TokenSockets  # noqa: E402
from accounts.middleware import SocketsWithFactors  # noqa: E402
from folders.transfers.handover import TransferMiddleware  # noqa: E402
from gpuplatform.plain_cookies import PlainCookies  # noqa: E402
from gpuplatform.serving.admission.control import Admission  # noqa: E402
from gpuplatform.serving.django_handler import OneThreadHandler  # noqa: E402
from gpuplatform.serving.request_bodies import RequestBodies  # noqa: E402
from gpuplatform.serving.request_ids import AsgiApplication, RequestIds, SocketUsers  # noqa: E402
from gpuplatform.serving.same_origin import SameOrigin  # noqa: E402  # see the line above
from notifications.page.routing import websocket_urlpatterns as live_patterns  # noqa: E402
from pages.deployments.live.routing import websocket_urlpatterns as deployment_patterns  # noqa: E402
from pages.session_list.live.routing import websocket_urlpatterns as list_patterns  # noqa: E402
from proxy.counters import ConnectionCounters  # noqa: E402
from proxy.http.asgi import Application  # noqa: E402
from sessions.routing import websocket_urlpatterns  # noqa: E402

http = OneThreadHandler()


def platform_with(counters: ConnectionCounters) -> AsgiApplication:
    """Return the platform; its limits for each client address hold for all processes that share the counters."""
    sockets = SocketUsers(URLRouter([*list_patterns, *live_patterns, *deployment_patterns, *websocket_urlpatterns]))
    platform = ProtocolTypeRouter(
        {
            "http": TransferMiddleware(RequestBodies(Admission(cast(Application, http)), counters)),
            "websocket": TokenSockets(sockets, SameOrigin(AuthMiddlewareStack(SocketsWithFactors(sockets)))),
        }
    )
    return RequestIds(PlainCookies(platform))
