"""API of a session's apps: what it offers, opening and closing, and the links that share them."""

from collections.abc import Mapping

from django.db import transaction
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from endpoints import services
from endpoints.routing import addresses
from endpoints.serializers import (
    OpenedSerializer,
    OpenSerializer,
    SharedSerializer,
    ShareLinkSerializer,
    ShareSerializer,
)
from restapi.views import ApiViewSet, valid_body
from sessions.access.app_serializers import EndpointSerializer
from sessions.models import Endpoint, EndpointState, Session, ShareLink


class AppViewSet(ApiViewSet[Endpoint]):
    """The apps of one session."""

    unkept_operations = frozenset({"share"})

    queryset = Endpoint.objects.none()
    serializer_class = EndpointSerializer
    filter_backends = ()

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, str]:
        """Return them by field; an error of the app itself concerns none."""
        return {"detail" if name == "app" else name: message for name, message in errors.items()}

    def list(self, request: Request, session_id: str) -> Response:
        """List the apps that the session's image offers, and the ports that were opened."""
        return self.page_of(_shown(self._session(session_id)), EndpointSerializer)

    def retrieve(self, request: Request, session_id: str, app: str) -> Response:
        """Show an app that was opened."""
        return Response(EndpointSerializer(self._endpoint(session_id, app)).data)

    @extend_schema(request=OpenSerializer, responses={200: OpenedSerializer})
    def create(self, request: Request, session_id: str, app: str) -> Response:
        """Open an app, or change the options of an open one."""
        session, actor = self._session(session_id), user_of(request)
        asked = valid_body(OpenSerializer, request)
        with transaction.atomic():
            opened = services.open_app(session, app, actor=actor, preferred_port=asked.get("preferred_port"))
            if asked.get("public"):
                services.publish(opened.endpoint, until=asked.get("public_until"), actor=actor)
            elif "public" in asked:
                services.unpublish(opened.endpoint, actor=actor)
        endpoint = self._endpoint(session_id, app)
        return Response({**EndpointSerializer(endpoint).data, "note": opened.note})

    @extend_schema(request=None, responses={204: None})
    def destroy(self, request: Request, session_id: str, app: str) -> Response:
        """Close the app to everybody; its process keeps running in the session."""
        services.close(self._endpoint(session_id, app), actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    @extend_schema(responses=ShareLinkSerializer(many=True))
    def links(self, request: Request, session_id: str, app: str) -> Response:
        """List the links by which the app was shared, newest first."""
        links = self._endpoint(session_id, app).share_links.select_related("created_by")
        return self.page_of(links, ShareLinkSerializer)

    @extend_schema(request=ShareSerializer, responses={201: SharedSerializer})
    def share(self, request: Request, session_id: str, app: str) -> Response:
        """Create a link whose holders may use the app until it expires."""
        endpoint = self._endpoint(session_id, app)
        asked = valid_body(ShareSerializer, request)
        link, secret = services.share(endpoint, **asked, actor=user_of(request))
        shown = {**ShareLinkSerializer(link).data, "url": addresses.share_url(secret)}
        return Response(shown, status=status.HTTP_201_CREATED)

    @extend_schema(request=None, responses={204: None})
    def revoke(self, request: Request, session_id: str, app: str, link_id: int) -> Response:
        """Revoke a link, and the access that it has given."""
        link = get_object_or_404(ShareLink, endpoint=self._endpoint(session_id, app), pk=link_id)
        services.revoke(link, actor=user_of(request))
        return Response(status=status.HTTP_204_NO_CONTENT)

    def _session(self, session_id: str) -> Session:
        """Return the session. Raises Http404 for users who may not see it."""
        sessions = Session.objects.operable_by(user_of(self.request)).select_related("image")
        return get_object_or_404(sessions.prefetch_related("image__apps", "endpoints"), pk=session_id)

    def _endpoint(self, session_id: str, app: str) -> Endpoint:
        """Return the endpoint. Raises Http404 once it is closed, and for users who may not see it."""
        endpoints = Endpoint.objects.visible_to(user_of(self.request)).unclosed().select_related("session__image")
        return get_object_or_404(endpoints, session=session_id, app=app)


def _shown(session: Session) -> list[Endpoint]:
    """Return an endpoint, unsaved if never opened, for each app of the image, and those of opened ports."""
    opened = {endpoint.app: endpoint for endpoint in session.endpoints.all()}
    offered = [
        opened.get(app.name) or Endpoint(session=session, app=app.name, title=app.title, state=EndpointState.CLOSED)
        for app in session.image.apps.all()
    ]
    others = [endpoint for endpoint in opened.values() if endpoint.state != EndpointState.CLOSED]
    return offered + [endpoint for endpoint in others if endpoint not in offered]
