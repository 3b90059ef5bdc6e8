"""API of parking: a session's resources are given back, and it goes on later with its files."""

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from restapi.views import ApiViewSet
from sessions.models import Session
from sessions.parking import services as parking
from sessions.serializers import SessionSerializer


class ParkingActions(ApiViewSet[Session]):
    """The actions on a session that park and resume it."""

    @extend_schema(request=None, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def park(self, request: Request, pk: str) -> Response:
        """Stop the session, or all members of its cluster, and keep the files; what it holds is free. Idempotent."""
        parking.park(self.get_object(), actor=user_of(request))
        return Response(self.get_serializer(self.get_object()).data)

    @extend_schema(request=None, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: str) -> Response:
        """Let the parked session or cluster wait for its hosts, to go on with its files. Idempotent while it waits."""
        parking.resume(self.get_object(), actor=user_of(request))
        return Response(self.get_serializer(self.get_object()).data)
