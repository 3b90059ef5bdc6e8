"""API of sessions: launch, list, show, read the log, terminate; and the caller's limits."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, ClassVar, Final

from django.conf import settings
from django.db.models import Prefetch, QuerySet
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework import status
from rest_framework.decorators import action
from rest_framework.exceptions import APIException, ValidationError
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.renderers import BaseRenderer, JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from accounts import limits
from accounts.api import user_of
from accounts.models import User
from accounts.policies import bounds_of
from resources.models import ResourceGroup
from resources.totals import largest_amounts
from restapi.pages import EventPages
from restapi.views import ApiView, valid_body
from sessions import search
from sessions.conversion.api import ConversionActions
from sessions.errors import GENERAL
from sessions.extensions import services as extensions
from sessions.following import logs
from sessions.following.api import FollowActions, LogFollowQuery
from sessions.idle import enforcement as idle
from sessions.launching import services
from sessions.launching.serializers import AMOUNTS, LaunchRequestSerializer, group_for, project_for
from sessions.lifecycle import TABS, Tab
from sessions.limits import held as usage
from sessions.limits.serializers import LimitsQuery, LimitsSerializer
from sessions.models import SESSION_ID, Dependency, Endpoint, Session, SessionQuerySet
from sessions.parking.api import ParkingActions
from sessions.requeueing.api import RequeueActions
from sessions.resizing.api import ResizingActions
from sessions.serializers import (
    ExtensionSerializer,
    LogsQuery,
    RenameSerializer,
    SessionEventSerializer,
    SessionQuery,
    SessionSerializer,
    SnoozeSerializer,
    TerminatedSerializer,
)
from sessions.usage.stats import StatsWindow, stats_of
from sessions.usage.stats_serializers import StatsQuery, StatsSerializer

OPENED = Prefetch("endpoints", Endpoint.objects.unclosed())
DEPENDENCIES = Prefetch("dependencies", Dependency.objects.shown(), to_attr="shown_dependencies")


# What managers may do with the sessions of their project's members; for the rest a session must be operable.
FOR_MANAGERS: Final = frozenset(
    {"follow_events", "terminate_many", "list", "retrieve", "create", "terminate", "events", "stats", None}
)


class UnavailableError(APIException):
    """The resource exists but is not available now; the detail has the cause."""

    status_code = status.HTTP_503_SERVICE_UNAVAILABLE


class PlainTextRenderer(BaseRenderer):
    """Renders errors for callers that accept plain text; logs are rendered by the view."""

    media_type = "text/plain"
    format = "txt"
    charset = "utf-8"

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return the detail of an error, or the data, as one line."""
        return f"{data.get('detail', data)}\n".encode()


