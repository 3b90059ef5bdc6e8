"""API that follows a session: server-sent events of its changes and of its output."""

from collections.abc import Collection
from functools import partial
from typing import Any, Final

from channels.db import database_sync_to_async
from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request

from accounts.api import user_of
from accounts.credentials import validity as credentials
from restapi.streams import LAST_EVENT_ID, MEDIA_TYPE, EventStreamRenderer, stream_response
from restapi.views import ApiViewSet
from sessions.following import logs
from sessions.following.all_sessions import FeedPosition, events_of_all
from sessions.following.cluster_logs import ClusterLogFollower, places_of
from sessions.following.stream import MAX_TAIL, LogFollower, ResumedPosition, status_events
from sessions.models import Session, SessionEvent
from sessions.serializers import MemberField, SessionEventSerializer

MAX_EVENT_ID: Final = 2**63 - 1
RESUME: Final = OpenApiParameter(
    LAST_EVENT_ID, str, OpenApiParameter.HEADER, description="The id of the last event, to go on behind it"
)
STREAM: Final = {(200, MEDIA_TYPE): OpenApiTypes.STR}


class LogFollowQuery(serializers.Serializer[Any]):
    """Query parameters of a log that is followed."""

    tail = serializers.IntegerField(
        default=MAX_TAIL, min_value=1, max_value=MAX_TAIL, help_text="Lines of what there is already, from its end"
    )
    member = MemberField()


class FollowActions(ApiViewSet[Session]):
    """The actions that follow a session."""

    @extend_schema(parameters=[RESUME], responses=STREAM, operation_id="sessions_events_follow")
    @action(detail=True, url_path="events/follow", renderer_classes=[EventStreamRenderer], pagination_class=None)
    def follow_events(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Send the session's changes of status, those of before first, until it has ended.

        Events: `status` `{event, session}`, `wait` `{event: null, session}` where its reason or estimate has changed,
        or the status of its cluster as a whole, or its members are resized, and `end` with the session.
        """
        session = self.get_object()
        last = request.headers.get(LAST_EVENT_ID, "0")
        if not (last.isascii() and last.isdecimal() and int(last[:20]) <= MAX_EVENT_ID):
            raise ValidationError({LAST_EVENT_ID: ["This is no id of an event of this stream."]})
        events = status_events(session, int(last), self._shown, _shown_event)
        return stream_response(user_of(request).pk, events, partial(self._may_follow, request, session.pk))

    @extend_schema(parameters=[RESUME], responses=STREAM, operation_id="sessions_follow")
    @action(detail=False, url_path="events/follow", renderer_classes=[EventStreamRenderer], pagination_class=None)
    def follow_all(self, request: Request) -> StreamingHttpResponse:
        """Send the changes of status of all of the caller's own sessions, new ones included, from now on.

        Events: `ready` with the time from which on nothing is missed, `status` `{event, session}`, and `wait`
        `{event: null, session}` where reason or estimate of a waiting session have changed. It has no end. The session
        in the event of a cluster's member is the cluster's first.
        """
        user, position = user_of(request), None
        if LAST_EVENT_ID in request.headers:
            try:
                position = FeedPosition.parsed(request.headers[LAST_EVENT_ID])
            except ValueError as error:
                raise ValidationError({LAST_EVENT_ID: ["This is no id of an event of this stream."]}) from error
        events = events_of_all(user.pk, position, self._all_shown, _shown_event)
        return stream_response(user.pk, events, database_sync_to_async(partial(credentials.are_valid, request)))

    @extend_schema(parameters=[RESUME], responses=STREAM, operation_id="sessions_logs_follow")
    @action(detail=True, url_path="logs/follow", renderer_classes=[EventStreamRenderer], pagination_class=None)
    def follow_logs(self, request: Request, pk: str) -> StreamingHttpResponse:
        """Send the session's output, from its beginning or its last lines, until it has ended.

        Events: `output` with a text, and `end` with `{status, result, exit_code}`. That of all members of a cluster
        comes in whole lines, each with its member, and `end` has `members` with the same of each by its name.
        """
        session, last = self.get_object(), request.headers.get(LAST_EVENT_ID)
        members, tail = logs.chosen(session, self.query["member"]), self.query["tail"]
        try:
            if len(members) > 1:
                places = {} if last is None else places_of(last)
                events = ClusterLogFollower(members, places, tail).events()
            else:
                place = None if last is None else ResumedPosition.parsed(last)
                events = LogFollower(members[0], place, tail).events()
        except ValueError as error:
            raise ValidationError({LAST_EVENT_ID: ["This is no id of an event of this stream."]}) from error
        return stream_response(user_of(request).pk, events, partial(self._may_follow, request, session.pk))

    async def _may_follow(self, request: Request, session_id: str) -> bool:
        """Return whether the caller may still do what began the stream."""
        may: bool = await database_sync_to_async(self._may)(request, session_id)
        return may

    def _may(self, request: Request, session_id: str) -> bool:
        return credentials.are_valid(request) and self.get_queryset().filter(pk=session_id).exists()

    def _shown(self, session: Session) -> Any:
        """Return the session as the API shows it, None once the caller may not see it."""
        found = self.get_queryset().filter(pk=session.pk).first()
        return None if found is None else self.get_serializer(found).data

    def _all_shown(self, ids: Collection[str]) -> dict[str, Any]:
        """Return the sessions as the API shows them, by id."""
        found = self.get_serializer(self.get_queryset().filter(pk__in=ids), many=True).data
        return {each["id"]: each for each in found}


def _shown_event(event: SessionEvent) -> Any:
    return SessionEventSerializer(event).data
