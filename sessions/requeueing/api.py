"""API of requeueing: an owner has a session wait again, as by Slurm's `scontrol requeue`."""

from drf_spectacular.utils import extend_schema
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.api import user_of
from restapi.views import ApiViewSet
from sessions.models import Session
from sessions.requeueing import requests
from sessions.serializers import SessionSerializer


class RequeueActions(ApiViewSet[Session]):
    """The action on a session that returns it to the queue."""

    @extend_schema(request=None, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def requeue(self, request: Request, pk: str) -> Response:
        """Have a running batch session, or one that has not started yet, wait again; it runs from its beginning."""
        requests.requeue(self.get_object(), actor=user_of(request))
        return Response(self.get_serializer(self.get_object()).data)