class SessionViewSet(
    ListModelMixin,
    RetrieveModelMixin,
    ConversionActions,
    FollowActions,
    ParkingActions,
    RequeueActions,
    ResizingActions,
):
    """The caller's sessions, newest first; superadmins see everybody's."""

    queryset = Session.objects.all()
    serializer_class = SessionSerializer
    lookup_value_regex = SESSION_ID
    query_serializers: ClassVar = {
        "list": SessionQuery,
        "stats": StatsQuery,
        "logs": LogsQuery,
        "follow_logs": LogFollowQuery,
    }

    def get_queryset(self) -> QuerySet[Session]:
        """Return the sessions visible to the caller with related rows: a constant number of queries for any number."""
        user, everything = user_of(self.request), Session.objects.all()
        is_seen = self.action in FOR_MANAGERS
        sessions = everything.visible_to(user) if is_seen else everything.operable_by(user)
        order = search.DEFAULT_SORT
        if self.action == "list":
            sessions, order = _filtered(sessions, self.query, user), self.query["order"]
        related = (
            "owner__policy",
            "project__policy",
            "image",
            "resource_group",
            "host",
            "lease",
            "idle_notice",
            "start_estimate",
        )
        return (
            sessions.with_members()
            .select_related(*related)
            .prefetch_related("lease__shares__gpu", "image__apps", "mounts", OPENED)
            .prefetch_related(DEPENDENCIES)  # type: ignore[no-redef]  # in place of the property's query
            .order_by(*search.order_of(order))
        )

    def refused_fields(self, errors: Mapping[str, str]) -> Mapping[str, Any]:
        """Return those of a launch by field of its request."""
        return by_request_field(errors, self.request.data) if self.action == "create" else errors

    @extend_schema(request=LaunchRequestSerializer, responses={201: SessionSerializer(many=True)})
    def create(self, request: Request) -> Response:
        """Launch one or more sessions of the same shape."""
        body = LaunchRequestSerializer(data=request.data, context=self.get_serializer_context())
        body.is_valid(raise_exception=True)
        sessions = services.submit(user_of(request), body.launch_request())
        rows = self.get_queryset().filter(pk__in=[session.pk for session in sessions]).order_by("created_at")
        return Response(self.get_serializer(rows, many=True).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=RenameSerializer, responses=SessionSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Give the session another name."""
        session = self.get_object()
        asked = valid_body(RenameSerializer, request)
        services.rename(session, asked["name"], actor=user_of(request))
        return self.retrieve(request, pk)

    @extend_schema(request=None, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def terminate(self, request: Request, pk: str) -> Response:
        """End the session; does nothing if it is ending or has ended."""
        services.terminate(self.get_object(), actor=user_of(request))
        return self.retrieve(request, pk)

    @extend_schema(
        operation_id="sessions_terminate_many",
        request=TerminatedSerializer,
        responses={200: SessionSerializer(many=True)},
    )
    @action(detail=False, methods=["post"], url_path="terminate", pagination_class=None)
    def terminate_many(self, request: Request) -> Response:
        """End several sessions, none where one of them does not exist; those that are ending or have ended stay so."""
        asked = valid_body(TerminatedSerializer, request)
        ids = set(asked["ids"])
        found = {session.pk: session for session in Session.objects.visible_to(user_of(request)).filter(pk__in=ids)}
        if unknown := ids - found.keys():
            raise ValidationError({"ids": [f"There is no session {min(unknown)!r} of yours."]})
        for session in found.values():
            services.terminate(session, actor=user_of(request))
        return Response(self.get_serializer(self.get_queryset().filter(pk__in=ids), many=True).data)

    @extend_schema(request=ExtensionSerializer, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def extend(self, request: Request, pk: str) -> Response:
        """Let the running session go on for longer than its limits, as far as its owner's policy allows."""
        asked = valid_body(ExtensionSerializer, request)
        extensions.extend(self.get_object().pk, asked["by"], actor=user_of(request))
        return self.retrieve(request, pk)

    @extend_schema(request=SnoozeSerializer, responses=SessionSerializer)
    @action(detail=True, methods=["post"])
    def snooze(self, request: Request, pk: str) -> Response:
        """Put off the end of a session that is idle, as far as the rule allows."""
        asked = valid_body(SnoozeSerializer, request)
        idle.snooze(self.get_object().pk, asked["by"], actor=user_of(request))
        return self.retrieve(request, pk)

    @extend_schema(responses=SessionEventSerializer(many=True))
    @action(detail=True, pagination_class=EventPages)
    def events(self, request: Request, pk: str) -> Response:
        """List the session's changes of status, oldest first."""
        events = self.get_object().events.select_related("actor").order_by("id")
        return self.page_of(events, SessionEventSerializer)

    @extend_schema(responses=StatsSerializer)
    @action(detail=True, pagination_class=None)
    def stats(self, request: Request, pk: str) -> Response:
        """Show what the session uses, over the last hour or its whole life."""
        session = self.get_object()
        window = self.query.get("window")
        stats = stats_of(session, timezone.now(), StatsWindow(window) if window else None)
        # The points are as the serializer would write them, which takes it longer than all the rest.
        return Response(StatsSerializer(replace(stats, points=[])).data | {"points": stats.points})

    @extend_schema(responses={(200, "text/plain"): OpenApiTypes.STR})
    @action(detail=True, renderer_classes=[JSONRenderer, PlainTextRenderer], pagination_class=None)
    def logs(self, request: Request, pk: str) -> HttpResponse:
        """Return the last lines of the session's output as plain text; of a cluster, each with its member."""
        session = self.get_object()
        try:
            read = logs.read_previous if self.query["previous"] else logs.read
            text = read(session, self.query["tail"], self.query["member"])
        except logs.LogsUnavailableError as error:
            raise UnavailableError(str(error)) from error
        return HttpResponse(text, content_type="text/plain; charset=utf-8")


FILTERS: Final = {  # parameters of the list, and the lookups by which they filter
    "name": "name__icontains",
    "owner": "owner__email__iexact",
    "project": "project__name",
    "environment": "image__environment",
    "resource_group": "resource_group__name",
    "kind": "kind",
    "array": "array_task__array",
}


def _filtered(sessions: SessionQuerySet, asked: Mapping[str, Any], user: User) -> SessionQuerySet:
    """Return the sessions that match the query string; clusters by their first members."""
    sessions = sessions.mains() if "array" in asked else sessions.outside_arrays()
    if "tab" in asked:
        sessions = sessions.mains_in(TABS[Tab(asked["tab"])])
    if "status" in asked:
        sessions = sessions.mains_in([asked["status"]])
    if "search" in asked:
        sessions = sessions.filter(search.match(asked["search"], user))
    return sessions.filter(**{lookup: asked[name] for name, lookup in FILTERS.items() if name in asked})


def by_request_field(errors: Mapping[str, str], body: Any) -> dict[str, list[str]]:
    """Return the service's {field of LaunchRequest: message} as {field of the request: messages}."""
    names = {"environment": "env", "is_preemptible": "preemptible", GENERAL: "non_field_errors"}
    if "preset" in body:
        names |= dict.fromkeys((*AMOUNTS, "gpu_memory"), "preset")
    if "image" not in body:
        names["image"] = "version"
    by_field: dict[str, list[str]] = {}
    for name, message in errors.items():
        if name == "shared_memory" and "memory" in errors and not {name, "preset"} & body.keys():
            continue  # not requested: the default exceeds a memory that is itself too small
        shown = names.get(name, name).replace("cluster_main_", "cluster.main.", 1)  # as fields inside of others
        shown = shown.replace("cluster_", "cluster.", 1)
        by_field.setdefault(shown, []).append(message)
    return by_field


class LimitsView(ApiView):
    """The caller's limits."""

    query_serializers: ClassVar = {"get": LimitsQuery}

    @extend_schema(responses=LimitsSerializer)
    def get(self, request: Request) -> Response:
        """Show limits, usage, and what the caller may still request."""
        user = user_of(request)
        group = _group_asked_for(user, self.query.get("resource_group"))
        project = project_for(user, self.query.get("project"))
        own, of_project = usage.limit_use_of(user), usage.limit_use_of(project) if project else None
        bounds = bounds_of(user, project)
        body = {
            **_limit_use(own),
            "remaining": asdict(limits.least(own.left, of_project.left) if of_project else own.left),
            "max_per_launch": bounds.max_per_launch,
            "max_cluster_size": bounds.max_cluster_size,
            "max_array_tasks": limits.lesser(bounds.max_array_tasks, settings.COMPUTE_MAX_ARRAY_TASKS),
            "max_priority": bounds.max_priority,
            "project": of_project and _limit_use(of_project),
            "resource_group": group and group.name,
            "per_session": group and asdict(largest_amounts(group)),
        }
        return Response(LimitsSerializer(body).data)


def _limit_use(use: usage.LimitUse) -> dict[str, Any]:
    return {"limits": asdict(use.limits), "used": {**asdict(use.used), "pending": use.pending}}


def _group_asked_for(user: User, name: str | None) -> ResourceGroup | None:
    """Return the group of this name, else the only usable one, else None. Raises ValidationError for a wrong name."""
    try:
        return group_for(user, name)
    except ValidationError:
        if name is not None:
            raise
        return None
